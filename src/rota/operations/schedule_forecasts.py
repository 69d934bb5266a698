"""Forecast the load of schedules: for a number of days run by run, and for a calendar hour by hour."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from rota.core.time.forecast import Load, forecast
from rota.core.time.hourly import Expected, HourlyLoad, add_up, expect, without_past
from rota.core.time.recurrence import Recurrence
from rota.core.time.schedule import compile_schedule
from rota.core.time.status import LoadForecast, UsualDuration
from rota.core.time.stored import decode_spec
from rota.core.time.week import DAYS, HourAhead, coming_week
from rota.errors import ConfigError
from rota.lib.computing import Spend
from rota.operations.schedule_reads import ScheduleReads
from rota.store.dashboard import DashboardStore

_HOUR = 3600.0
_MOST_SCHEDULES = 1_000  # of a calendar
_SECONDS = 0.2  # of computing for one calendar
_MOST_CACHED = 20_000
_FALLBACK_SLOTS = 10
_MOST_COMING = 200
_MOST_TASKS = 500  # whose durations are looked up; others are taken to run for a second
_UTC = ZoneInfo("UTC")

# By schedule, version, period, zone and calendars. Only used by the thread that computes.
Cache: TypeAlias = OrderedDict[tuple[UUID, int, datetime, datetime, str, int], Expected]
_cache: Cache = OrderedDict()


class CalendarLoad(msgspec.Struct, frozen=True):
    """The load of a period. `waiting`: schedules that were not computed yet, since it takes long; they
    are computed by the next requests. `slots` is 0 if no worker is alive."""

    expected: Sequence[Expected]
    load: HourlyLoad
    waiting: int
    zones: Sequence[str]
    slots: int
    left_out: bool  # there are more schedules than are computed
    tasks: Mapping[str, str] = {}  # of the schedules, by name


class WeekAhead(msgspec.Struct, frozen=True, kw_only=True):
    """The coming week from the current hour on. `slots` is 0 if no worker is alive; then ten are
    assumed. `measured`: how many of the schedules' tasks have run lately, so that their mean duration is
    known; others are taken to run for a second."""

    start: datetime
    hours: Sequence[HourAhead]
    slots: int
    exact: bool
    waiting: int
    left_out: bool
    measured: int
    schedules: int


class ComingSchedule(msgspec.Struct, frozen=True):
    """A schedule with its next occurrences; all of them in the period if `exact`."""

    name: str
    moments: Sequence[datetime]
    exact: bool


class ScheduleForecasts(ScheduleReads):
    """The part of `Schedules` that forecasts."""

    async def forecast(
        self, days: int = 7, *, slots: int | None = None,
        durations: Mapping[str, float] | None = None, assumed: float = 1.0,
    ) -> LoadForecast:  # fmt: skip
        """Forecast the coming days: all occurrences against the usual durations of their tasks.

        Args:
            days: number of days, from the current hour on.
            slots: worker slots (default: those of the live workers).
            durations: seconds of tasks, instead of the measured durations.
            assumed: seconds of tasks that were never measured.
        """
        slots = slots or await self._live_slots()
        if not slots:
            raise ConfigError("no worker is alive, so their slots are unknown: give --slots N",
                              field="slots")  # fmt: skip
        measured, given = await self.measure(), durations or {}
        tasks = {status.runs for status, _ in measured.watched}
        if unknown := sorted(set(given) - tasks):
            known = ", ".join(sorted(tasks)) or "none"
            raise ConfigError(f"no schedule runs task {unknown[0]!r}; they run: {known}",
                              field="durations")  # fmt: skip
        usual = {task: UsualDuration(assumed, "assumed") for task in sorted(tasks)}
        for task, known_duration in measured.durations.items():
            usual[task] = UsualDuration(known_duration.p50, "measured")
        usual |= {task: UsualDuration(seconds, "given") for task, seconds in given.items()}
        loads = [
            Load(_from(watched.recurrence, status.paused_until), usual[status.runs].seconds)
            for status, watched in measured.watched
            if status.paused_at is None or status.paused_until is not None
        ]
        now = await (await self._rota.store()).now()
        start = now.replace(minute=0, second=0, microsecond=0)
        end = start + timedelta(days=days)
        found = await self.compute_read(
            lambda spend: forecast(loads, start, end, slots, _HOUR, spend)
        )
        return LoadForecast(
            start=start, end=end, slots=slots, schedules=len(measured.watched), durations=usual,
            forecast=found,
        )  # fmt: skip

    async def calendar_load(
        self, first: datetime, end: datetime, zone: ZoneInfo, *, by_name: bool = True
    ) -> CalendarLoad:
        """Estimate what is still to come of a period, by the hours of a zone, in a short time."""
        slots = await self._live_slots()
        database = await self._database()
        now = await (await self._rota.store()).now()
        hour = now.replace(minute=0, second=0, microsecond=0)
        rows = await database.fetch("calendar_schedules", self._namespace, _MOST_SCHEDULES)
        calendars = await self._calendars() if rows else {}

        def compute(_: Spend) -> CalendarLoad:
            # From the hour on, so that what was computed can be used again for an hour.
            begin = max(first, hour)
            expected: list[Expected] = []
            waiting = 0
            if begin < end:
                expected, waiting = _expect(rows, calendars, begin, end, zone, _cache)
            if begin < now:
                expected = [without_past(one, now, zone) for one in expected]
            load = add_up(expected, slots or _FALLBACK_SLOTS, by_name=by_name)
            zones = sorted({"UTC", *(row["tz"] or "UTC" for row in rows)})
            left_out = max(len(rows) - _MOST_SCHEDULES + 1, 0)
            tasks = {row["name"]: row["task"] for row in rows}
            return CalendarLoad(expected, load, waiting, zones, slots, bool(left_out), tasks)

        return await self.compute_read(compute)

    async def coming_week(self, zone: ZoneInfo | None = None) -> WeekAhead:
        """Forecast the coming week hour by hour, in a short time: see `forecast` for each run."""
        now = await (await self._rota.store()).now()
        start = now.replace(minute=0, second=0, microsecond=0)
        end = start + timedelta(days=DAYS)
        load = await self.calendar_load(start, end, zone or _UTC, by_name=False)
        tasks = sorted(set(load.tasks.values()))[:_MOST_TASKS]
        totals = await self._rota.statistics.tasks("7d", names=tasks)
        means = {one.task: one.seconds / one.runs for one in totals if one.runs}
        seconds = {name: means.get(task, 1.0) for name, task in load.tasks.items()}
        hours = await self.compute_read(
            lambda _: coming_week(load.expected, seconds, load.slots or _FALLBACK_SLOTS, start)
        )
        return WeekAhead(
            start=start, hours=hours, slots=load.slots, waiting=load.waiting, left_out=load.left_out,
            exact=all(one.exact for one in load.expected) and not load.waiting,
            measured=sum(task in means for task in set(load.tasks.values())),
            schedules=len(load.expected),
        )  # fmt: skip

    async def coming(self, until: datetime, most: int) -> tuple[list[ComingSchedule], int]:
        """Return the schedules that fire before a moment, soonest first, with their occurrences.

        At most so many, as far as a short time allows; then the number of all of them, up to 200.
        """
        database = await self._database()
        now = await (await self._rota.store()).now()
        rows = await database.fetch("coming_schedules", self._namespace, until, _MOST_COMING)
        calendars = await self._calendars() if rows else {}
        found, _ = await self.compute_read(
            lambda _: _expect(rows[:most], calendars, now, until, _UTC, OrderedDict())
        )
        next_due = {row["name"]: row["next_due"] for row in rows}
        coming = [
            ComingSchedule(one.name, sorted({next_due[one.name], *one.moments}), one.exact)
            for one in found
        ]
        return coming, len(rows)

    async def _live_slots(self) -> int:
        workers = await DashboardStore(await self._database(), self._namespace).workers()
        return sum(one.slots for one in workers)


def _expect(
    rows: Sequence[Any], calendars: Mapping[str, Any], first: datetime, end: datetime,
    zone: ZoneInfo, cache: Cache,
) -> tuple[list[Expected], int]:  # fmt: skip
    """Return the loads, and the number of those that were not computed for lack of time."""
    found: list[Expected] = []
    waiting, stop = 0, time.thread_time() + _SECONDS
    days_off = hash(msgspec.json.encode(calendars))
    for row in rows:
        key = (row["id"], row["version"], first, end, zone.key, days_off)
        one = cache.get(key)
        if one is None:
            if time.thread_time() > stop:
                waiting += 1
                continue
            try:
                one = expect(
                    compile_schedule(decode_spec(row["spec"]), calendars), first, end, zone
                )
            except (ConfigError, OverflowError):
                continue  # it can't be planned: the list of schedules has the reason
            cache[key] = one
            if len(cache) > _MOST_CACHED:
                cache.popitem(last=False)
        found.append(one)
    return found, waiting


def _from(recurrence: Recurrence, begin: datetime | None) -> Recurrence:
    """Return the recurrence without the occurrences before `begin`, the end of a pause."""
    if begin is None:
        return recurrence
    limits = recurrence.limits
    later = msgspec.structs.replace(limits, starts=max(begin, limits.starts or begin))
    policies = (recurrence.gap, recurrence.fold)
    return Recurrence(recurrence.name, recurrence.rule, recurrence.tz, policies, later)
