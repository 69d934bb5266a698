"""Messages of a topic of Kafka: `kafka://host:9092,host:9092/TOPIC`.

All partitions are read by one consumer that belongs to no group and commits nothing: it begins after
our own position, which has an offset for each partition and the topic's id. Messages of transactions
that were aborted, or are not yet committed, are not read.

Kafka's id of a topic tells whether it was deleted and created again, which gives the same offsets to
other messages. The id is asked for after each read, before its messages are stored: they belong to the
topic that had this id before and after. Another topic is read from its beginning. A partition that is
not in our position is new, and is read from its beginning.

A partition that ends before our position has lost messages: what follows is not guessed, it is a fault
until a person rewinds. Messages that the broker dropped before we read them are passed over.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from rota.core.positions import Vector, parse_vector
from rota.errors import ConfigError
from rota.lib.addresses import Address
from rota.operations.triggers import Message
from rota.worker.sources import Read, SourceUnavailable

try:
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.errors import KafkaConnectionError, KafkaError, OffsetOutOfRangeError

    from rota.lib.kafka import ANSWER, Topic, ask_topic, connection_settings, stop_client
except ModuleNotFoundError as missing:  # pragma: no cover - an installation without the extra
    raise ConfigError("triggers of Kafka need its client: pip install 'rota[kafka]'") from missing

log = logging.getLogger("rota.triggers")

_FAULTS = (KafkaError, OSError, TimeoutError, NotImplementedError)


class KafkaSource:
    def __init__(self, address: Address) -> None:
        self._topic = address.path
        self._settings = connection_settings("source", address)
        self._consumer: Any = None
        self._at = Vector("", {})  # where the consumer is

    async def end(self) -> str | None:
        topic = await self._ask(self._find_topic)
        if topic is None:
            return None
        ends = await self._ask(lambda consumer: consumer.end_offsets(self._partitions(topic)))
        offsets = {partition.partition: offset - 1 for partition, offset in ends.items()}
        return str(Vector(topic.topic, offsets))

    async def read(self, position: str | None, limit: int, wait: float) -> Read:
        before = await self._ask(self._find_topic)
        if before is None:
            await asyncio.sleep(wait)
            return Read([], position)
        wanted = _parse(position) if position else Vector("", {})
        if wanted != self._at or before.topic != self._at.topic or _is_new(before, self._at):
            self._at = await self._seek(before, wanted)
        try:
            found = await self._ask(
                lambda consumer: consumer.getmany(timeout_ms=int(wait * 1000), max_records=limit)
            )
        except OffsetOutOfRangeError:
            self._at = Vector("", {})  # dropped before it was read, or lost: looked at in a moment
            return Read([], position)
        after = await self._ask(self._find_topic)
        if after is None or after.topic != before.topic:
            self._at = Vector("", {})
            return Read([], position)
        offsets = dict(self._at.offsets)
        for partition in self._partitions(before):
            # Also past what is no message: the marks of transactions, and what was aborted.
            offsets[partition.partition] = await self._consumer.position(partition) - 1
        self._at = Vector(before.topic, offsets)
        messages = [self._message(record) for records in found.values() for record in records]
        return Read(messages, str(self._at))

    async def _find_topic(self, consumer: Any) -> Topic | None:
        return await ask_topic(consumer._client, self._topic)

    def _message(self, record: Any) -> Message:
        headers = {
            name: (value or b"").decode("utf-8", "replace") for name, value in record.headers
        }
        return Message(
            position=str(Vector(self._at.topic, {record.partition: record.offset})),
            body=record.value or b"", key=record.key, headers=headers, topic=record.topic,
        )  # fmt: skip

    async def lag(self, position: str | None) -> int | None:
        topic = await self._ask(self._find_topic)
        if topic is None:
            return 0
        at = _parse(position) if position else Vector("", {})
        partitions = self._partitions(topic)
        ends = await self._ask(lambda consumer: consumer.end_offsets(partitions))
        firsts = await self._ask(lambda consumer: consumer.beginning_offsets(partitions))
        known = at.offsets if at.topic in ("", topic.topic) else {}
        waiting: int = sum(
            max(ends[each] - max(known.get(each.partition, -1) + 1, firsts[each]), 0)
            for each in partitions
        )
        return waiting

    async def close(self) -> None:
        consumer, self._consumer, self._at = self._consumer, None, Vector("", {})
        if consumer is not None:
            await stop_client(consumer)

    def _partitions(self, topic: Any) -> list[Any]:
        return [TopicPartition(self._topic, number) for number in topic.partitions]

    async def _seek(self, topic: Any, wanted: Vector) -> Vector:
        """Let the consumer go on after a position, and return where it is then."""
        partitions = self._partitions(topic)
        firsts = await self._ask(lambda consumer: consumer.beginning_offsets(partitions))
        ends = await self._ask(lambda consumer: consumer.end_offsets(partitions))
        known = wanted.offsets if wanted.topic in ("", topic.topic) else {}
        offsets = {}
        for each in partitions:
            last = known.get(each.partition, -1)
            if last >= ends[each]:
                raise SourceUnavailable(
                    f"partition {each.partition} of the topic {self._topic!r} ends at "
                    f"{ends[each] - 1}, before our position {last}: the broker has lost messages. Set a "
                    "position: `rota triggers rewind`"
                )
            if last >= 0 and firsts[each] > last + 1:
                log.warning("topic %s, partition %d: %d to %d were dropped before they were read",
                            self._topic, each.partition, last + 1, firsts[each] - 1)  # fmt: skip
            offsets[each.partition] = max(last, firsts[each] - 1)
        self._consumer.assign(partitions)
        for each in partitions:
            self._consumer.seek(each, offsets[each.partition] + 1)
        return Vector(topic.topic, offsets)

    async def _ask(self, call: Any) -> Any:
        try:
            async with asyncio.timeout(ANSWER):
                if self._consumer is None:
                    consumer = AIOKafkaConsumer(
                        enable_auto_commit=False, auto_offset_reset="none",
                        isolation_level="read_committed", **self._settings,
                    )  # fmt: skip
                    try:
                        await consumer.start()
                    except BaseException:
                        await stop_client(consumer)
                        raise
                    self._consumer = consumer
                return await call(self._consumer)
        except OffsetOutOfRangeError:
            raise
        except _FAULTS as error:
            await self.close()
            # aiokafka logs what it doesn't raise: a wrong password, say.
            why = (
                "; the log of aiokafka says why" if isinstance(error, KafkaConnectionError) else ""
            )
            raise SourceUnavailable(
                f"Kafka: {type(error).__name__} {error}{why}".rstrip()
            ) from error


def _is_new(topic: Topic, at: Vector) -> bool:
    """Whether there are partitions that a position doesn't have."""
    return any(number not in at.offsets for number in topic.partitions)


def _parse(position: str) -> Vector:
    try:
        return parse_vector(position)
    except ValueError:
        raise SourceUnavailable(
            f"{position!r} is no position of Kafka (PARTITION:OFFSET,PARTITION:OFFSET). `rota triggers "
            "rewind` takes one that `rota triggers show` or a job's header shows"
        ) from None
