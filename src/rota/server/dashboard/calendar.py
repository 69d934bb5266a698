"""The calendar: what runs when, in a week or a month, with its load and where it piles up.

What a schedule asks for is computed once per version and stretch of time, and remembered. One request
computes for a short while only: what it didn't get to is told, and is there at the next look.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from litestar.params import QueryParameter

from rota.core.time.schedule import compile_schedule
from rota.core.time.zones import zone as zone_of
from rota.errors import ConfigError
from rota.server.calculation import Budget, off_loop
from rota.server.dashboard.commands import Copyable, cli
from rota.server.dashboard.loads import Asked, Load, ask, together
from rota.server.dashboard.pages import Here, Html, page, show
from rota.server.dependencies import TenantDep
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest
from rota.store.schedules import ScheduleStore, decode_spec

_SECONDS = 0.2  # of computing in one request
_SCHEDULES = 1_000
_REMEMBERED = 20_000
_AGENDA = 100
_NAMED = 6
_FALLBACK_SLOTS = 10
_BUSY = 60.0  # runs in an hour that deserve a colour of their own
_LEVELS = (0.0, 0.25, 0.5, 0.8)
_YEARS = range(1971, 2200)

# By schedule, version, stretch, zone, and what calendars say. Of the thread that computes, alone.
_memory: OrderedDict[tuple[UUID, int, datetime, datetime, str, int], Asked] = OrderedDict()


class Cell(msgspec.Struct, frozen=True):
    """An hour of the week: its load, and by name what isn't there every hour anyway."""

    runs: float
    level: int
    piles: bool
    told: str
    names: Sequence[str]
    is_now: bool


class Day(msgspec.Struct, frozen=True):
    """A day of the month."""

    date: date
    runs: float
    names: Sequence[str]
    more: int
    piles: int
    other: bool
    today: bool


@page("/calendar", policy=VIEWER)
async def calendar(
    request: RotaRequest,
    tenant: TenantDep,
    view: Annotated[Literal["week", "month"], QueryParameter()] = "week",
    day: Annotated[str | None, QueryParameter(max_length=10)] = None,
    zone: Annotated[str | None, QueryParameter(max_length=100)] = None,
) -> Html:
    shown_in = zone_of(zone or "UTC")
    now = await (await tenant.store()).now()
    today = now.astimezone(shown_in).date()
    chosen = _day(day) or today
    first, last = _week(chosen) if view == "week" else _month(chosen)
    begin, end = (_midnight(one, shown_in) for one in (first, last))
    slots = sum(node.slots for node in await tenant.nodes.list() if node.state == "live")
    days = [first + timedelta(days=ahead) for ahead in range((last - first).days)]
    database = (await tenant.store()).database
    found = await database.fetch("calendar_schedules", tenant.namespace, _SCHEDULES)
    calendars: dict[str, Any] = {}
    if found:
        known = await ScheduleStore(database).calendars()
        calendars = known.get(tenant.namespace, {})

    def draw(budget: Budget) -> dict[str, Any]:
        asked, waiting = _asked(found, calendars, begin, end, shown_in, budget)
        load = together(asked, slots or _FALLBACK_SLOTS, by_name=view == "week")
        is_week = view == "week"
        return {
            "load": load, "waiting": waiting, "agenda": _agenda(asked, chosen, shown_in),
            "rows": _rows(load, days, asked, now, shown_in) if is_week else None,
            "month": None if is_week else _month_days(load, days, chosen, today, asked, shown_in),
            "frequent": [one for one in asked if one.is_frequent],
        }  # fmt: skip

    here = Here(request)
    step = timedelta(days=7) if view == "week" else timedelta(days=31)
    middle = chosen if view == "week" else chosen.replace(day=15)
    return await show(
        request, "calendar.html", now=now, view=view, zone=zone or "UTC",
        zones=sorted({"UTC", *(row["tz"] or "UTC" for row in found)}),
        chosen=chosen, today=today, days=days, slots=slots, **await off_loop(draw),
        before=here.url("/calendar", view=view, zone=zone, day=middle - step),
        after=here.url("/calendar", view=view, zone=zone, day=middle + step),
        how=Copyable(cli=cli("schedules", "forecast", "--days", 7, "--tz", zone or "UTC")),
    )  # fmt: skip


