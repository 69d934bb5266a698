"""Operations on sinks: topics of brokers to which events go. What sends them is `rota.worker.outbox`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from rota.config import check_name
from rota.core.administration import SinkStatus
from rota.errors import ConfigError, NotFound
from rota.lib.addresses import Address, check_sasl, parse_address
from rota.operations.base import Operations
from rota.operations.triggers import PORTS, identity
from rota.operations.webhooks import KINDS
from rota.store.events import Position
from rota.store.rows import to_value

_OPTIONS = {
    "db": "the number of Redis's database",
    "maxlen": "about how many entries a Redis stream keeps",
    "sasl": "how Kafka is told the password",
    "vhost": "RabbitMQ's virtual host",
}
# What went well: recorded while a sink asks for it, and for sinks alone.
OUTCOMES = ("succeeded", "cancelled", "fired", "run_succeeded", "run_cancelled")
Listed: TypeAlias = "list[SinkStatus]"  # inside Sinks, `list` is its method
SinkStart: TypeAlias = Literal["new", "beginning"]


class SinkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A sink that code declares with `App.sink`."""

    name: str
    address: Address
    kinds: frozenset[str] = frozenset()
    queues: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()
    start: SinkStart = "new"

    @property
    def target(self) -> str:
        """Which topic it is, without credentials: another one has a position of its own."""
        return identity(self.address)

    @property
    def wants(self) -> frozenset[str]:
        """Which of its kinds have to be recorded for it."""
        return self.kinds.intersection(OUTCOMES)


def make_sink(
    target: str, name: str | None, kinds: Sequence[str], queues: Sequence[str],
    tasks: Sequence[str], start: SinkStart,
) -> SinkSpec:  # fmt: skip
    """Check what `App.sink` was given."""
    address = parse_address("target", target, PORTS, _OPTIONS)
    if not address.path:
        raise ConfigError(
            f"target {address.shown!r} names no topic: write {address.scheme}://host/TOPIC",
            field="target",
        )
    check_sasl("target", address)
    if not address.options.get("maxlen", "1").isdecimal():
        raise ConfigError("target: maxlen must be a number of entries", field="target")
    for field, given in (("kinds", kinds), ("queues", queues), ("tasks", tasks)):
        if isinstance(given, str):
            raise ConfigError(f"{field} must be a list of names, not one text", field=field)
    known = (*KINDS, *OUTCOMES)
    if unknown := sorted(set(kinds) - {*known}):
        raise ConfigError(
            f"kinds: unknown {unknown[0]!r}; known: {', '.join(known)}", field="kinds"
        )
    if start not in ("new", "beginning"):
        raise ConfigError(f"start must be 'new' or 'beginning', not {start!r}", field="start")
    return SinkSpec(
        name=check_name("name", name or address.path), address=address, kinds=frozenset(kinds),
        queues=frozenset(queues), tasks=frozenset(tasks), start=start,
    )  # fmt: skip


class Sinks(Operations):
    """`app.sinks`"""

    def __init__(self, rota: Any) -> None:
        super().__init__(rota)
        self.declared: dict[str, SinkSpec] = {}  # by this process's code

    async def list(self) -> list[SinkStatus]:
        """List the sinks of the namespace."""
        return await self._read(None)

    async def get(self, name: str) -> SinkStatus:
        if found := await self._read(name):
            return found[0]
        raise NotFound(f"there is no sink {name!r} in namespace {self._namespace!r}", subject=name)

    async def _read(self, name: str | None) -> Listed:
        rows = await (await self._database()).fetch("list_sinks", self._namespace, name)
        return [to_value(row, SinkStatus) for row in rows]

    async def pause(self, name: str) -> SinkStatus:
        """Send nothing until it is resumed. Events wait, for as long as events are kept."""
        return await self._change("pause", name, "pause_sink", True)

    async def resume(self, name: str) -> SinkStatus:
        """Go on where it was paused."""
        return await self._change("resume", name, "pause_sink", False)

    async def rewind(self, name: str, to: str | None = None) -> SinkStatus:
        """Send events again that come after a position.

        Args:
            name: the sink.
            to: a position, as `SinkStatus.position` shows them; none given: all events that are kept.
        """
        position = str(Position.parse(to)) if to is not None else str(Position())
        return await self._change("rewind", name, "rewind_sink", position)

    async def remove(self, name: str) -> SinkStatus:
        """Forget a sink and its position. While code declares it, it is made anew."""
        async with self._changing("remove", f"sink {name}") as change:
            change.before = before = await self.get(name)
            await (await self._database()).fetch("remove_sink", self._namespace, name)
        return before

    async def _change(self, action: str, name: str, query: str, value: Any) -> SinkStatus:
        async with self._changing(action, f"sink {name}") as change:
            change.before = await self.get(name)
            await (await self._database()).fetch(query, self._namespace, name, value)
            change.after = after = await self.get(name)
        return after
