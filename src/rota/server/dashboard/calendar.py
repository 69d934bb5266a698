"""The calendar: the load of schedules in a week or a month, and the minutes that exceed the slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import msgspec
from litestar.params import QueryParameter

from rota.core.time.hourly import Expected, HourlyLoad
from rota.core.time.zones import zone as zone_of
from rota.errors import ConfigError
from rota.server.dashboard.pages import Copyable, Here, Html, cli, page, show
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest, TenantDep

_AGENDA = 100
_NAMED = 6
_BUSY = 60.0  # runs in an hour that get the darkest colour at least
_LEVELS = (0.0, 0.25, 0.5, 0.8)
_YEARS = range(1971, 2200)


class Cell(msgspec.Struct, frozen=True):
    """An hour of the week: its load, and the names of what is not due every hour anyway."""

    runs: float
    level: int
    piles: bool
    title: str
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
    shown_in, is_week = zone_of(zone or "UTC"), view == "week"
    now = await (await tenant.store()).now()
    today = now.astimezone(shown_in).date()
    chosen = _day(day) or today
    first, last = _week(chosen) if is_week else _month(chosen)
    days = [first + timedelta(days=ahead) for ahead in range((last - first).days)]
    begin, end = (_midnight(one, shown_in) for one in (first, last))
    found = await tenant.schedules.calendar_load(begin, end, shown_in, by_name=is_week)
    load, expected = found.load, found.expected
    drawn: dict[str, Any] = await tenant.schedules.compute_read(lambda _: {
        "agenda": _agenda(expected, chosen, shown_in),
        "rows": _rows(load, days, expected, now, shown_in) if is_week else None,
        "month": None if is_week else _month_days(load, days, chosen, today, expected, shown_in),
    })  # fmt: skip
    here = Here(request)
    step = timedelta(days=7 if is_week else 31)
    middle = chosen if is_week else chosen.replace(day=15)
    return await show(
        request, "calendar.html", now=now, view=view, zone=zone or "UTC", zones=found.zones,
        load=load, waiting=found.waiting, slots=found.slots,
        frequent=[one for one in expected if one.is_frequent],
        chosen=chosen, today=today, days=days, **drawn,
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
        raise ConfigError(f"day: {text!r} is not a date like 2027-01-31") from None
    if found.year not in _YEARS:
        raise ConfigError(f"day: the year is not in {_YEARS.start} to {_YEARS.stop - 1}")
    return found


def _week(day: date) -> tuple[date, date]:
    monday = day - timedelta(days=day.weekday())
    return monday, monday + timedelta(days=7)


def _month(day: date) -> tuple[date, date]:
    """Return the whole weeks that contain the month."""
    first = day.replace(day=1)
    following = (first + timedelta(days=32)).replace(day=1)
    last = _week(following - timedelta(days=1))[1]
    return _week(first)[0], last


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, time(), tzinfo=zone).astimezone(UTC)


def _rows(
    load: HourlyLoad,
    days: Sequence[date],
    expected: Sequence[Expected],
    now: datetime,
    zone: ZoneInfo,
) -> list[list[Cell]]:
    most = max(*load.hours.values(), _BUSY) if load.hours else _BUSY
    moments = (one.at.astimezone(zone) for one in load.busy_minutes)
    piled = {(local.date(), local.hour) for local in moments}
    local_now = now.astimezone(zone)
    this = (local_now.date(), local_now.hour)
    frequent = {one.name for one in expected if one.is_frequent}

    def cell(hour: tuple[date, int]) -> Cell:
        runs = load.hours.get(hour, 0.0)
        level = sum(runs / most > share for share in _LEVELS) if runs else 0
        due = load.names.get(hour) or Counter()
        title = ", ".join(f"{name} {count}x" for name, count in due.most_common(_NAMED))
        if len(due) > _NAMED:
            title += f" and {len(due) - _NAMED} more"
        rare = sorted(name for name in due if name not in frequent)
        return Cell(runs, level, hour in piled, title, rare, hour == this)

    return [[cell((day, hour)) for day in days] for hour in range(24)]


def _month_days(
    load: HourlyLoad,
    days: Sequence[date],
    chosen: date,
    today: date,
    expected: Sequence[Expected],
    zone: ZoneInfo,
) -> list[Day]:
    rare: dict[date, set[str]] = {}
    for one in expected:
        if not one.is_frequent:
            for day, _ in one.hours:
                rare.setdefault(day, set()).add(one.name)
    piles = Counter(one.at.astimezone(zone).date() for one in load.busy_minutes)
    return [
        Day(
            day, load.days.get(day, 0.0), sorted(rare.get(day, ()))[:3],
            max(len(rare.get(day, ())) - 3, 0), piles[day], day.month != chosen.month, day == today,
        )
        for day in days
    ]  # fmt: skip


def _agenda(expected: Sequence[Expected], day: date, zone: ZoneInfo) -> list[tuple[datetime, str]]:
    """Return the occurrences of a day, without frequent schedules."""
    first, end = _midnight(day, zone), _midnight(day + timedelta(days=1), zone)
    found = [
        (moment, one.name) for one in expected if not one.is_frequent for moment in one.moments
        if first <= moment < end
    ]  # fmt: skip
    return sorted(found)[:_AGENDA]


ROUTES = [calendar]
