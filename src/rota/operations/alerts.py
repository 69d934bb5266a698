"""Operations on alerts: list what needs attention, acknowledge and silence it.

Protocol. Alerts are computed from what is stored, each time; only what somebody has said of one is a row
(`rota.alert_mark`), written in one transaction with its audit record. Two who mark at the same time: the
last one's mark stays. Nothing has to be cleaned up when an alert ends: a mark covers what had happened
when it was made, or the time that it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from rota.core import alerts as core
from rota.core.time.interval import seconds_of
from rota.errors import ConfigError, NotFound
from rota.model import Alert
from rota.operations.base import Operations
from rota.store.alerts import AlertMark, AlertStore
from rota.store.changes import current_actor
from rota.store.dashboard import DashboardStore
from rota.store.maintenance import MaintenanceStore

_HOUR = timedelta(hours=1)
_LONGEST_SILENCE = 31 * 86_400
_MOST_KEY, _MOST_NOTE = 300, 500
_MOST_QUEUES = 8  # with an alert of their own


class Alerts(Operations):
    """`app.alerts`: what needs somebody's attention now."""

    async def list(self, *, active: bool = False) -> Sequence[Alert]:
        """List alerts, the problems first; with `active`, without those acknowledged or silenced."""
        found = await self._computed()
        marks = await (await self._store()).marks(self._namespace, [one.key for one in found])
        now = await (await self._rota.store()).now()
        shown = [core.marked(one, marks.get(one.key), now) for one in found]
        if any(one.active for one in shown):  # or nobody needs to know
            window = await MaintenanceStore(await self._database()).open(self._namespace)
            if window is not None:
                shown = [core.in_maintenance(one, window) for one in shown]
        shown.sort(key=lambda one: (not one.active, one.severity != "problem"))
        return [one for one in shown if one.active or not active]

    async def acknowledge(self, key: str, *, note: str = "") -> Alert:
        """Say that somebody has seen an alert. It is active again when it happens again."""
        return await self._mark("acknowledge", key, None, note)

    async def silence(self, key: str, time: str | float = "1h", *, note: str = "") -> Alert:
        """Silence an alert for a time, such as ``4h``, whatever happens meanwhile; 31 days at most."""
        seconds = seconds_of(time, "for")
        if not 1 <= seconds <= _LONGEST_SILENCE:
            raise ConfigError("for: must be from 1 second to 31 days, like 30m or 4h", field="for")
        return await self._mark("silence", key, seconds, note)

    async def restore(self, key: str) -> None:
        """Forget that an alert was acknowledged or silenced."""
        async with self._changing("restore", f"alert {key[:_MOST_KEY]}") as change:
            mark = (
                None if "\0" in key else await (await self._store()).restore(self._namespace, key)
            )
            if mark is None:
                raise NotFound(
                    f"alert {key!r} is neither acknowledged nor silenced", subject=key[:_MOST_KEY]
                )
            change.before = _record(mark)

    async def _mark(self, action: str, key: str, seconds: float | None, note: str) -> Alert:
        if len(note) > _MOST_NOTE or "\0" in note:
            raise ConfigError(f"note: must be at most {_MOST_NOTE} characters", field="note")
        if all(one.key != key for one in await self._computed()):
            raise NotFound(
                f"there is no alert {key[:_MOST_KEY]!r} now; `rota alerts` lists those there are",
                subject=key[:_MOST_KEY],
            )
        store, actor = await self._store(), current_actor().name
        async with self._changing(action, f"alert {key}") as change:
            before = (await store.marks(self._namespace, [key])).get(key)
            change.before = before and _record(before)
            if seconds is None:
                await store.acknowledge(self._namespace, key, actor, note)
            else:
                await store.silence(self._namespace, key, seconds, actor, note)
            change.after = _record((await store.marks(self._namespace, [key]))[key])
        return next((one for one in await self.list() if one.key == key), _ended(key))

    async def _computed(self) -> Sequence[Alert]:
        database = await self._database()
        stats = DashboardStore(database, self._namespace)
        now = await (await self._rota.store()).now()
        # One after the other: at the same time, each would take a connection from others.
        failed, latest = await stats.failures(now - _HOUR)
        queues, more_late = await stats.troubled_queues(core.LATE, _MOST_QUEUES)
        return [
            *core.of_nodes(await stats.troubled_nodes(core.RECENT), now),
            *core.of_shards(await self._rota.nodes.shards()),
            *core.of_schedules(await stats.set_aside()),
            *core.of_failures(failed, latest),
            *core.of_queues(queues, now, more_late),
            *core.of_events(await stats.events(now - _HOUR)),
        ]

    async def _store(self) -> AlertStore:
        return AlertStore(await self._database())


def _record(mark: AlertMark) -> dict[str, object]:
    return {
        "acknowledged_at": mark.acknowledged_at, "silenced_until": mark.silenced_until,
        "by": mark.actor, "note": mark.note,
    }  # fmt: skip


def _ended(key: str) -> Alert:
    return Alert(key=key, severity="warning", text="The alert has ended.", active=False)
