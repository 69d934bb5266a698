"""Kafka: `kafka://host:9092`, `kafka+tls://user:password@one:9092,two:9092/prefix?sasl=SCRAM-SHA-512`.

    PREFIX.NAMESPACE.calls      a topic for all calls; the group `PREFIX.NAMESPACE.relays` shares its
                                partitions
    PREFIX.NAMESPACE.answers    a topic for all answers. Those to a worker are in one partition, under
                                its id as the key; it reads that partition, and passes over other keys

Kafka has no acknowledgement of a message: a group commits an offset, before which all is done. Calls are
answered in any order. So an offset is committed when all calls before it are settled, and a relay that
dies leaves calls that were answered behind one that was not: they are taken again, which calls can
bear. A call that isn't settled within a minute holds up nothing: its worker has sent it again. One whose
answer can't be sent counts as settled, for the same reason.

Protocol. Calls go to the partitions in turn, so that a call that is sent again meets another partition:
those of a relay that was killed have nobody for six seconds, until Kafka notices. When partitions change
hands the offsets are committed, and what a relay still has in its hands is taken by the other as well. A
worker notes where its partition ends before it sends its first call, and reads from there on. From then
on it goes by its own offset; it commits nothing, and Kafka knows nothing of it.

A topic that is missing is made. Every two seconds the topics' ids and partitions are looked at: when one
was deleted, made anew, or has got more partitions, everything is opened anew, and a new topic is read
from its beginning. Nothing depends on what Kafka keeps; it is told to drop all of it after ten minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Mapping, Sequence
from itertools import count
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from rota.errors import ConfigError
from rota.lib.addresses import Address
from rota.lib.ids import unit
from rota.runtime.dispatch import BrokerUnavailable, Delivery

try:
    from aiokafka import (
        AIOKafkaConsumer,
        AIOKafkaProducer,
        ConsumerRebalanceListener,
        TopicPartition,
    )
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
    from aiokafka.errors import (
        ConsumerStoppedError,
        KafkaError,
        MessageSizeTooLargeError,
        TopicAlreadyExistsError,
        for_code,
    )

    from rota.lib.kafka import (
        STOP,
        Topic,
        ask_topic,
        begin_stop,
        close_lines,
        connection_settings,
        stop_client,
    )
except ModuleNotFoundError as missing:  # pragma: no cover - an installation without the extra
    raise ConfigError("dispatch by Kafka needs its client: pip install 'rota[kafka]'") from missing

log = logging.getLogger("rota.dispatch")
T = TypeVar("T")

_PARTITIONS = 16  # of a topic that is made here; one that is there may have others
_REPLICAS = 3  # or as many as there are brokers
# An answer has up to 4 MB of payloads, and a report up to 1 MB of results and one more.
_LEAST_BYTES = 6_000_000
_MOST_BYTES = 8_000_000
_TOPIC_CONFIGS = {
    "cleanup.policy": "delete", "retention.ms": "600000", "segment.ms": "600000",
    "max.message.bytes": str(_MOST_BYTES), "min.insync.replicas": "1",
}  # fmt: skip
_SESSION = 6_000  # milliseconds without a sign of a relay: the least that brokers allow by default
_ABANDONED = 60.0
_LOOK_EVERY = 2.0
_AWAY = 30.0
_MARGIN = 0.5
_COMMIT_EVERY = 0.05
_COMMIT = 2.0
_ANSWER = 5.0
# AssertionError: what aiokafka raises for a partition that it doesn't know of.
_FAULTS = (
    KafkaError, ConsumerStoppedError, OSError, TimeoutError, NotImplementedError, AssertionError,
)  # fmt: skip


class Progress:
    """How far a relay is in one partition."""

    def __init__(self) -> None:
        self._next = 0
        self._open: dict[int, float] = {}  # taken and not settled, and when; in their order
        self.committed = -1

    def take(self, offset: int, now: float) -> None:
        if offset < self._next:  # the topic is another one
            self._open.clear()
        self._open[offset] = now
        self._next = offset + 1

    def settle(self, offset: int) -> None:
        self._open.pop(offset, None)

    def done(self, now: float) -> int:
        """Return the offset before which all is done, or has been given up."""
        while self._open:
            first, taken = next(iter(self._open.items()))
            if now - taken < _ABANDONED:
                return first
            del self._open[first]
        return self._next


class _Receipt(NamedTuple):
    progress: Progress
    offset: int


class _Place(NamedTuple):
    """Where the answers to a worker are read next."""

    topic: str
    partition: int
    offset: int


class KafkaBroker:
    def __init__(self, address: Address, prefix: str, namespace: str) -> None:
        base = f"{_token(prefix)}.{_token(namespace)}"
        self._calls, self._answers, self._group = (
            f"{base}.calls",
            f"{base}.answers",
            f"{base}.relays",
        )
        self._settings = connection_settings("dispatch", address)
        self._turns = count(int(unit() * 1_000_000))
        self._opening = asyncio.Lock()
        self._producer: Any = None
        self._topics: Mapping[str, Topic] = {}
        self._look_at = 0.0
        self._taking: _Taking | None = None  # of a relay
        self._listening: dict[UUID, Any] = {}  # consumers of workers
        self._places: dict[UUID, _Place] = {}
        self._deaf: set[UUID] = set()  # workers whose place isn't known yet
        self._all_hear = asyncio.Event()
        self._all_hear.set()
        self._starting: dict[Any, asyncio.Task[None]] = {}
        self._stopping: dict[asyncio.Task[None], Any] = {}  # with the clients that they stop

    # -- of relays

    async def take(self, most: int, wait: float) -> Sequence[Delivery]:
        await self._looked()
        if self._taking is None:
            taking, producer = _Taking(self._consumer(self._group), self._calls), self._producer
            try:
                await self._ask(self._start(taking.consumer))
                self._check_same(producer)
            except BaseException:
                self._stop_later(taking.stop())
                raise
            taking.begin()
            self._taking = taking
        taking = self._taking
        return taking.note(await self._records(taking.consumer, most, wait))

    async def reply(
        self, answers: Sequence[tuple[UUID, bytes]], settled: Sequence[Delivery]
    ) -> None:
        try:
            if answers:
                producer = await self._connected()
                partitions = self._topics[self._answers].partitions
                await self._ask(_send(producer, self._answers, [
                    (_partition(worker, partitions), worker.hex.encode(), body)
                    for worker, body in answers
                ]))  # fmt: skip
        finally:
            for delivery in settled:
                receipt: _Receipt = delivery.receipt
                receipt.progress.settle(receipt.offset)
            if self._taking is not None:
                self._taking.settled.set()

    # -- of workers

    async def call(self, bodies: Sequence[bytes]) -> None:
        producer = await self._connected()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER):
                await self._all_hear.wait()
        partitions = self._topics[self._calls].partitions
        await self._ask(_send(producer, self._calls, [
            (partitions[next(self._turns) % len(partitions)], None, body) for body in bodies
        ]))  # fmt: skip

    async def answers(self, worker: UUID, wait: float) -> Sequence[bytes]:
        if worker not in self._places:
            self._deaf.add(worker)
            self._all_hear.clear()
        try:
            await self._looked()
            if worker not in self._listening:
                await self._listen(worker)
        finally:
            self._hears(worker)
        consumer, place, key = self._listening[worker], self._places[worker], worker.hex.encode()
        found = await self._records(consumer, 1000, wait)
        records = [record for part in found.values() for record in part]
        if records and self._places.get(worker) == place:
            self._places[worker] = place._replace(offset=records[-1].offset + 1)
        return [record.value or b"" for record in records if record.key == key]

    async def _listen(self, worker: UUID) -> None:
        topic = self._topics[self._answers]
        partition = _partition(worker, topic.partitions)
        at = TopicPartition(self._answers, partition)
        consumer, producer = self._consumer(), self._producer
        try:
            await self._ask(self._start(consumer))
            consumer.assign([at])
            before = self._places.get(worker)
            if before is not None and before[:2] == (topic.topic, partition):
                offset = before.offset
            elif before is not None and before.topic != topic.topic:
                offset = 0  # it was made anew: all that is in it has come since
            else:
                offset = (await self._ask(consumer.end_offsets([at])))[at]
            consumer.seek(at, offset)
            self._check_same(producer)
        except BaseException:
            self._stop_later(consumer)
            raise
        self._listening[worker] = consumer
        self._places[worker] = _Place(topic.topic, partition, offset)

    def _hears(self, worker: UUID) -> None:
        self._deaf.discard(worker)
        if not self._deaf:
            self._all_hear.set()

    async def leave(self, worker: UUID) -> None:
        self._places.pop(worker, None)
        if (consumer := self._listening.pop(worker, None)) is not None:
            await stop_client(consumer)

    async def close(self) -> None:
        async with self._opening:
            if self._taking is not None:
                await self._taking.commit()
            self._drop()
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=STOP)
        for task, client in list(self._stopping.items()):  # those whose broker doesn't answer
            task.cancel()
            await asyncio.wait({task}, timeout=STOP)
            await close_lines(client)

    # -- the connections

    def _consumer(self, group: str | None = None) -> Any:
        return AIOKafkaConsumer(
            group_id=group, enable_auto_commit=False, auto_offset_reset="earliest",
            session_timeout_ms=_SESSION, heartbeat_interval_ms=500, max_poll_records=1000,
            fetch_max_bytes=2 * _MOST_BYTES, **self._settings,
        )  # fmt: skip

    async def _connected(self) -> Any:
        if self._producer is None:
            await self._looked()
        return self._producer

    async def _looked(self) -> None:
        """Connect, and look at the topics if that was a while ago."""
        async with self._opening:
            if self._producer is not None and monotonic() < self._look_at:
                return
            try:
                async with asyncio.timeout(_ANSWER):
                    await self._look()
            except _FAULTS as error:
                if monotonic() - self._look_at > _AWAY:
                    self._drop()  # the brokers may have moved
                raise _unavailable(error) from error

    async def _look(self) -> None:
        producer = self._producer
        if producer is not None:
            seen = {name: await ask_topic(producer.client, name) for name in self._topics}
            if seen == self._topics:
                self._look_at = monotonic() + _LOOK_EVERY
                return
            log.info("the topics of Kafka have changed, connecting anew")
            self._drop()
        producer = AIOKafkaProducer(
            acks=1, max_request_size=_MOST_BYTES, max_batch_size=1_000_000, **self._settings
        )
        try:
            await self._start(producer)
            topics = {
                name: await self._find_or_make(producer.client, name)
                for name in (self._calls, self._answers)
            }
        except BaseException:
            self._stop_later(producer)
            raise
        self._producer, self._topics = producer, topics
        self._look_at = monotonic() + _LOOK_EVERY

    async def _find_or_make(self, client: Any, name: str) -> Topic:
        admin = AIOKafkaAdminClient(**self._settings)
        admin._client = client
        if await ask_topic(client, name) is None:
            await _make(admin, name)
        else:
            await _check(admin, name)
        while True:
            topic = await ask_topic(client, name)
            if topic is not None and topic.partitions:
                return topic
            await asyncio.sleep(0.05)  # other brokers hear of it a moment later

    async def _start(self, client: Any) -> None:
        starting: asyncio.Task[None] = asyncio.create_task(client.start())
        self._starting[client] = starting
        try:
            await asyncio.shield(starting)
        finally:
            if starting.done():
                self._starting.pop(client, None)

    def _drop(self) -> None:
        """Give up all clients, but not what workers know of their place. They are stopped meanwhile."""
        producer, self._producer = self._producer, None
        taking, self._taking = self._taking, None
        listening, self._listening = self._listening, {}
        if taking is not None:
            self._stop_later(taking.stop())
        for client in (*listening.values(), producer):
            if client is not None:
                self._stop_later(client)

    def _stop_later(self, client: Any) -> None:
        stopping = begin_stop(client, self._starting.pop(client, None))
        self._stopping[stopping] = client
        stopping.add_done_callback(self._stopping.pop)

    def _check_same(self, producer: Any) -> None:
        if self._producer is not producer:
            raise BrokerUnavailable("Kafka: the topics have changed, connecting anew")

    async def _ask(self, call: Awaitable[T]) -> T:
        producer = self._producer
        try:
            async with asyncio.timeout(_ANSWER):
                return await call
        except _FAULTS as error:
            raise self._fault(error, producer) from error

    async def _records(self, consumer: Any, most: int, wait: float) -> Mapping[Any, Any]:
        """Return what has arrived; nothing while partitions change hands."""
        producer = self._producer
        try:
            async with asyncio.timeout(wait + _MARGIN):
                found: Mapping[Any, Any] = await consumer.getmany(
                    timeout_ms=int(wait * 1000), max_records=most
                )
                return found
        except TimeoutError:
            return {}
        except _FAULTS as error:
            raise self._fault(error, producer) from error

    def _fault(self, error: BaseException, producer: Any) -> BrokerUnavailable:
        """The clients get over a broker that was away. Whatever else it is, new ones get over it."""
        passes = (
            isinstance(error, OSError | TimeoutError | MessageSizeTooLargeError)
            or getattr(error, "retriable", False)
        )  # fmt: skip
        if not passes and self._producer is producer:
            self._drop()
        return _unavailable(error)


class _Taking(ConsumerRebalanceListener):  # type: ignore[misc]
    """The partitions that a relay takes, and how far it is in them."""

    def __init__(self, consumer: Any, topic: str) -> None:
        self.consumer = consumer
        self._topic = topic
        self._progress: dict[Any, Progress] = {}
        self.settled = asyncio.Event()
        self._committing: asyncio.Task[None] | None = None
        self._stopped = False

    def begin(self) -> None:
        # Not before it has started: that would wait until the group is complete.
        self.consumer.subscribe([self._topic], listener=self)
        self._committing = asyncio.create_task(self._commit_always())

    def note(self, found: Mapping[Any, Any]) -> Sequence[Delivery]:
        """Note what was taken."""
        now = monotonic()
        deliveries = []
        for partition, records in found.items():
            progress = self._progress.setdefault(partition, Progress())
            for record in records:
                progress.take(record.offset, now)
                deliveries.append(Delivery(record.value or b"", _Receipt(progress, record.offset)))
        return deliveries

    async def on_partitions_revoked(self, revoked: Any) -> None:
        await self.commit()
        self._progress.clear()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._progress.clear()  # it begins at what was committed

    async def _commit_always(self) -> None:
        while True:
            await self.settled.wait()
            self.settled.clear()
            await self.commit()
            await asyncio.sleep(_COMMIT_EVERY)

    async def commit(self) -> None:
        if self._stopped:
            return
        now = monotonic()
        done = {at: progress.done(now) for at, progress in self._progress.items()}
        offsets = {at: done[at] for at in done if done[at] != self._progress[at].committed}
        if not offsets:
            return
        progresses = dict(self._progress)
        try:
            async with asyncio.timeout(_COMMIT):
                await self.consumer.commit(offsets)
        except _FAULTS as error:  # they are taken again
            log.debug("Kafka: offsets were not committed: %s", error)
            return
        for at, offset in offsets.items():
            progresses[at].committed = offset

    def stop(self) -> Any:
        """Commit no more, and return the client that is to be stopped."""
        self._stopped = True
        if self._committing is not None:
            self._committing.cancel()
        return self.consumer


async def _send(
    producer: Any, topic: str, messages: Sequence[tuple[int, bytes | None, bytes]]
) -> None:
    """Send messages to partitions under keys. One that can't be sent doesn't hold up the others."""
    sent: list[Any] = []
    faults: list[BaseException] = []
    for partition, key, body in messages:
        try:
            sent.append(await producer.send(topic, body, key=key, partition=partition))
        except KafkaError as error:
            faults.append(error)
    answers = await asyncio.gather(*sent, return_exceptions=True)
    faults += [answer for answer in answers if isinstance(answer, BaseException)]
    if faults:
        raise faults[0]


async def _make(admin: Any, name: str) -> None:
    replicas = min(_REPLICAS, len(admin._client.cluster.brokers()))
    topic = NewTopic(name, _PARTITIONS, replicas, topic_configs=_TOPIC_CONFIGS)
    answer = await admin.create_topics([topic], timeout_ms=int(_ANSWER * 1000))
    _, code, why = answer.topic_errors[0]
    if code not in (0, TopicAlreadyExistsError.errno):
        raise BrokerUnavailable(
            f"Kafka: the topic {name} is not there, and can't be made "
            f"({for_code(code).__name__} {why or ''}".rstrip()
            + "): make it, as docs/guide/dispatch.md says"
        )


async def _check(admin: Any, name: str) -> None:
    """See that large messages fit. A topic that brokers made by themselves has too narrow a limit."""
    limit = await _limit(admin, name)
    if limit is None or limit >= _LEAST_BYTES:
        return
    resource = ConfigResource(ConfigResourceType.TOPIC, name, configs=_TOPIC_CONFIGS)
    (answer,) = await admin.alter_configs([resource])
    code, why, *_ = answer.resources[0]
    if code:
        raise BrokerUnavailable(
            f"Kafka: the topic {name} takes messages of {limit:,} bytes, and calls and answers may "
            f"have {_LEAST_BYTES:,}. Set its max.message.bytes to {_MOST_BYTES} (it can't be set from "
            f"here: {for_code(code).__name__} {why or ''}".rstrip()
            + ")"
        )


async def _limit(admin: Any, name: str) -> int | None:
    """Return the length of messages that a topic takes; None: we may not know."""
    resource = ConfigResource(ConfigResourceType.TOPIC, name, configs={"max.message.bytes": ""})
    (answer,) = await admin.describe_configs([resource])
    code, _, _, _, entries = answer.resources[0]
    if code:
        return None
    return next((int(entry[1]) for entry in entries if entry[0] == "max.message.bytes"), None)


def _partition(worker: UUID, partitions: Sequence[int]) -> int:
    """Return the partition of the answers to a worker: the last four bytes of its id choose it."""
    return partitions[int.from_bytes(worker.bytes[-4:], "big") % len(partitions)]


def _unavailable(error: BaseException) -> BrokerUnavailable:
    return BrokerUnavailable(f"Kafka: {type(error).__name__} {error}".rstrip())


def _token(name: str) -> str:
    """Write a name as one part of a topic's name, no two names alike."""
    return "".join(
        each if (each.isascii() and each.isalnum()) or each == "-" else f"_{ord(each):02x}"
        for each in name
    )
