"""Reads messages of brokers, from a position of ours. Each broker's module is imported when it is
used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rota.errors import StoreUnavailable
from rota.operations.triggers import Message, TriggerSpec
from rota.store.database import Database


class SourceUnavailable(StoreUnavailable):
    """Raised when a broker doesn't answer, or can't give what is asked of it."""


class Read(msgspec.Struct, frozen=True):
    """Messages, and the position after them. It may have moved without a message: past some that a
    transaction took back, say.
    """

    messages: Sequence[Message]
    position: str | None


class Source(Protocol):
    """A stream of messages that keeps them after they were read, and numbers them.

    A position is text, which only the source understands. None: before the first message.
    """

    async def end(self) -> str | None:
        """Return the position of the last message that is there now."""
        ...

    async def read(self, position: str | None, limit: int, wait: float) -> Read:
        """Read up to `limit` messages after a position; none if there are none within `wait` seconds.

        Raises `SourceUnavailable` if messages after the position can't be told from those before it.
        """
        ...

    async def lag(self, position: str | None) -> int | None:
        """Return about how many messages there are after a position; None: the broker doesn't say."""
        ...

    async def close(self) -> None: ...


def open_source(spec: TriggerSpec, database: Database, namespace: str) -> Source:
    address = spec.address
    if address.scheme == "http":
        from rota.worker.sources.inbox import InboxSource

        return InboxSource(database, namespace, spec)
    if address.scheme == "redis":
        from rota.worker.sources.redis import RedisSource

        return RedisSource(address)
    if address.scheme == "kafka":
        from rota.worker.sources.kafka import KafkaSource

        return KafkaSource(address)
    if address.scheme == "amqp":
        from rota.worker.sources.rabbitmq import RabbitSource

        return RabbitSource(address)
    from rota.worker.sources.nats import NatsSource

    return NatsSource(address)
