"""Durations as users write them, and intervals by elapsed time, independent of zones."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from rota.errors import ConfigError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS = {"w": 604800.0, "d": 86400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_WRITTEN = ("d", "h", "m", "s")
_WORDS = re.compile(r"(?<=\d)(?:weeks?|days?|hours?|minutes?|seconds?)")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|min|[wdhms])")
_HINT = "write 90, 90s, 15m, 1h30m or 2d"


def seconds_of(value: float | str | timedelta, field: str = "duration") -> float:
    """Return a duration in seconds, from a number, a timedelta, or text such as ``"1h30m"``."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bool):
        raise ConfigError(f"{field}: {value!r} is not a duration; {_HINT}")
    if isinstance(value, str):
        return _parse(value, field)
    if not 0 <= value < float("inf"):
        raise ConfigError(f"{field}: {value!r} is not a duration; {_HINT}")
    return float(value)


def _parse(text: str, field: str) -> float:
    compact = _WORDS.sub(lambda word: word.group()[0], re.sub(r"\s+", "", text.lower()))
    if re.fullmatch(r"\d+(\.\d+)?", compact):
        return float(compact)
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise ConfigError(f"{field}: {text!r} is not a duration; {_HINT}")
    sizes = [_UNITS[unit] for _, unit in parts]
    if sizes != sorted(set(sizes), reverse=True):
        raise ConfigError(f"{field}: {text!r} names its units out of order or twice; {_HINT}")
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def duration_text(seconds: float) -> str:
    """Return the shortest text that `seconds_of` reads as the same: ``5400`` is ``"1h30m"``."""
    if seconds != int(seconds):
        return f"{seconds:g}s"
    rest, parts = int(seconds), []
    for unit in _WRITTEN:
        size = int(_UNITS[unit])
        if rest >= size:
            parts.append(f"{rest // size}{unit}")
            rest %= size
    return "".join(parts) or "0s"


def next_tick(after: datetime, seconds: float, anchor: datetime) -> datetime:
    """Return the first ``anchor + n * seconds`` strictly after `after`; n may be negative."""
    step = round(seconds * 1_000_000)
    passed = (after - anchor) // _MICROSECOND
    return anchor + timedelta(microseconds=(passed // step + 1) * step)
