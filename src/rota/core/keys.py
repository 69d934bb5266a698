"""The keys by which jobs are limited and ordered: what a task declares, and what follows for a job."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from rota.errors import ConfigError, InvalidArguments

OrderFailure: TypeAlias = Literal["continue", "hold", "drop"]
KeySource: TypeAlias = str | Callable[..., Any]

MOST = 1_000_000_000
_RATE = re.compile(
    r"(?P<count>[0-9]{1,10})/(?P<times>[0-9]{1,6}([.][0-9]{1,6})?)?"
    r"(?P<unit>s|seconds?|m|min|minutes?|h|hours?|d|days?)"
)
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NAMES = {1.0: "s", 60.0: "minute", 3600.0: "hour", 86400.0: "day"}
_LONGEST_BURST = 3_162_240_000.0  # seconds
_FAILURES = ("continue", "hold", "drop")


def check_most(field: str, value: object) -> None:
    """Refuse what is no number of jobs that may run at a time."""
    if value is not None and (
        not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST
    ):
        raise ConfigError(
            f"{field} must be a whole number from 1 to {MOST}, not {shown(value)}", field=field
        )


def shown(value: object) -> str:
    """Return a refused value for a message. Python writes no number of thousands of digits."""
    if isinstance(value, int) and abs(value) >= 10**100:
        return "one of over 100 digits"
    return f"{value!r:.300}"


class Rate(msgspec.Struct, frozen=True):
    """So many starts in a period of seconds, of which `burst` may come at once."""

    count: int
    period: float
    burst: int

    def __str__(self) -> str:
        """Return the text that `parse` reads: `100/minute`, `10/30s`."""
        if self.period in _NAMES:
            return f"{self.count}/{_NAMES[self.period]}"
        for unit, seconds in reversed(_UNITS.items()):
            times = f"{self.period / seconds:.6f}".rstrip("0").rstrip(".")
            text = f"{self.count}/{times}{unit}"
            match = _RATE.fullmatch(text)
            if match is not None and float(match["times"]) * seconds == self.period:
                return text
        return f"{self.count}/{self.period:.6f}s"

    @classmethod
    def parse(cls, text: object, burst: int | None = None, field: str = "rate") -> Rate:
        """Read `100/minute`, `5/s` or `10/30s`. The burst is a tenth of a second's worth, or one."""
        match = _RATE.fullmatch(text) if isinstance(text, str) else None
        if match is None or not 1 <= int(match["count"]) <= MOST:
            raise ConfigError(
                f"{field} must be a number and a period, such as 100/minute, 5/s or 10/30s, "
                f"not {text!r:.300}",
                field=field,
            )
        period = float(match["times"] or 1) * _UNITS[match["unit"][0]]
        if not 0.001 <= period <= 31_622_400:
            raise ConfigError(
                f"{field}: a period is a millisecond to a year, not {text!r}", field=field
            )
        check_most(f"{field}_burst", burst)
        count = int(match["count"])
        most = min(int(_LONGEST_BURST * count / period), MOST)
        if burst is not None and burst > most:
            raise ConfigError(
                f"{field}_burst must be at most {most:,}, what {text} allows in a century, "
                f"not {burst:,}",
                field=f"{field}_burst",
            )
        return cls(count, period, burst or min(max(1, round(count / period / 10)), most))


def check_order_failure(value: object) -> None:
    if value not in _FAILURES:
        raise ConfigError(f"order_failure must be one of {', '.join(_FAILURES)}, not {value!r}")


def check_key(field: str, value: object) -> None:
    """Refuse a key that can't be stored."""
    if value is None:
        return
    if not isinstance(value, str) or not 1 <= len(value) <= 255:
        shown = repr(value)
        shown = shown if len(shown) <= 80 else f"{shown[:80]}… ({len(shown):,} characters)"
        raise InvalidArguments(f"{field} must be a text of 1 to 255 characters, not {shown}")
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InvalidArguments(f"{field} {value!r} holds a character that can't be stored")


def check_source(field: str, source: object, function: Callable[..., Any], task: str) -> None:
    """Refuse a declared key that names no parameter of the task's function."""
    if source is None or callable(source):
        return
    if not isinstance(source, str):
        raise ConfigError(
            f"task {task!r}: {field} is the name of a parameter, or a function, not {source!r}"
        )
    if source not in inspect.signature(function).parameters:
        raise ConfigError(f"task {task!r}: {field} names {source!r}, which is no parameter of it")


def key_from(
    field: str, source: KeySource | None, function: Callable[..., Any], arguments: Mapping[str, Any]
) -> str | None:
    """Return a job's key, from its arguments by name. None: it has none."""
    if source is None:
        return None
    value: Any
    if isinstance(source, str):
        default = inspect.signature(function).parameters[source].default
        value = arguments.get(source, None if default is inspect.Parameter.empty else default)
    else:
        value = source(**arguments)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidArguments(f"{field}: a key is a text or a whole number, not {value!r:.300}")
    check_key(field, str(value))
    return str(value)
