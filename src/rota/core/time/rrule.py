"""RFC 5545 recurrence rules on wall time, each bounded in the work of a next occurrence.

The text is an RRULE, with or without ``RRULE:``, and may have a ``DTSTART:`` line before it.
Without DTSTART the rule is anchored at the schedule's `starts`, or at 1970-01-01 00:00.

The next occurrence is searched from the period (in step with INTERVAL) around the given moment,
so that the age of a rule doesn't matter. COUNT becomes an end that is found once. Refused, with
the reason, is what would take a search without bound, and what has no meaning:

- HOURLY, MINUTELY, SECONDLY take INTERVAL and nothing else that restricts them;
- DAILY with an INTERVAL of 2 or more takes BYDAY and BYMONTH, not BYMONTHDAY;
- BYSETPOS needs WEEKLY, MONTHLY or YEARLY, and takes at most 12 times a day;
- BYYEARDAY and BYWEEKNO need YEARLY, the latter also weeks that start on Monday;
- BYDAY with a number (2MO) needs MONTHLY or YEARLY, and no BYWEEKNO;
- at most 288 times a day, COUNT at most 1,000; no EXDATE, RDATE or EXRULE (use calendars).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

from rota.core.time.interval import next_tick
from rota.core.time.rrule_parts import DayFilter, Parts, read_parts
from rota.core.time.zones import wall_time
from rota.errors import ConfigError

_SECONDS = {"HOURLY": 3600, "MINUTELY": 60, "SECONDLY": 1}
_DAY = timedelta(days=1)
_TICK = timedelta(microseconds=1)
_FIRST = datetime.combine(date(1970, 1, 1), time())
_MAX_COUNT = 1000
_MAX_DAYS = 12_000  # looked at for a first occurrence, before a rule is said never to fire


class RRuleRule:
    """A parsed rule: `next_after` gives its wall times."""

    def __init__(self, parts: Parts, start: datetime, until: datetime | None = None) -> None:
        self.parts = parts
        self.freq = parts.freq
        self.interval = parts.interval
        self.hourly = _SECONDS.get(self.freq, 86_400) * self.interval <= 3600
        self.start = start
        self.until = until
        self._filter = DayFilter(parts)

    def next_after(self, wall: datetime) -> datetime | None:
        wall = max(wall, self.start - _TICK)
        if self.until is not None and wall >= self.until:
            return None
        if self.freq in _SECONDS:
            found: datetime | None = self._tick(wall)
        else:
            found = next(self._search(wall), None)
        if found is None or (self.until is not None and found > self.until):
            return None
        return found

    def fires(self) -> bool:
        """Return whether there is any occurrence at all, by a bounded search."""
        if self.freq in _SECONDS:
            return self.next_after(self.start - _TICK) is not None
        found = next(self._search(self.start - _TICK, _MAX_DAYS), None)
        return found is not None and (self.until is None or found <= self.until)

    def last_of(self, count: int) -> datetime:
        """Return the wall time of the occurrence of that number, or of the last there is."""
        if self.freq in _SECONDS:
            return self.start + timedelta(seconds=_SECONDS[self.freq] * self.interval * (count - 1))
        return list(islice(self._search(self.start - _TICK), count))[-1]

    def _tick(self, wall: datetime) -> datetime:
        step = _SECONDS[self.freq] * self.interval
        aware = next_tick(wall.replace(tzinfo=UTC), step, self.start.replace(tzinfo=UTC))
        return aware.replace(tzinfo=None)

    def _search(self, wall: datetime, max_days: int | None = None) -> Iterator[datetime]:
        looked = 0
        for first, last in self._periods(wall.date()):
            # A position within a period counts from the period's first day.
            since = first if self.parts.set_positions else max(first, wall.date())
            days = self._filter.days(first, last, since)
            looked += max(1, self._filter.looked)
            for found in self._of_period(days):
                if found > wall:
                    yield found
            if max_days is not None and looked > max_days:
                return

    def _of_period(self, days: Iterator[date]) -> Iterator[datetime]:
        found = (datetime.combine(day, at) for day in days for at in self.parts.times)
        if not self.parts.set_positions:
            yield from found
            return
        whole = list(found)
        picked = {n - 1 if n > 0 else len(whole) + n for n in self.parts.set_positions}
        yield from (whole[n] for n in sorted(picked) if 0 <= n < len(whole))

    def _periods(self, day: date) -> Iterator[tuple[date, date]]:
        """Iterate over the first and last days of periods in step, from the one at or before `day`."""
        first, n = self.start.date(), self.interval
        if self.freq in ("YEARLY", "MONTHLY"):
            size = 12 if self.freq == "YEARLY" else 1
            origin = first.year * 12 + (first.month - 1 if size == 1 else 0)
            wanted = day.year * 12 + day.month - 1
            index = origin + (wanted - origin) // (size * n) * size * n
            while index // 12 < 9990:
                yield _month(index), _month(index + size) - _DAY
                index += size * n
            return
        size = 7 if self.freq == "WEEKLY" else 1
        if size == 7:
            first -= _DAY * ((first.weekday() - self.parts.week_start) % 7)
        start = first + _DAY * ((day - first).days // (size * n) * size * n)
        while start.year < 9990:
            yield start, start + _DAY * (size - 1)
            start += _DAY * size * n


def parse_rrule(text: str, tz: ZoneInfo, anchor: datetime | None = None) -> RRuleRule:
    """Parse an RRULE text; `anchor` is the naive wall time that stands in for DTSTART."""
    try:
        return _parse(text, tz, anchor or _FIRST)
    except ConfigError as error:
        raise ConfigError(f"rrule {text!r}: {error}") from None


def _parse(text: str, tz: ZoneInfo, start: datetime) -> RRuleRule:
    rules = []
    for line in filter(None, (line.strip() for line in text.strip().splitlines())):
        head, colon, value = line.upper().rpartition(":")
        if head.startswith("DTSTART"):
            _check_zone(line, tz)
            start = _wall(value, "DTSTART", tz, time())
        elif colon and head != "RRULE":
            raise ConfigError(f"{head} is not supported; exclude or include days by a calendar")
        else:
            rules.append(value)
    if len(rules) != 1:
        raise ConfigError(f"{len(rules)} rules found; write one RRULE")
    parts, count, until_text = read_parts(rules[0], start)
    until = _wall(until_text, "UNTIL", tz, time(23, 59, 59)) if until_text else None
    rule = RRuleRule(parts, start, until)
    if not rule.fires():
        raise ConfigError("it never fires: no day matches all of its parts")
    if count is None:
        return rule
    if count > _MAX_COUNT and rule.freq not in _SECONDS:
        raise ConfigError(f"COUNT={count} is over {_MAX_COUNT}; use UNTIL, or ends")
    return RRuleRule(parts, start, rule.last_of(count))


def _check_zone(line: str, tz: ZoneInfo) -> None:
    given = re.search(r"TZID=([^:;]+)", line, re.IGNORECASE)
    if given and given[1].lower() != tz.key.lower():
        raise ConfigError(
            f"DTSTART is in {given[1]}, the schedule in {tz.key}; give tz={given[1]!r}"
        )


def _wall(value: str, key: str, tz: ZoneInfo, of_day: time) -> datetime:
    """Read a wall time; `of_day` stands in for a missing time of day."""
    match = re.fullmatch(r"(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})(\d{2})(Z?))?", value)
    if match is None:
        raise ConfigError(f"{key} {value} is not a date or time such as 20260131T090000")
    try:
        day = date(int(match[1]), int(match[2]), int(match[3]))
        if match[4] is not None:
            of_day = time(int(match[4]), int(match[5]), int(match[6]))
    except ValueError as error:
        raise ConfigError(f"{key} {value}: {error}") from None
    found = datetime.combine(day, of_day)
    return wall_time(found.replace(tzinfo=UTC), tz) if match[7] else found


def _month(index: int) -> date:
    return date(index // 12, index % 12 + 1, 1)
