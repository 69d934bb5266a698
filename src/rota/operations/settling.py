"""Settles occurrences that an update finds undecided. (`rota.operations.deleting`: those of a deletion.)

An occurrence belongs to the version of its schedule that was in force at its moment: that version's
rule says that it exists, and that version's catch-up policy whether it runs. An update therefore
decides, in its own transaction and by the old version, everything that was due until now, also what
waits for its spread. Two kinds of occurrences stay undecided: those that a pause holds back for the
catch-up after it, and those beyond `_MANY` (a transaction has to end). For them the row's
`undecided_version` names the oldest version with such occurrences, and the cursor stays before them. The
firer works them off by that version, up to the moment at which the next one came into force, and runs
them with the task and the payload of the newest version.

A version that can't be read any more can't be settled. An update then goes on without it; the new
version's record says from when on nothing is known, and why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import msgspec

from rota.core.time.calendars import NamedCalendar
from rota.core.time.plan import Outlook, Plan
from rota.core.time.schedule import compile_schedule
from rota.core.time.stored import decode_spec
from rota.lib.computing import Compute, Spend, compute_here
from rota.operations.firing import Compiled, plan_row, to_advance, to_entries
from rota.store.driver_errors import blames_the_data
from rota.store.schedules import Advance, Entry, ScheduleStore, Unsettled

_MANY = 100_000  # occurrences that one transaction decides, and jobs that it skips
BATCH = 10_000
_LATEST_OFFSET = timedelta(days=2)  # more than spread and jitter together


class Stretch(msgspec.Struct):
    """A version, and the last moment that it decides about (None: it is the one in force)."""

    version: int
    ends: datetime | None
    compiled: Compiled | None
    problem: str | None = None


class Settled(msgspec.Struct, frozen=True):
    """The cursor after settling, and the first version that still has undecided occurrences."""

    cursor: datetime
    undecided_version: int | None
    unsettled: Unsettled | None


class ScheduleTransaction:
    """A transaction that changes schedules.

    It decides about `_MANY` occurrences at most, however many schedules it changes: it has to end.
    """

    def __init__(
        self, store: ScheduleStore, connection: Any, compute: Compute = compute_here
    ) -> None:
        self.store = store
        self.connection = connection
        self.compute = compute
        self.left = _MANY

    async def fire(self, entries: Sequence[Entry], advances: Sequence[Advance]) -> None:
        """Write rows of the ledger and cursors, behind a savepoint."""
        async with self.connection.transaction():
            await self.store.fire(self.connection, entries, advances)
        self.spend(len(entries))

    def spend(self, count: int) -> None:
        self.left = max(0, self.left - count)

    async def stretches(
        self, row: Any, calendars: Mapping[str, NamedCalendar], ends: datetime | None
    ) -> list[Stretch]:
        """Return the versions that may have undecided occurrences, oldest first. The newest ends at
        `ends`."""
        if row["undecided_version"] is None:
            versions = [(row["version"], row["spec"], ends)]
        else:
            found = await self.store.versions(self.connection, row["id"], row["undecided_version"])
            closes = [*(each["valid_from"] for each in found[1:]), ends]
            versions = [
                (each["version"], each["spec"], close)
                for each, close in zip(found, closes, strict=True)
            ]
        return await self.compute(lambda _: [_stretch(*each, calendars) for each in versions])


def _stretch(
    version: int, text: str, ends: datetime | None, calendars: Mapping[str, NamedCalendar]
) -> Stretch:
    try:
        spec = decode_spec(text)
        return Stretch(version, ends, Compiled(version, spec, compile_schedule(spec, calendars)))
    except Exception as error:  # noqa: BLE001 (whatever it is, others go on)
        return Stretch(version, ends, None, str(error) or type(error).__name__)


def plan_stretch(
    row: Any, stretch: Stretch, later: Sequence[Stretch], *, limit: int, until: float | None = None
) -> Plan:
    """Decide about the next occurrences of a version that isn't the newest any more."""
    compiled = stretch.compiled
    assert compiled is not None
    assert stretch.ends is not None
    bounded = Compiled(compiled.version, compiled.spec, compiled.recurrence.up_to(stretch.ends))
    newer = compiled.spec.catch_up.kind == "latest" and any(
        _has_latest(row, begin.ends, one)
        for begin, one in zip([stretch, *later], later, strict=False)
    )
    return plan_row(row, bounded, limit=limit, until=until, superseded=newer)


