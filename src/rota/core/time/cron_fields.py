"""One field of a cron rule: its text, its numbers, and what is wrong with it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from rota.errors import ConfigError

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SPREAD = re.compile(r"H(?:\((\d+)-(\d+)\))?(?:/(\d+))?")


class Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    spread_high: int = 0  # up to where H may go


class Days(NamedTuple):
    """What a day field asks for. Weekdays: Monday is 1, Sunday 7."""

    numbers: frozenset[int]
    last: bool = False
    nth: frozenset[tuple[int, int]] = frozenset()
    last_of: frozenset[int] = frozenset()


FIELDS = (
    Field("second", 0, 59, (), 59),
    Field("minute", 0, 59, (), 59),
    Field("hour", 0, 23, (), 23),
    Field("day of month", 1, 31, (), 28),
    Field("month", 1, 12, _MONTHS, 12),
    Field("day of week", 0, 7, _WEEKDAYS, 6),
)


def read_numbers(field: Field, text: str, seed: str) -> tuple[int, ...]:
    """The sorted numbers of a field without L and #."""
    numbers = {number for item in _items(field, text) for number in _expand(field, item, seed)}
    return tuple(sorted(numbers))


def read_days(field: Field, text: str, seed: str) -> Days:
    """A day field, with its L and #."""
    weekly = field.names == _WEEKDAYS
    numbers: set[int] = set()
    nth: set[tuple[int, int]] = set()
    last_of: set[int] = set()
    last = False
    for item in _items(field, text):
        if weekly and "#" in item:
            nth.add(_nth(field, item))
        elif weekly and len(item) > 1 and item.endswith("L") and item not in field.names:
            last_of.add(_number(field, item[:-1], item) or 7)
        elif not weekly and item == "L":
            last = True
        else:
            numbers.update(_expand(field, "*" if item == "?" else item, seed))
    if weekly and 0 in numbers:
        numbers = numbers - {0} | {7}
    return Days(frozenset(numbers), last, frozenset(nth), frozenset(last_of))


def _items(field: Field, text: str) -> list[str]:
    items = text.split(",")
    if "" in items:
        raise ConfigError(f"{field.name}: {text!r} has an empty item; write values between commas")
    return items


def _nth(field: Field, item: str) -> tuple[int, int]:
    weekday, _, count = item.partition("#")
    if not count.isdecimal() or not 1 <= int(count) <= 5:
        raise ConfigError(f"{field.name}: {item} is not one of the 1st to 5th; write MON#2")
    return _number(field, weekday, item) or 7, int(count)


def _expand(field: Field, item: str, seed: str) -> Iterator[int]:
    if item.startswith("H"):
        yield from _spread(field, item, seed)
        return
    base, slash, step_text = item.partition("/")
    step = _step(field, step_text, item) if slash else 1
    low, high = _bounds(field, base, item, open_ended=bool(slash))
    yield from range(low, high + 1, step)


def _bounds(field: Field, base: str, item: str, open_ended: bool) -> tuple[int, int]:
    if base == "*":
        return field.low, field.high if field.names != _WEEKDAYS else 6
    first, dash, second = base.partition("-")
    low = _number(field, first, item)
    if not dash:
        return low, field.high if open_ended else low
    high = _number(field, second, item)
    if high == 0 and field.names == _WEEKDAYS and low > 0:
        high = 7  # FRI-SUN
    if high < low:
        raise ConfigError(f"{field.name}: {item} runs backwards; write two parts with a comma")
    return low, high


def _number(field: Field, text: str, item: str) -> int:
    if text in field.names:
        return field.names.index(text) + (1 if field.names == _MONTHS else 0)
    if text.isascii() and text.isdecimal():
        number = int(text)
        if field.low <= number <= field.high:
            return number
        raise ConfigError(f"{field.name}: {text} is not in {field.low}-{field.high}")
    if text in ("L", "?") or text.endswith("W"):
        raise ConfigError(f"{field.name}: {item} has no meaning here")
    names = f" or {field.names[0]}-{field.names[-1]}" if field.names else ""
    raise ConfigError(f"{field.name}: {text or item!r} is not in {field.low}-{field.high}{names}")


def _step(field: Field, text: str, item: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) == 0:
        raise ConfigError(f"{field.name}: {item} needs a step of 1 or more after the /")
    return int(text)


def _spread(field: Field, item: str, seed: str) -> Iterator[int]:
    match = _SPREAD.fullmatch(item)
    if match is None:
        raise ConfigError(f"{field.name}: {item} is not H, H(0-29), H/15 or H(0-29)/10")
    low, high = field.low, field.spread_high
    if match[1] is not None:
        low, high = _number(field, match[1], item), _number(field, match[2], item)
        if high < low:
            raise ConfigError(f"{field.name}: {item} runs backwards")
    if match[3] is None:
        yield low + _stable(field, seed, high - low + 1)
        return
    step = _step(field, match[3], item)
    yield from range(low + _stable(field, seed, min(step, high - low + 1)), high + 1, step)


def _stable(field: Field, seed: str, size: int) -> int:
    digest = hashlib.blake2b(f"{field.name}\0{seed}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % size