def _day(text: str | None) -> date | None:
    if not text:
        return None
    try:
        found = date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"day: {text!r} is not a day like 2027-01-31") from None
    if found.year not in _YEARS:
        raise ConfigError(f"day: the year is not in {_YEARS.start} to {_YEARS.stop - 1}")
    return found


def _week(day: date) -> tuple[date, date]:
    monday = day - timedelta(days=day.weekday())
    return monday, monday + timedelta(days=7)


def _month(day: date) -> tuple[date, date]:
    """Whole weeks."""
    first = day.replace(day=1)
    following = (first + timedelta(days=32)).replace(day=1)
    last = _week(following - timedelta(days=1))[1]
    return _week(first)[0], last


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), tzinfo=zone).astimezone(UTC)


def _asked(
    rows: Sequence[Any], calendars: dict[str, Any], begin: datetime, end: datetime, zone: ZoneInfo,
    budget: Budget,
) -> tuple[list[Asked], int]:  # fmt: skip
    """What the schedules ask for, and how many were not computed yet."""
    found: list[Asked] = []
    waiting = 0
    days_off = hash(msgspec.json.encode(calendars))
    for row in rows:
        key = (row["id"], row["version"], begin, end, zone.key, days_off)
        one = _memory.get(key)
        if one is None:
            if budget.spent > _SECONDS:
                waiting += 1
                continue
            try:
                one = ask(compile_schedule(decode_spec(row["spec"]), calendars), begin, end, zone)
            except (ConfigError, OverflowError):
                continue  # it can't be planned: the list of schedules says why
            _memory[key] = one
            if len(_memory) > _REMEMBERED:
                _memory.popitem(last=False)
        found.append(one)
    return found, waiting


def _rows(
    load: Load, days: Sequence[date], asked: Sequence[Asked], now: datetime, zone: ZoneInfo
) -> list[list[Cell]]:
    most = max(*load.hours.values(), _BUSY) if load.hours else _BUSY
    piled = {
        (local.date(), local.hour) for local in (pile.at.astimezone(zone) for pile in load.piles)
    }
    local_now = now.astimezone(zone)
    this = (local_now.date(), local_now.hour)
    frequent = {one.name for one in asked if one.is_frequent}

    def cell(hour: tuple[date, int]) -> Cell:
        runs = load.hours.get(hour, 0.0)
        level = sum(runs / most > share for share in _LEVELS) if runs else 0
        due = load.names.get(hour) or Counter()
        told = ", ".join(f"{name} {count}x" for name, count in due.most_common(_NAMED))
        if len(due) > _NAMED:
            told += f" and {len(due) - _NAMED} more"
        rare = sorted(name for name in due if name not in frequent)
        return Cell(runs, level, hour in piled, told, rare, hour == this)

    return [[cell((day, hour)) for day in days] for hour in range(24)]


def _month_days(
    load: Load,
    days: Sequence[date],
    chosen: date,
    today: date,
    asked: Sequence[Asked],
    zone: ZoneInfo,
) -> list[Day]:
    rare: dict[date, set[str]] = {}
    for one in asked:
        if not one.is_frequent:
            for day, _ in one.hours:
                rare.setdefault(day, set()).add(one.name)
    piles = Counter(pile.at.astimezone(zone).date() for pile in load.piles)
    return [
        Day(
            day, load.days.get(day, 0.0), sorted(rare.get(day, ()))[:3],
            max(len(rare.get(day, ())) - 3, 0), piles[day], day.month != chosen.month, day == today,
        )
        for day in days
    ]  # fmt: skip


def _agenda(asked: Sequence[Asked], day: date, zone: ZoneInfo) -> list[tuple[datetime, str]]:
    """The chosen day, without what fires all the time."""
    first, end = _midnight(day, zone), _midnight(day + timedelta(days=1), zone)
    found = [
        (moment, one.name) for one in asked if not one.is_frequent for moment in one.moments
        if first <= moment < end
    ]  # fmt: skip
    return sorted(found)[:_AGENDA]


ROUTES = [calendar]