def is_decided(stretch: Stretch, cursor: datetime) -> bool:
    """Return whether no occurrence of the version is left after the cursor."""
    assert stretch.compiled is not None
    assert stretch.ends is not None
    recurrence = stretch.compiled.recurrence.up_to(stretch.ends)
    return next(recurrence.after(cursor, 1), None) is None


def _has_latest(row: Any, begin: datetime | None, stretch: Stretch) -> bool:
    """Return whether a later version has a missed occurrence that may run."""
    compiled, now = stretch.compiled, row["now"]
    if compiled is None or begin is None or compiled.spec.catch_up.kind == "none":
        return False
    catch_up = compiled.spec.catch_up
    outlook = Outlook(now=now, horizon=0.0, catch_up=catch_up, paused_since=row["paused_at"])
    if catch_up.within is not None:
        begin = max(begin, now - timedelta(seconds=catch_up.within) - _LATEST_OFFSET)
    end = now if stretch.ends is None else min(now, stretch.ends)
    for found in compiled.recurrence.kept_after(begin):
        if found.nominal > end:
            return False
        if outlook.may_be_latest(found):
            return True
    return False


async def settle(
    transaction: ScheduleTransaction, row: Any, stretches: Sequence[Stretch]
) -> Settled:
    """Decide by the old versions what they can decide by now. Every stretch has an end."""
    at = dict(row)
    unsettled = None
    for place, stretch in enumerate(stretches):
        assert stretch.ends is not None
        while stretch.compiled is not None:
            later, most = stretches[place + 1 :], min(transaction.left, BATCH)
            try:
                # Without the limit of a computation: an update that settles much has to succeed, too.
                step = await transaction.compute(partial(_plan_step, at, stretch, later, most))
                await transaction.fire(step.entries, [step.advance])
            except Exception as error:
                # Is the schedule to blame? Else the database is away, and nothing may be given up.
                if not isinstance(error, _Unplanned) and not blames_the_data(error):
                    raise
                stretch.compiled = None
                stretch.problem = str(error) or type(error).__name__
                break
            at["cursor"] = step.advance.cursor
            at["previous"] = step.entries[-1].due_at if step.entries else at["previous"]
            if step.decided:
                break
            if not step.more or transaction.left == 0:
                return Settled(at["cursor"], stretch.version, unsettled)
        if stretch.compiled is None and unsettled is None:
            unsettled = Unsettled(at["cursor"], stretch.problem or "it can't be read")
        at["cursor"] = max(at["cursor"], stretch.ends)
    return Settled(at["cursor"], None, unsettled)


class _Unplanned(Exception):
    """A rule fails when it is computed."""


class _Step(msgspec.Struct, frozen=True):
    entries: list[Entry]
    advance: Advance
    decided: bool
    more: bool


def _plan_step(
    at: Any, stretch: Stretch, later: Sequence[Stretch], limit: int, _spend: Spend
) -> _Step:
    assert stretch.compiled is not None
    try:
        # Also what waits for its spread: it becomes a job that is due later.
        spread = stretch.compiled.recurrence.spread_offset.total_seconds()
        planned = plan_stretch(at, stretch, later, limit=limit, until=spread)
        entries = to_entries(at, planned)
        advance = to_advance(at, planned, entries, stretch.version)
        return _Step(entries, advance, is_decided(stretch, planned.cursor), planned.more)
    except Exception as error:
        raise _Unplanned(str(error) or type(error).__name__) from error


def next_stretch(row: Any, stretches: Sequence[Stretch], planned: Plan, fired: int) -> Advance:
    """Return where the firer goes on after a plan of the first stretch."""
    first = stretches[0]
    assert first.ends is not None
    if planned.more or not is_decided(first, planned.cursor):
        next_due = row["now"] if planned.more else planned.next_due
        return Advance(row["id"], planned.cursor, next_due, fired, row["undecided_version"])
    undecided_version = stretches[1].version if len(stretches) > 2 else None
    return Advance(row["id"], max(planned.cursor, first.ends), row["now"], fired, undecided_version)
