"""Named calendars from lines of text, as people write them."""

from __future__ import annotations

import re
from datetime import date

from rota.core.time.calendars import NamedCalendar
from rota.errors import ConfigError

_DAY = r"\d{4}-\d\d-\d\d"
_LINE = re.compile(rf"(?P<first>{_DAY})(?:\s*(?:to|\.\.|/)\s*(?P<last>{_DAY}))?(?:\s.*)?")
_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAYS = {name: place for place, name in enumerate(_NAMES)}
_MOST = 10_000


def calendar_from_lines(name: str, text: str) -> NamedCalendar:
    """Make a calendar from lines: a day, ``2027-12-24 to 2027-12-31``, or a weekday such as ``Sunday``.

    What follows a day, and lines that begin with ``#``, are comments.
    """
    dates: set[date] = set()
    ranges: set[tuple[date, date]] = set()
    weekdays: set[int] = set()
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        if line[:3].lower() in _WEEKDAYS and line.isalpha():
            weekdays.add(_WEEKDAYS[line[:3].lower()])
            continue
        match = _LINE.fullmatch(line)
        try:
            if match is None:
                raise ValueError
            first = date.fromisoformat(match["first"])
            last = date.fromisoformat(match["last"]) if match["last"] else first
        except ValueError:
            raise ConfigError(
                f"text: line {number}: {line[:60]!r} is not a day such as 2027-12-24, a range such as "
                "2027-12-24 to 2027-12-31, or a weekday", field="text",
            ) from None  # fmt: skip
        if first == last:
            dates.add(first)
        else:
            ranges.add((first, last))
    if not dates and not ranges and not weekdays:
        raise ConfigError("text: give at least one day", field="text")
    if len(dates) + len(ranges) > _MOST:
        raise ConfigError(f"text: more than {_MOST:,} lines", field="text")
    return NamedCalendar(
        name=name,
        dates=frozenset(dates),
        ranges=tuple(sorted(ranges)),
        weekdays=frozenset(weekdays),
    )
