"""RFC 5545 recurrence rules on wall time, each bounded in the work of a next occurrence.

The text is an RRULE, with or without ``RRULE:``, and may have a ``DTSTART:`` line before it.
Without DTSTART the rule is anchored at the schedule's `starts`, or at 1970-01-01 00:00.

python-dateutil walks a rule from its very start. So that the age of a rule doesn't matter, it is
given a start near the wanted moment, in step with INTERVAL, and all BYxxx parts that it would
have taken from DTSTART; COUNT becomes an end that is found once. Rules without a bound of their
own on the steps to the next occurrence are refused, with the reason:

- HOURLY, MINUTELY, SECONDLY take INTERVAL and nothing else that restricts them;
- DAILY with an INTERVAL of 2 or more takes BYDAY and BYMONTH, not BYMONTHDAY or BYYEARDAY;
- at most 288 times a day, COUNT at most 1,000; no EXDATE, RDATE or EXRULE (use calendars).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from dateutil import rrule as dateutil_rrule  # type: ignore[import-untyped]

from rota.core.time.interval import next_tick
from rota.core.time.zones import wall_time
from rota.errors import ConfigError

_FREQUENCIES = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY")
_SECONDS = {"HOURLY": 3600, "MINUTELY": 60, "SECONDLY": 1}
_TIMES = ("BYHOUR", "BYMINUTE", "BYSECOND")
_DATES = ("BYWEEKNO", "BYYEARDAY", "BYMONTHDAY", "BYDAY")
_KEYS = ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYSETPOS", "BYMONTH", *_DATES, *_TIMES)
_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_DAY = timedelta(days=1)
_TICK = timedelta(microseconds=1)
_FIRST = datetime.combine(datetime(1970, 1, 1, tzinfo=UTC).date(), time())
# How many periods are searched for a first occurrence before a rule is said never to fire.
_PATIENCE = {"YEARLY": 400, "MONTHLY": 4800, "WEEKLY": 3000, "DAILY": 5000}
_MAX_COUNT = 1000
_MAX_TIMES = 288


class RRuleRule:
    """A parsed rule: `next_after` gives its wall times."""

    def __init__(self, parts: dict[str, str], start: datetime, until: datetime | None) -> None:
        self.freq = parts["FREQ"]
        self.interval = int(parts.get("INTERVAL", "1"))
        self.start = start
        self.until = until
        self.parts = parts
        self._week_start = _WEEKDAYS.index(parts.get("WKST", "MO"))
        bare = {k: v for k, v in parts.items() if k not in ("COUNT", "UNTIL")}
        self._text = ";".join(f"{key}={value}" for key, value in bare.items())

    @property
    def hourly(self) -> bool:
        return self.freq in _SECONDS and _SECONDS[self.freq] * self.interval <= 3600

    def next_after(self, wall: datetime) -> datetime | None:
        wall = max(wall, self.start - _TICK)
        if self.until is not None and wall >= self.until:
            return None
        found = self._tick(wall) if self.freq in _SECONDS else self._search(wall)
        if found is None or (self.until is not None and found > self.until):
            return None
        return found

    def _tick(self, wall: datetime) -> datetime:
        step = _SECONDS[self.freq] * self.interval
        aware = next_tick(wall.replace(tzinfo=UTC), step, self.start.replace(tzinfo=UTC))
        return aware.replace(tzinfo=None)

    def _search(self, wall: datetime) -> datetime | None:
        period = self._period_before(wall)
        rule = dateutil_rrule.rrulestr(self._text, dtstart=period)
        # Nothing before the first period's start counts, nor does anything before DTSTART.
        found: datetime | None = rule.after(max(wall, self.start - _TICK))
        return found

    def _period_before(self, wall: datetime) -> datetime:
        """The start of the period, in step with INTERVAL, that `wall` is in or after."""
        first, n = self.start, self.interval
        if self.freq == "YEARLY":
            years = (wall.year - first.year) // n * n
            return _midnight(first.replace(year=first.year + years, month=1, day=1))
        if self.freq == "MONTHLY":
            months = (wall.year - first.year) * 12 + wall.month - first.month
            index = first.year * 12 + first.month - 1 + months // n * n
            return _midnight(first.replace(year=index // 12, month=index % 12 + 1, day=1))
        if self.freq == "WEEKLY":
            week = _midnight(first) - _DAY * ((first.weekday() - self._week_start) % 7)
            return week + _DAY * ((wall - week).days // (7 * n) * 7 * n)
        return _midnight(first) + _DAY * ((wall - _midnight(first)).days // n * n)


def parse_rrule(text: str, tz: ZoneInfo, anchor: datetime | None = None) -> RRuleRule:
    """The rule of an RRULE text; `anchor` is the naive wall time that stands in for DTSTART."""
    try:
        return _parse(text, tz, anchor or _FIRST)
    except ConfigError as error:
        raise ConfigError(f"rrule {text!r}: {error}") from None


def _parse(text: str, tz: ZoneInfo, start: datetime) -> RRuleRule:
    rules = []
    for line in filter(None, (line.strip() for line in text.strip().splitlines())):
        head, colon, value = line.upper().rpartition(":")
        if head.startswith("DTSTART"):
            start = _wall(_same_zone(head, line, tz) or value, "DTSTART", tz)
        elif colon and head != "RRULE":
            raise ConfigError(f"{head} is not supported; exclude or include days by a calendar")
        else:
            rules.append(value)
    if len(rules) != 1:
        raise ConfigError(f"{len(rules)} rules found; write one RRULE")
    parts = _read(rules[0])
    _refuse_unbounded(parts)
    _complete(parts, start)
    until = _wall(parts["UNTIL"], "UNTIL", tz, time(23, 59, 59)) if "UNTIL" in parts else None
    return _ended(RRuleRule(parts, start, until))


def _same_zone(head: str, line: str, tz: ZoneInfo) -> str | None:
    given = re.search(r"TZID=([^:;]+)", line, re.IGNORECASE)
    if given and given[1].lower() != tz.key.lower():
        raise ConfigError(
            f"DTSTART is in {given[1]}, the schedule in {tz.key}; give tz={given[1]!r}"
        )
    return None


def _read(rule: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for item in filter(None, rule.split(";")):
        key, equals, value = item.partition("=")
        if key not in _KEYS or not equals or not value:
            raise ConfigError(f"{item} is not understood; the parts are {', '.join(_KEYS)}")
        if key in parts:
            raise ConfigError(f"{key} is given twice")
        parts[key] = value
    if parts.get("FREQ") not in _FREQUENCIES:
        raise ConfigError(f"FREQ must be one of {', '.join(_FREQUENCIES)}")
    for key in ("INTERVAL", "COUNT"):
        if key in parts and not (parts[key].isdecimal() and 1 <= int(parts[key]) <= 1_000_000):
            raise ConfigError(f"{key}={parts[key]} is not in 1-1000000")
    if "COUNT" in parts and "UNTIL" in parts:
        raise ConfigError("COUNT and UNTIL exclude each other")
    if "WKST" in parts and parts["WKST"] not in _WEEKDAYS:
        raise ConfigError(f"WKST={parts['WKST']} is not one of {', '.join(_WEEKDAYS)}")
    return parts


def _refuse_unbounded(parts: dict[str, str]) -> None:
    freq, interval = parts["FREQ"], int(parts.get("INTERVAL", "1"))
    filters = [key for key in parts if key.startswith("BY")]
    if freq in _SECONDS and filters:
        raise ConfigError(
            f"FREQ={freq} with {filters[0]} may search without bound; "
            "write a cron rule, or FREQ=DAILY with BYHOUR and BYMINUTE"
        )
    slow = [key for key in ("BYMONTHDAY", "BYYEARDAY") if key in parts]
    if freq == "DAILY" and interval > 1 and slow:
        raise ConfigError(f"FREQ=DAILY;INTERVAL={interval} with {slow[0]} may search without bound")
    if freq == "DAILY" and "BYSETPOS" in parts:
        raise ConfigError("BYSETPOS needs FREQ=WEEKLY, MONTHLY or YEARLY")
    if "BYWEEKNO" in parts and freq != "YEARLY":
        raise ConfigError("BYWEEKNO needs FREQ=YEARLY")
    times = 1
    for key in _TIMES:
        times *= len(parts.get(key, "0").split(","))
    if times > _MAX_TIMES:
        raise ConfigError(f"{times} times a day; {_MAX_TIMES} at most, or write a cron rule")


def _complete(parts: dict[str, str], start: datetime) -> None:
    """What dateutil would take from DTSTART is written out, so that another start may be given."""
    freq = parts["FREQ"]
    if freq in _SECONDS:
        return
    if freq == "DAILY" and int(parts.get("INTERVAL", "1")) == 1 and _filtered(parts):
        # The same days, found a year at a time instead of day by day.
        parts["FREQ"] = "YEARLY"
        if not any(key in parts for key in _DATES):
            parts["BYMONTHDAY"] = ",".join(str(day) for day in range(1, 32))
    elif not any(key in parts for key in _DATES):
        if freq == "YEARLY" and "BYMONTH" not in parts:
            parts["BYMONTH"] = str(start.month)
        if freq in ("YEARLY", "MONTHLY"):
            parts["BYMONTHDAY"] = str(start.day)
        elif freq == "WEEKLY":
            parts["BYDAY"] = _WEEKDAYS[start.weekday()]
    for key, value in zip(_TIMES, (start.hour, start.minute, start.second), strict=True):
        parts.setdefault(key, str(value))


def _filtered(parts: dict[str, str]) -> bool:
    return "BYMONTH" in parts or any(key in parts for key in _DATES)


def _ended(rule: RRuleRule) -> RRuleRule:
    """The rule, known to fire, with COUNT turned into an end."""
    try:
        count = int(rule.parts.get("COUNT", "1"))
        if count > _MAX_COUNT and rule.freq not in _SECONDS:
            raise ConfigError(f"COUNT={count} is over {_MAX_COUNT}; use UNTIL, or ends")
        if not _fires(rule):
            raise ConfigError("it never fires: no day matches all of its parts")
        if "COUNT" not in rule.parts:
            return rule
        return RRuleRule(rule.parts, rule.start, _last(rule, count))
    except (ValueError, TypeError, IndexError) as error:
        raise ConfigError(f"not understood: {error}") from None


def _fires(rule: RRuleRule) -> bool:
    if rule.freq in _SECONDS:
        return rule.next_after(rule.start - _TICK) is not None
    years = {"YEARLY": 1, "MONTHLY": 1 / 12, "WEEKLY": 1 / 52, "DAILY": 1 / 365}[rule.freq]
    days = _PATIENCE[rule.freq] * years * rule.interval * 366
    end = rule.start + timedelta(days=min(days, 400 * 366))
    until = end if rule.until is None else min(end, rule.until)
    limited = f"{rule._text};UNTIL={until:%Y%m%dT%H%M%S}"
    found = dateutil_rrule.rrulestr(limited, dtstart=rule._period_before(rule.start))
    return found.after(rule.start - _TICK) is not None


def _last(rule: RRuleRule, count: int) -> datetime:
    if rule.freq in _SECONDS:
        return rule.start + timedelta(seconds=_SECONDS[rule.freq] * rule.interval * (count - 1))
    source = dateutil_rrule.rrulestr(rule._text, dtstart=rule._period_before(rule.start))
    left = count
    last = rule.start
    for found in source:
        if found >= rule.start:
            last, left = found, left - 1
        if left == 0:
            break
    return last


def _wall(value: str, key: str, tz: ZoneInfo, day_end: time | None = None) -> datetime:
    match = re.fullmatch(r"(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})(\d{2})(Z?))?", value)
    if match is None:
        raise ConfigError(f"{key} {value} is not a date or time such as 20260131T090000")
    try:
        numbers = [int(part or 0) for part in match.groups()[:6]]
        moment = datetime(*numbers, tzinfo=UTC)  # type: ignore[arg-type,misc]
    except ValueError as error:
        raise ConfigError(f"{key} {value}: {error}") from None
    if match[7]:
        return wall_time(moment, tz)
    if match[4] is None and day_end is not None:
        return datetime.combine(moment.date(), day_end)
    return moment.replace(tzinfo=None)


def _midnight(moment: datetime) -> datetime:
    return datetime.combine(moment.date(), time())
