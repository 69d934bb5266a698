"""Times and durations on the command line. The database's clock says what time it is."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

from rota.core.durations import format_distance
from rota.core.time.interval import seconds_of
from rota.errors import ConfigError

_OUT_OF_RANGE = "the time is not in the years 1 to 9999"
_LONGEST = 10_000 * 366 * 86_400.0
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def parse_duration(text: str) -> float:
    """Parse '90', '30s', '1h30m' or '2d' into seconds."""
    try:
        seconds = seconds_of(text)
    except ConfigError as error:
        raise typer.BadParameter(str(error).removeprefix("duration: ")) from None
    if seconds > _LONGEST:
        raise typer.BadParameter(f"{text!r:.60} is longer than 10,000 years")
    return seconds


class When:
    """A moment, or a distance from the database's present."""

    def __init__(self, *, moment: datetime | None = None, offset: timedelta | None = None) -> None:
        self.moment = moment
        self._offset = offset or timedelta()

    def at(self, now: datetime) -> datetime:
        if self.moment is not None:
            return self.moment
        try:
            return now + self._offset
        except OverflowError:
            raise typer.BadParameter(_OUT_OF_RANGE) from None


def parse_when(text: str) -> When:
    """Parse '2026-03-01T09:00+01:00', '2026-03-01' (midnight in UTC), 'now', '-2d', '+1h30m'."""
    text = text.strip()
    if text == "now":
        return When()
    if text[:1] in ("+", "-"):
        distance = timedelta(seconds=parse_duration(text[1:]))
        return When(offset=distance if text[0] == "+" else -distance)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time; write 2027-01-31T09:00:00+01:00, 2027-01-31, -2d or +3h"
        ) from None
    if _DAY.fullmatch(text):
        moment = moment.replace(tzinfo=UTC)
    if moment.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone; add Z for UTC, or e.g. +01:00")
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise typer.BadParameter(_OUT_OF_RANGE) from None
    return When(moment=moment)


def relative(moment: datetime | None, now: datetime) -> str:
    """Format a moment as 'in 3 min', '2 s ago' or 'now'; '-' if there is none."""
    return "-" if moment is None else format_distance((moment - now).total_seconds())
