"""Times and durations as people write and read them. Pure: the database says what time it is."""

from __future__ import annotations

import re
from datetime import datetime

import typer

from rota.core.durations import format_distance

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|s|m|h|d|w)\s*")


def parse_duration(text: str) -> float:
    """Seconds: '90', '1.5', '30s', '5m', '1h30m', '2d'."""
    text = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not text or not re.fullmatch(f"(?:{_PART.pattern})+", text):
        raise typer.BadParameter(f"{text!r} is not a duration; write 90, 30s, 5m, 1h30m or 2d")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def parse_moment(text: str) -> datetime:
    """An ISO 8601 time with its zone."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time; write e.g. 2027-01-31T09:00:00+01:00"
        ) from None
    if moment.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone; add Z for UTC, or e.g. +01:00")
    return moment


def relative(moment: datetime | None, now: datetime) -> str:
    """'in 3 min', '2 s ago', 'now'; '-' when it never was."""
    return "-" if moment is None else format_distance((moment - now).total_seconds())
