"""Random rules, zones and dates against an oracle that walks the minutes on the wall.

The oracle shares nothing with the code: it draws sets of numbers, writes the cron text for them,
and looks at the clock of the zone minute by minute, applying the documented rule.
ROTA_TIME_CASES sets the number of cases (2,000 unless told).
"""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from rota.core.time.cron import parse_cron
from rota.core.time.zones import moments

CASES = int(os.environ.get("ROTA_TIME_CASES", "2000"))
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MARGIN = 26 * HOUR
ZONES = sorted(available_timezones() - {"localtime", "Factory"})


class Drawn:
    """A rule as sets of numbers, and the text that says the same."""

    def __init__(self, rnd: random.Random) -> None:
        self.minutes, minute = draw(rnd, 0, 59, (0.15, 0.35))
        self.hours, hour = draw(rnd, 0, 23, (0.25, 0.1))
        self.days, day = draw(rnd, 1, 31, (0.7, 0.1))
        self.months, month = draw(rnd, 1, 12, (0.9, 0.0))
        self.weekdays, weekday = draw(rnd, 0, 6, (0.7, 0.05))
        self.text = f"{minute} {hour} {day} {month} {weekday}"
        self.both = day.startswith("*") or weekday.startswith("*")

    def matches(self, wall: datetime) -> bool:
        if wall.minute not in self.minutes or wall.hour not in self.hours:
            return False
        in_month, in_week = wall.day in self.days, wall.isoweekday() % 7 in self.weekdays
        day = (in_month and in_week) if self.both else (in_month or in_week)
        return day and wall.month in self.months


def draw(
    rnd: random.Random, low: int, high: int, odds: tuple[float, float]
) -> tuple[set[int], str]:
    star, step_odds = odds
    if (luck := rnd.random()) < star:
        return set(range(low, high + 1)), "*"
    if luck < star + step_odds:
        step = rnd.randint(2, max(2, (high - low) // 2))
        return set(range(low, high + 1, step)), f"*/{step}"
    # Early hours are where clocks jump.
    picks = {rnd.randint(low, min(high, 4) if rnd.random() < 0.6 else high) for _ in range(3)}
    return picks, ",".join(str(n) for n in sorted(picks))


def offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    found = moment.astimezone(zone).utcoffset()
    assert found is not None
    return found


def walk(
    rule: Drawn, zone: ZoneInfo, start: datetime, end: datetime
) -> tuple[list[tuple[datetime, datetime]], list[tuple[datetime, timedelta, timedelta]]]:
    """Each matching minute on the wall as (moment, wall time), and each jump with its offsets."""
    seen, jumps = [], []
    here = offset(zone, start)
    while start < end:
        later = offset(zone, start + HOUR)
        stop = start + HOUR if here == later else first_other(zone, start, here)
        wall = start.replace(tzinfo=None) + here
        skew = timedelta(seconds=-wall.second % 60)
        moment, wall = start + skew, wall + skew
        if {wall.hour, (wall + HOUR).hour} & rule.hours:
            while moment < stop:
                if rule.matches(wall):
                    seen.append((moment, wall))
                moment, wall = moment + MINUTE, wall + MINUTE
        if here != later:
            later = offset(zone, stop)
            jumps.append((stop, here, later))
        start, here = stop, later
    return seen, jumps


def first_other(zone: ZoneInfo, moment: datetime, here: timedelta) -> datetime:
    while offset(zone, moment + MINUTE) == here:
        moment += MINUTE
    while offset(zone, moment) == here:
        moment += timedelta(seconds=1)
    return moment


def expected(
    rule: Drawn, zone: ZoneInfo, window: tuple[datetime, datetime], gap: str, fold: str
) -> list[datetime]:
    hourly = len(rule.hours) == 24
    seen, jumps = walk(rule, zone, window[0] - MARGIN, window[1] + MARGIN)
    by_wall: dict[datetime, list[datetime]] = {}
    found: set[datetime] = set()
    for moment, wall in seen:
        by_wall.setdefault(wall, []).append(moment)
    for passes in by_wall.values():
        wanted = {"first": passes[:1], "second": passes[-1:], "both": passes}[fold]
        found.update(passes if hourly else wanted)
    for jump, before, after in jumps if gap != "skip" and not hourly else ():
        missing = jump.replace(tzinfo=None) + before
        missing += timedelta(seconds=-missing.second % 60)
        while missing < jump.replace(tzinfo=None) + after:
            if rule.matches(missing):
                shifted = missing.replace(tzinfo=UTC) - before
                found.add(shifted if gap == "shift" else jump)
            missing += MINUTE
    return sorted(moment for moment in found if window[0] < moment < window[1])


def near_a_jump(rnd: random.Random, zone: ZoneInfo, year: int) -> datetime:
    """A moment of the year: within a day of a jump where there is one, in most cases."""
    start = datetime(year, 1, 1, tzinfo=UTC)
    if rnd.random() < 0.75:
        days = [start + DAY * n for n in range(0, 365, 3)]
        jumps = [d for d in days if offset(zone, d) != offset(zone, d + 3 * DAY)]
        if jumps:
            day = rnd.choice(jumps)
            while offset(zone, day) == offset(zone, day + HOUR):
                day += HOUR
            return day + MINUTE * rnd.randint(-20 * 60, 3 * 60)
    return start + MINUTE * rnd.randint(0, 364 * 24 * 60)


def test_random_rules_agree_with_an_oracle_that_walks_the_minutes():
    rnd = random.Random(20260329)
    compared = occurrences = 0
    for case in range(CASES):
        # Every zone has its turn; the rest of the case is drawn.
        zone = ZoneInfo(ZONES[case % len(ZONES)])
        rule, gap = Drawn(rnd), rnd.choice(["next", "skip", "shift"])
        fold = rnd.choice(["first", "second", "both"])
        start = near_a_jump(rnd, zone, rnd.randint(1970, 2100))
        end = start + 24 * HOUR
        ours = []
        for found in moments(parse_cron(rule.text), zone, start, gap, fold):
            if found.utc >= end:
                break
            ours.append(found.utc)
        wanted = expected(rule, zone, (start, end), gap, fold)
        assert ours == wanted, (case, rule.text, zone.key, start.isoformat(), gap, fold)
        compared += 1
        occurrences += len(ours)
    assert compared == CASES
    assert occurrences > CASES  # the cases aren't empty
