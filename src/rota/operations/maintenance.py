"""Operations on maintenance windows: times in which people are not told of events.

Protocol. A window is a row, written in one transaction with its audit record. Events are stored in a
window as ever, and go to webhooks of the format json, which are programs; for webhooks that tell people
no delivery is made (`rota.hand_over_events`), and none is made up for when the window ends. A window
begins and ends by the database's clock: nothing has to run for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rota.config import check_name
from rota.core.time.interval import seconds_of
from rota.errors import ConfigError, NotFound
from rota.model import MaintenanceWindow
from rota.operations.base import Operations
from rota.operations.webhooks import KINDS
from rota.store.changes import current_actor
from rota.store.maintenance import MaintenanceStore

_LONGEST = 31 * 86_400
_MOST_NOTE = 500


class Maintenance(Operations):
    """`app.maintenance`"""

    async def list(self) -> Sequence[MaintenanceWindow]:
        """List maintenance windows: open, planned, and those that ended within a day."""
        return await (await self._store()).list(self._namespace)

    async def get(self, name: str) -> MaintenanceWindow:
        """Return one window."""
        for window in await (await self._store()).list(self._namespace, name):
            return window
        raise NotFound(
            f"there is no maintenance window {name[:100]!r}; `rota maintenance` lists them",
            subject=name[:100],
        )

    async def put(
        self, name: str, *, start: datetime | None = None, time: str | float = "1h",
        kinds: Sequence[str] = (), note: str = "",
    ) -> MaintenanceWindow:  # fmt: skip
        """Define a window, or change it: people are told of no events until it has ended.

        Args:
            name: of the window.
            start: when it begins, with its zone; now by default.
            time: how long it lasts, such as ``30m`` or ``4h``; 31 days at most.
            kinds: the kinds of events that it covers. All by default; then alerts are silenced, too.
            note: for others.
        """
        check_name("window", name)
        seconds = seconds_of(time, "for")
        if not 1 <= seconds <= _LONGEST:
            raise ConfigError("for: must be from 1 second to 31 days, like 30m or 4h", field="for")
        if start is not None and start.tzinfo is None:
            raise ConfigError("start: must have a time zone, like 2030-05-01T03:00Z", field="start")
        if start is not None and not 2000 <= start.year < 9000:  # its end must be a time as well
            raise ConfigError("start: must be between the years 2000 and 9000", field="start")
        if isinstance(kinds, str) or any(kind not in KINDS for kind in kinds):
            raise ConfigError(f"kinds: each must be one of: {', '.join(KINDS)}", field="kinds")
        if len(note) > _MOST_NOTE or "\0" in note:
            raise ConfigError(f"note: must be at most {_MOST_NOTE} characters", field="note")
        store = await self._store()
        async with self._changing("put", f"maintenance {name}") as change:
            change.before = next(iter(await store.list(self._namespace, name)), None)
            await store.put(
                self._namespace, name, start, seconds, kinds, note, current_actor().name
            )
            found = await store.list(self._namespace, name)
            if not found:
                raise ConfigError("start: the window would have ended long ago", field="start")
            change.after = found[0]
        return found[0]

    async def delete(self, name: str) -> MaintenanceWindow:
        """End a window now, or take back one that is planned. Returns it as it was."""
        async with self._changing("delete", f"maintenance {name[:100]}") as change:
            change.before = before = await self.get(name)
            await (await self._store()).delete(self._namespace, name)
        return before

    async def _store(self) -> MaintenanceStore:
        return MaintenanceStore(await self._database())
