"""Operations on triggers: messages of a broker that start jobs. What reads them is
`rota.worker.triggers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from rota.config import check_name
from rota.core.administration import TriggerStatus
from rota.errors import ConfigError, NotFound
from rota.lib.addresses import Address, parse_address
from rota.operations.base import Operations
from rota.store.rows import to_value

PORTS = {"redis": 6379, "nats": 4222}
_OPTIONS = {
    "db": "the number of Redis's database",
    "field": "the field of an entry that is the message",
}
Found: TypeAlias = "list[TriggerStatus]"  # inside Triggers, `list` is its method
Start: TypeAlias = Literal["new", "beginning"]
_LONGEST_POSITION = 200


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a broker, as filters and mappings see it."""

    position: str  # where it is in its stream
    body: bytes
    headers: Mapping[str, str] = {}
    topic: str = ""

    def json(self) -> Any:
        """Return the body, which must be JSON."""
        return msgspec.json.decode(self.body)


class TriggerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger that code declares with `App.on`."""

    name: str
    task: str
    address: Address
    where: Callable[[Message], bool] | None = None
    arguments: Callable[[Message], Mapping[str, Any]] | None = None
    start: Start = "new"
    batch: int = 500


def make_trigger(source: str, task: str, name: str | None, **settings: Any) -> TriggerSpec:
    """Check what `App.on` was given."""
    address = parse_address("source", source, PORTS, _OPTIONS)
    if not address.path:
        raise ConfigError(
            f"source {address.shown!r} names no stream: write {address.scheme}://host/STREAM",
            field="source",
        )
    spec = TriggerSpec(
        name=check_name("name", name or task), task=task, address=address, **settings
    )
    if spec.start not in ("new", "beginning"):
        raise ConfigError(f"start must be 'new' or 'beginning', not {spec.start!r}", field="start")
    if not 1 <= spec.batch <= 5_000:
        raise ConfigError(f"batch must be from 1 to 5000, not {spec.batch}", field="batch")
    for field in ("where", "arguments"):
        if (given := getattr(spec, field)) is not None and not callable(given):
            raise ConfigError(f"{field} must be a function of a Message", field=field)
    return spec


class Triggers(Operations):
    """`app.triggers`"""

    def __init__(self, rota: Any) -> None:
        super().__init__(rota)
        self.declared: dict[str, TriggerSpec] = {}  # by this process's code

    async def list(self) -> list[TriggerStatus]:
        """List the triggers of the namespace."""
        return await self._read(None)

    async def get(self, name: str) -> TriggerStatus:
        if found := await self._read(name):
            return found[0]
        raise NotFound(
            f"there is no trigger {name!r} in namespace {self._namespace!r}", subject=name
        )

    async def _read(self, name: str | None) -> Found:
        rows = await (await self._database()).fetch("list_triggers", self._namespace, name)
        return [to_value(row, TriggerStatus) for row in rows]

    async def pause(self, name: str) -> TriggerStatus:
        """Start no jobs until it is resumed. Its messages wait in the broker."""
        return await self._change("pause", name, "pause_trigger", True)

    async def resume(self, name: str) -> TriggerStatus:
        """Go on where it was paused."""
        return await self._change("resume", name, "pause_trigger", False)

    async def rewind(self, name: str, to: str | None = None) -> TriggerStatus:
        """Go on after another position: messages after it become jobs, also those that did before.

        Args:
            name: the trigger.
            to: the position of the last message that is left out, as `TriggerStatus.position` shows
                them; none given: the beginning of the stream.
        """
        if to is not None and not 1 <= len(to) <= _LONGEST_POSITION:
            raise ConfigError(
                f"to must have 1 to {_LONGEST_POSITION} characters, as positions have", field="to"
            )
        return await self._change("rewind", name, "rewind_trigger", to)

    async def remove(self, name: str) -> TriggerStatus:
        """Forget a trigger and its position. While code declares it, it is made anew."""
        async with self._changing("remove", f"trigger {name}") as change:
            change.before = before = await self.get(name)
            await (await self._database()).fetch("remove_trigger", self._namespace, name)
        return before

    async def _change(self, action: str, name: str, query: str, value: Any) -> TriggerStatus:
        async with self._changing(action, f"trigger {name}") as change:
            change.before = await self.get(name)
            await (await self._database()).fetch(query, self._namespace, name, value)
            change.after = after = await self.get(name)
        return after
