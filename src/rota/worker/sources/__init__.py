"""Reads messages of brokers, from a position of ours. Each broker's module is imported when it is
used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rota.errors import StoreUnavailable
from rota.lib.addresses import Address
from rota.operations.triggers import Message


class SourceUnavailable(StoreUnavailable):
    """Raised when a broker doesn't answer, or can't give what is asked of it."""


class Source(Protocol):
    """A stream of messages that keeps them after they were read, and numbers them.

    A position is text, which only the source understands. None: before the first message.
    """

    async def end(self) -> str | None:
        """Return the position of the last message that is there now."""
        ...

    async def read(self, position: str | None, limit: int, wait: float) -> Sequence[Message]:
        """Return up to `limit` messages after a position; none if there are none within `wait` seconds.

        Raises `SourceUnavailable` if messages after the position can't be told from those before it.
        """
        ...

    async def lag(self, position: str | None) -> int | None:
        """Return about how many messages there are after a position; None: the broker doesn't say."""
        ...

    async def close(self) -> None: ...


def open_source(address: Address) -> Source:
    if address.scheme == "redis":
        from rota.worker.sources.redis import RedisSource

        return RedisSource(address)
    from rota.worker.sources.nats import NatsSource

    return NatsSource(address)
