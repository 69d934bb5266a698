"""Real brokers for tests of triggers to write to, and nodes that read them by hand."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from proof.services import Kafka, Nats, Process, RabbitMQ, Redis
from proof.waiting import eventually
from rota.core.administration import TriggerStatus
from rota.store.database import Database
from rota.testing import Sandbox
from rota.worker.sources import SourceUnavailable
from rota.worker.triggers import TriggerReader
from tests.support.fake_node import FakeNode

_NO_STORE = 10049  # NATS: error creating store for stream


class Broker:
    """A stream of a real broker, for tests to write to."""

    def __init__(self, server: Process) -> None:
        self.server = server
        self.url = f"{server.url}/orders"

    async def open(self) -> None: ...

    async def send(self, *bodies: Any) -> None:
        raise NotImplementedError

    async def close(self) -> None: ...


def _bytes(body: Any) -> bytes:
    return body if isinstance(body, bytes) else json.dumps(body).encode()


class RedisBroker(Broker):
    async def open(self) -> None:
        from redis.asyncio import Redis as Client

        self._client = Client(port=self.server.port)
        await self._client.flushall()

    async def send(self, *bodies: Any) -> None:
        async with self._client.pipeline(transaction=False) as pipe:
            for body in bodies:
                pipe.xadd("orders", {"body": _bytes(body)})
            await pipe.execute()

    async def close(self) -> None:
        await self._client.aclose()


class NatsBroker(Broker):
    async def open(self) -> None:
        import nats

        self._line = await nats.connect(self.server.url)
        self._stream = self._line.jetstream()
        for name in await self._stream.streams_info():
            await self._stream.delete_stream(name.config.name)
        # The files of the one before are removed after the answer.
        await eventually(self._add_stream)

    async def _add_stream(self) -> bool:
        from nats.js.errors import ServerError

        try:
            await self._stream.add_stream(name="orders", subjects=["orders.>"])
        except ServerError as error:
            if error.err_code != _NO_STORE:
                raise
            return False
        return True

    async def send(self, *bodies: Any) -> None:
        for start in range(0, len(bodies), 200):
            await asyncio.gather(
                *(
                    self._stream.publish("orders.new", _bytes(b))
                    for b in bodies[start : start + 200]
                )
            )

    async def close(self) -> None:
        await self._line.close()


class KafkaBroker(Broker):
    async def open(self) -> None:
        from aiokafka import AIOKafkaProducer
        from aiokafka.admin import AIOKafkaAdminClient

        self.admin = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{self.server.port}")
        await self.admin.start()
        if "orders" in await self.admin.list_topics():
            await self.admin.delete_topics(["orders"])
        await eventually(self._created, what="the topic")
        self._producer = AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{self.server.port}")
        await self._producer.start()

    async def _created(self) -> bool:
        from aiokafka.admin import NewTopic

        answer = await self.admin.create_topics([NewTopic("orders", 3, 1)])
        return answer.topic_errors[0][1] == 0  # not while the last one is being deleted

    async def send(self, *bodies: Any) -> None:
        # Of one key, and so in one partition: a rewind to a message's position is about its partition.
        sent = [await self._producer.send("orders", _bytes(b), key=b"all") for b in bodies]
        await self._producer.flush()
        for each in sent:
            await each

    async def close(self) -> None:
        await self._producer.stop()
        await self.admin.close()


class RabbitBroker(Broker):
    async def open(self) -> None:
        import aio_pika

        self.line = await aio_pika.connect(f"amqp://127.0.0.1:{self.server.port}/")
        self.channel = await self.line.channel()
        await self.channel.queue_delete("orders")
        await self.channel.declare_queue(
            "orders", durable=True, arguments={"x-queue-type": "stream"}
        )

    async def send(self, *bodies: Any) -> None:
        from aio_pika import Message

        for start in range(0, len(bodies), 200):
            await asyncio.gather(
                *(
                    self.channel.default_exchange.publish(Message(_bytes(b)), routing_key="orders")
                    for b in bodies[start : start + 200]
                )
            )

    async def close(self) -> None:
        await self.line.close()


KINDS = {
    "redis": (Redis, RedisBroker), "nats": (Nats, NatsBroker), "kafka": (Kafka, KafkaBroker),
    "rabbitmq": (RabbitMQ, RabbitBroker),
}  # fmt: skip


class Beat:
    """As a heartbeat has it: the node's id."""

    def __init__(self, node: FakeNode) -> None:
        self.node_id = node.id


async def reader(sandbox: Sandbox, hot: Database, **settings: Any) -> TriggerReader:
    """A node that reads the trigger `take`, by hand."""
    node = await FakeNode(hot, sandbox.app.settings).register(roles=["worker"])
    return TriggerReader(sandbox.app, hot, Beat(node), sandbox.app.triggers.declared["take"])


def declare(sandbox: Sandbox, broker: Broker, **settings: Any) -> None:
    async def take(order: int, amount: float = 0.0) -> int:
        return order

    sandbox.app.on(broker.url, **settings)(take)


async def ticks(reader: TriggerReader, jobs: int, name: str = "take") -> TriggerStatus:
    """Let it read until so many messages became something."""

    async def enough() -> TriggerStatus | None:
        with contextlib.suppress(SourceUnavailable):  # which is tried again, as by a ticker
            await reader.tick()
        found = await reader._app.triggers.get(name)
        return found if found.jobs + found.skipped + found.dead >= jobs else None

    found = await eventually(enough, what=f"{jobs} messages")
    assert found is not None
    return found


async def read_again(reader: TriggerReader, times: int) -> None:
    for _ in range(times):
        await reader.tick()
