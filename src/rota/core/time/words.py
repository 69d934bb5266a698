"""Describes a schedule's rule in words where words are exact, otherwise by the rule itself."""

from __future__ import annotations

from collections.abc import Sequence

from rota.core.time.cron import CronRule, parse_cron
from rota.core.time.interval import duration_text
from rota.core.time.phrases import MONTHS, WEEKDAYS
from rota.core.time.schedule import Calendar, Cron, Every, RRule, ScheduleSpec

_WEEKDAYS = tuple(name.title() for name in WEEKDAYS)
_MONTHS = tuple(name.title() for name in MONTHS)
_NTH = ("", "first", "second", "third", "fourth", "fifth")
_MAX_TIMES = 4


def describe(spec: ScheduleSpec) -> str:
    """Return a description: ``every weekday at 09:00 in Europe/Berlin``."""
    match spec.rule:
        case Every(seconds):
            return f"every {duration_text(seconds)}"
        case Calendar(phrase):
            return f"{' '.join(phrase.split())} in {spec.tz}"
        case RRule(text):
            return f"RRULE {' '.join(text.split())} in {spec.tz}"
        case Cron(expression):
            rule = parse_cron(expression, spec.name)
            return f"{_cron(rule) or f'cron {expression}'} in {spec.tz}"


def _cron(rule: CronRule) -> str | None:
    """Return the rule in words, or None where they would be long or misleading."""
    days, times = _days(rule), _rhythm(rule) if rule.hourly else _times(rule)
    if days is None or times is None:
        return None
    if rule.hourly:
        return times if days == "every day" else f"{times}, {days}"
    return f"{days} {times}"


def _rhythm(rule: CronRule) -> str | None:
    """Return words for a rule of every hour."""
    if rule.seconds != (0,):
        step = _step(rule.seconds)
        return _every(step, "second") if step and len(rule.minutes) == 60 else None
    if rule.minutes == (0,):
        return "every hour"
    if len(rule.minutes) == 1:
        return f"every hour at {rule.minutes[0]} past"
    step = _step(rule.minutes)
    return _every(step, "minute") if step else None


def _times(rule: CronRule) -> str | None:
    if rule.seconds != (0,):
        return None
    if len(rule.hours) * len(rule.minutes) <= _MAX_TIMES:
        return "at " + _and([f"{h:02}:{m:02}" for h in rule.hours for m in rule.minutes])
    step = _step(rule.minutes)
    if step is None or rule.hours[-1] - rule.hours[0] != len(rule.hours) - 1:
        return None
    first, last = rule.hours[0], rule.hours[-1]
    return f"{_every(step, 'minute')} from {first:02}:00 to {last:02}:{rule.minutes[-1]:02}"


def _days(rule: CronRule) -> str | None:
    every_day, every_weekday = len(rule.days.numbers) == 31, len(rule.weekdays.numbers) == 7
    if not every_day and not every_weekday:
        return None  # both are restricted: and, or
    if every_day and every_weekday:
        words: str | None = "every day"
    elif every_day:
        words = _in_week(rule)
    else:
        words = _in_month(rule)
    if words is None or len(rule.months) == 12:
        return words
    return f"{words} in {_and([_MONTHS[month - 1] for month in rule.months])}"


def _in_week(rule: CronRule) -> str | None:
    asked = rule.weekdays
    if asked.numbers and not asked.nth and not asked.last_of:
        if asked.numbers == {1, 2, 3, 4, 5}:
            return "every weekday"
        return "every " + _and([_WEEKDAYS[day - 1] for day in sorted(asked.numbers)])
    if asked.numbers:
        return None
    found = [f"{_NTH[n]} {_WEEKDAYS[day - 1]}" for day, n in sorted(asked.nth)]
    found += [f"last {_WEEKDAYS[day - 1]}" for day in sorted(asked.last_of)]
    return f"the {_and(found)} of the month"


def _in_month(rule: CronRule) -> str | None:
    if len(rule.days.numbers) > _MAX_TIMES:
        return None
    found = []
    if rule.days.numbers:
        found.append(f"day {_and([str(day) for day in sorted(rule.days.numbers)])}")
    if rule.days.last:
        found.append("the last day")
    return f"on {_and(found)} of the month"


def _step(numbers: Sequence[int]) -> int | None:
    """Return the step, if the numbers go evenly through a whole minute or hour from 0."""
    step = 60 // len(numbers)
    return step if tuple(numbers) == tuple(range(0, 60, step)) and 60 % step == 0 else None


def _every(step: int, unit: str) -> str:
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
