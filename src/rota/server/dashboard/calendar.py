"""The calendar: what schedules did and will do, and the minutes that exceed the slots.

The past is read from the ledger, the future is computed from the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from litestar.params import QueryParameter

from rota.core.time.hourly import Expected, Hour, HourlyLoad
from rota.core.time.plan import REASONS
from rota.core.time.zones import zone as zone_of
from rota.errors import ConfigError
from rota.model import State
from rota.server.dashboard.pages import Copyable, Here, Html, cli, page, show, zone_name
from rota.server.dashboard.words import plural
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.store.dashboard import DashboardStore
from rota.store.schedules import FIRED

_AGENDA = 100
_LEDGER = 1_500  # rows of the past that are counted
_FREQUENT = 24  # occurrences of a day from which on a schedule is only counted
_LOOKED_UP = 300  # schedules whose occurrences of a day are looked up
_NAMED = 6
_BUSY = 60.0  # runs in an hour that get the strongest colour at least
_LEVELS = (0.0, 0.25, 0.5, 0.8)
_YEARS = range(1971, 2200)


class Cell(msgspec.Struct, frozen=True):
    """An hour of the week: its load, and the names of what is not due every hour anyway."""

    runs: float
    failed: int
    skipped: int
    level: int
    piles: bool
    title: str
    names: Sequence[str]
    is_now: bool
    is_past: bool

    @property
    def text(self) -> str:
        """The text that screen readers read."""
        parts = [plural(round(self.runs + 0.49), "run")] if self.runs else []
        parts += [f"{self.failed:,} failed"] if self.failed else []
        parts += [f"{self.skipped:,} skipped"] if self.skipped else []
        parts += ["a pile-up"] if self.piles else []
        return ", ".join(parts)


class Day(msgspec.Struct, frozen=True):
    """A day of the month."""

    date: date
    runs: float
    failed: int
    skipped: int
    names: Sequence[str]
    more: int
    piles: int
    other: bool
    today: bool


class Entry(msgspec.Struct, frozen=True):
    """A line of the chosen day. What is to come has no outcome."""

    at: datetime
    name: str
    outcome: str = ""
    why: str = ""
    job_id: UUID | None = None


class Past(msgspec.Struct, frozen=True):
    """The ledger of a period by the hours of a zone. `known` is false where it was too much to read."""

    fired: Counter[Hour]
    failed: Counter[Hour]
    skipped: Counter[Hour]
    names: dict[Hour, Counter[str]]
    known: bool = True

    @property
    def is_cut(self) -> bool:
        return self.fired.total() + self.skipped.total() >= _LEDGER

    def of_day(self, day: date) -> Counter[str]:
        """Return the number of occurrences of each schedule."""
        found: Counter[str] = Counter()
        for hour in range(24):
            found.update(self.names.get((day, hour), {}))
        return found


@page("/calendar", policy=VIEWER)
async def calendar(
    request: RotaRequest,
    tenant: TenantDep,
    stats: StatsDep,
    view: Annotated[Literal["week", "month"], QueryParameter()] = "week",
    day: Annotated[str | None, QueryParameter(max_length=10)] = None,
    zone: Annotated[str | None, QueryParameter(max_length=100)] = None,
) -> Html:
    shown_in, is_week = zone_of(zone or zone_name(request)), view == "week"
    now = await (await tenant.store()).now()
    today = now.astimezone(shown_in).date()
    chosen = _day(day) or today
    first, last = _week(chosen) if is_week else _month(chosen)
    days = [first + timedelta(days=ahead) for ahead in range((last - first).days)]
    begin, end = (_midnight(one, shown_in) for one in (first, last))
    found = await tenant.schedules.calendar_load(begin, end, shown_in, by_name=is_week)
    load, expected = found.load, found.expected
    past = await _past(stats, begin, min(end, now), shown_in)
    agenda, count, counted = await _agenda(stats, past, expected, chosen, shown_in)
    drawn: dict[str, Any] = await tenant.schedules.compute_read(lambda _: {
        "rows": _rows(load, past, days, expected, now, shown_in) if is_week else None,
        "month": None if is_week else _month_days(load, past, days, chosen, today, expected, shown_in),
    })  # fmt: skip
    here = Here(request)
    step = timedelta(days=7 if is_week else 31)
    middle = chosen if is_week else chosen.replace(day=15)
    return await show(
        request, "calendar.html", now=now, view=view, zone=shown_in.key,
        zones=sorted({"UTC", here.zone, shown_in.key, *found.zones}), load=load, past=past,
        waiting=found.waiting, slots=found.slots, left_out=found.left_out, limit=_LEDGER,
        agenda=agenda[:_AGENDA], more=max(count - _AGENDA, 0), counted=counted,
        chosen=chosen, today=today, days=days, totals=_by_day(load, past),
        nothing=not (load.hours or past.names or found.waiting) and past.known, **drawn,
        before=here.url("/calendar", view=view, zone=zone, day=middle - step),
        after=here.url("/calendar", view=view, zone=zone, day=middle + step),
        how=[Copyable("Forecast the coming week", cli=cli(
            "schedules", "forecast", "--days", 7, "--tz", shown_in.key, "--slots", found.slots or 10
        ))],
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


# -- the past


async def _past(stats: DashboardStore, begin: datetime, end: datetime, zone: ZoneInfo) -> Past:
    rows = await stats.ledger_between(begin, end, _LEDGER) if begin < end else []
    past = Past(Counter(), Counter(), Counter(), {}, known=rows is not None)
    hours: dict[datetime, Hour] = {}  # of the quarters, which are few beside the rows
    for row in rows or ():
        hour = hours.get(row["part"])
        if hour is None:
            local = row["part"].astimezone(zone)
            hour = hours[row["part"]] = (local.date(), local.hour)
            if hour not in past.names:
                past.names[hour] = Counter()
        (past.fired if row["state"] == FIRED else past.skipped)[hour] += row["count"]
        past.names[hour][row["name"]] += row["count"]
    for due_at in await stats.failed_occurrences(begin, end) if rows else ():
        local = due_at.astimezone(zone)
        past.failed[local.date(), local.hour] += 1
    return past


async def _agenda(
    stats: DashboardStore, past: Past, expected: Sequence[Expected], day: date, zone: ZoneInfo
) -> tuple[list[Entry], int, list[tuple[str, float, bool]]]:
    """Return the lines of a day and the number of all of them; and for schedules with many, their names,
    numbers, and whether these are exact."""
    first, end = _midnight(day, zone), _midnight(day + timedelta(days=1), zone)
    numbers = past.of_day(day)
    often = {name for name, count in numbers.items() if count > _FREQUENT}
    often |= {one.name for one in expected if one.is_frequent}
    rare = sorted(numbers.keys() - often)
    until, early = _first_lines(past, day, often, zone) if rare else (end, [])
    shown = await stats.ledger_of_day(first, min(until, end), early, _AGENDA) if early else []
    states = await stats.job_states([row["job_id"] for row in shown if row["job_id"]])
    lines = [_entry(row, states) for row in shown]
    lines += [
        Entry(moment, one.name) for one in expected if one.name not in often for moment in one.moments
        if first <= moment < end
    ]  # fmt: skip
    to_come = {one.name: one for one in expected}
    counted = []
    for name in sorted(often):
        one = to_come.get(name)
        coming = sum(runs for (due, _), runs in one.hours.items() if due == day) if one else 0.0
        if total := numbers[name] + coming:
            counted.append((name, total, one is None or one.exact))
    count = len(lines) - len(shown) + sum(numbers[name] for name in rare)
    return sorted(lines, key=lambda line: (line.at, line.name)), count, counted


def _first_lines(
    past: Past, day: date, often: Collection[str], zone: ZoneInfo
) -> tuple[datetime, list[str]]:
    """Return the schedules that fill the agenda of a day, and the end of the hour in which they do: not
    all that fired are looked up, each by itself, for the first of them."""
    names: set[str] = set()
    count = 0
    for hour in range(24):
        due = past.names.get((day, hour)) or Counter()
        names.update(name for name in due if name not in often)
        count += sum(number for name, number in due.items() if name not in often)
        if count >= _AGENDA:
            break
    # Of an hour that the clocks repeat, the second one.
    last = datetime.combine(day, time(hour, fold=1), tzinfo=zone)
    end = last.astimezone(UTC) + timedelta(hours=1)
    return end, sorted(names)[:_LOOKED_UP]


def _entry(row: Any, states: Mapping[UUID, int]) -> Entry:
    outcome = "skipped"
    if row["state"] == FIRED:
        state = states.get(row["job_id"])
        outcome = State(state).label if state is not None else "gone"
    why = REASONS.get(row["reason"] or "", "")
    return Entry(row["due_at"], row["name"], outcome, why, row["job_id"])


# -- drawing


def _by_day(load: HourlyLoad, past: Past) -> dict[date, float]:
    total: dict[date, float] = dict(load.days)
    for (day, _), count in past.fired.items():
        total[day] = total.get(day, 0.0) + count
    return total


def _rows(
    load: HourlyLoad, past: Past, days: Sequence[date], expected: Sequence[Expected], now: datetime,
    zone: ZoneInfo,
) -> list[list[Cell]]:  # fmt: skip
    most = max((*load.hours.values(), *past.fired.values(), _BUSY))
    moments = (one.at.astimezone(zone) for one in load.busy_minutes)
    piled = {(local.date(), local.hour) for local in moments}
    local_now = now.astimezone(zone)
    this = (local_now.date(), local_now.hour)
    frequent = {one.name for one in expected if one.is_frequent}

    def cell(hour: Hour) -> Cell:
        runs = load.hours.get(hour, 0.0) + past.fired[hour]
        level = sum(runs / most > share for share in _LEVELS) if runs else 0
        due = (load.names.get(hour) or Counter()) + (past.names.get(hour) or Counter())
        title = ", ".join(f"{name} {count}x" for name, count in due.most_common(_NAMED))
        if len(due) > _NAMED:
            title += f" and {len(due) - _NAMED} more"
        rare = sorted(name for name in due if name not in frequent)
        return Cell(
            runs, past.failed[hour], past.skipped[hour], level, hour in piled, title, rare,
            hour == this, hour < this,
        )  # fmt: skip

    return [[cell((day, hour)) for day in days] for hour in range(24)]


def _month_days(
    load: HourlyLoad, past: Past, days: Sequence[date], chosen: date, today: date,
    expected: Sequence[Expected], zone: ZoneInfo,
) -> list[Day]:  # fmt: skip
    rare: dict[date, set[str]] = {}
    frequent = {one.name for one in expected if one.is_frequent}
    for one in expected:
        if not one.is_frequent:
            for day, _ in one.hours:
                rare.setdefault(day, set()).add(one.name)
    failed: Counter[date] = Counter()
    skipped: Counter[date] = Counter()
    for (day, hour), names in past.names.items():
        rare.setdefault(day, set()).update(name for name in names if name not in frequent)
        failed[day] += past.failed[day, hour]
        skipped[day] += past.skipped[day, hour]
    piles = Counter(one.at.astimezone(zone).date() for one in load.busy_minutes)
    totals = _by_day(load, past)
    return [
        Day(
            day, totals.get(day, 0.0), failed[day], skipped[day], sorted(rare.get(day, ()))[:3],
            max(len(rare.get(day, ())) - 3, 0), piles[day], day.month != chosen.month, day == today,
        )
        for day in days
    ]  # fmt: skip


ROUTES = [calendar]
