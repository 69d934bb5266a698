"""Resources that jobs need and nodes have: memory, CPU and named amounts; nearness to a label.

Amounts are counted in whole units, so that sums are exact: memory in MiB, everything else in hundredths.
Users and the REST API say memory in bytes or as "2GB". A job's shape is stored as entries among its
`needs` (docs/architecture.md, "Resources"): ``memory=2048``, ``gpu=1``, ``~model7=5``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import ceil, floor
from typing import Any, TypeAlias

import msgspec

from rota.config import check_name
from rota.errors import ConfigError

# By name, in units: what a job needs, or what a node has. Never changed in place.
Amounts: TypeAlias = Mapping[str, int]

MEMORY = "memory"
_MEASURED = (MEMORY, "cpu")  # by the node itself
NEAR_SECONDS = 5.0  # how long a job waits for a node with its label, if it doesn't say
# What a submit leaves to its task, when it gives only some of the three.
NEEDS_MARK, RESOURCES_MARK, NEAR_MARK = "+", "=", "~"

_MIB = 1 << 20
_SMALLEST_MIB = 64
_HUNDREDTHS = 100
_MOST = 1_000_000  # of anything but memory
_MOST_TIB = 1024  # of memory: what is stored, and its sums, stay small
_MOST_SECONDS = 86_400.0
_MOST_NAMES = 8  # that a job asks for
_MOST_NAMES_OF_NODE = 32
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,49}")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class Shape(msgspec.Struct, frozen=True):
    """The demands on a node of the jobs of a lane, beside its queue."""

    capabilities: tuple[str, ...] = ()
    amounts: dict[str, int] = {}
    near: str | None = None
    near_seconds: float = 0.0


# -- what users say


def parse_job(given: Any) -> dict[str, int]:
    """Check the resources of a task or a submit. Memory is rounded up to its step."""
    amounts = _parse(given, ceil)
    if MEMORY in amounts:
        amounts[MEMORY] = memory_step(amounts[MEMORY])
    return amounts


def parse_node(given: Any) -> dict[str, int]:
    """Check the resources of a node."""
    return _parse(given, floor, least=0, names=_MOST_NAMES_OF_NODE)


def _parse(given: Any, rounded: Any, least: int = 1, names: int = _MOST_NAMES) -> dict[str, int]:
    if not isinstance(given, Mapping):
        raise ConfigError(
            f'resources must be a dict such as {{"memory": "2GB", "gpu": 1}}, not {given!r}',
            field="resources",
        )
    if len(given) > names:
        raise ConfigError(
            f"resources: {len(given)} are too many, the limit is {names}", field="resources"
        )
    amounts = {}
    for name, value in sorted(given.items(), key=lambda item: str(item[0])):
        _check_amount_name(name)
        amount = _memory(value) if name == MEMORY else _number(name, value)
        units = rounded(amount / _MIB if name == MEMORY else round(amount * _HUNDREDTHS, 6))
        if units < least:
            raise ConfigError(
                f"resources: {name} must be above 0, not {value!r}", field="resources"
            )
        amounts[name] = units
    return amounts


def _check_amount_name(name: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError(
            f"resources: {name!r} is not a usable name: use 1 to 50 letters, digits, '_', '.' or "
            "'-', starting with a letter, digit or '_'",
            field="resources",
        )
    if name not in _MEASURED and name.lower() in _MEASURED:
        raise ConfigError(
            f"resources: {name!r} must be written {name.lower()!r}", field="resources"
        )


def _memory(value: Any) -> float:
    """Return bytes. All suffixes are powers of 1024, as in Docker and systemd: 2GB is 2GiB."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        amount: float = value
    else:
        found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
        if found is None:
            raise ConfigError(
                f"resources: memory {value!r} is no size: write a number of bytes, or '512MB', '2GB'",
                field="resources",
            )
        amount = float(found[1]) * 1024.0 ** _POWERS[found[2].lower()]
    if not amount <= _MOST_TIB * 1024**4:  # nor NaN
        raise ConfigError(
            f"resources: memory must be at most {_MOST_TIB}TB, not {value!r}", field="resources"
        )
    return float(amount)


def _number(name: str, value: Any) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST:
        raise ConfigError(
            f"resources: {name} must be a number up to {_MOST:,}, such as 1 or 0.5",
            field="resources",
        )
    return float(value)


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Return what ``gpu=2`` and ``memory=16GB`` say, on a command line or in a setting."""
    given: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.strip().partition("=")
        if not sign or not value:
            raise ConfigError(
                f"resource {pair!r} must be NAME=AMOUNT, as in gpu=2 or memory=16GB",
                field="resources",
            )
        given[name.strip()] = value.strip()
    return given


def check_label(value: Any) -> str:
    return check_name("label", value)


def check_near(near: str | None, seconds: float | None) -> None:
    if near is not None and near != "":
        check_name("near", near)
    if seconds is None:
        return
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= _MOST_SECONDS:
        raise ConfigError(
            f"near_patience must be 0 to {_MOST_SECONDS:.0f} seconds, not {seconds!r}",
            field="near_patience",
        )


def memory_step(mib: int) -> int:
    """Return the smallest step that is not below: two in each doubling, so that shapes are few."""
    step = _SMALLEST_MIB
    while step < mib:
        if step * 3 // 2 >= mib:
            return step * 3 // 2
        step *= 2
    return step


# -- how it is stored


def to_entries(amounts: Amounts) -> tuple[str, ...]:
    return tuple(
        f"{name}={_written(name, units)}" for name, units in sorted(amounts.items()) if units
    )


def near_entry(near: str, seconds: float | None) -> str:
    seconds = NEAR_SECONDS if seconds is None else seconds
    return f"~{near}={_trimmed(round(seconds, 2))}"


def demands(
    needs: Sequence[str] | None, resources: Any, near: str | None, near_seconds: float | None,
    declared: tuple[str, ...] | None,
) -> tuple[str, ...] | None:  # fmt: skip
    """Return what a job's `needs` are stored as: what is given, and the rest as `declared` by its task.

    None: all is as declared. `declared` None: the task's code isn't here, and the database fills in
    the rest for the marks. An empty `resources` or `near` takes away what the task declares.
    """
    if needs is None and resources is None and near is None:
        return declared
    own = None if declared is None else shape_of(declared)
    parts: list[str] = []
    if needs is not None:
        parts += needs
    else:
        parts += (NEEDS_MARK,) if own is None else own.capabilities
    if resources is not None:
        parts += to_entries(parse_job(resources))
    else:
        parts += (RESOURCES_MARK,) if own is None else to_entries(own.amounts)
    if near:
        parts.append(near_entry(near, near_seconds))
    elif near is None:
        if own is None:
            parts.append(NEAR_MARK)
        elif own.near is not None:
            parts.append(near_entry(own.near, own.near_seconds))
    return tuple(parts)


def with_declared(
    given: tuple[str, ...] | None, declared: tuple[str, ...]
) -> tuple[str, ...]:  # fmt: skip
    """Put what a task declares in the place of marks: the same as rota.needs_with() in SQL."""
    if given is None:
        return declared
    marks = {NEEDS_MARK, RESOURCES_MARK, NEAR_MARK}.intersection(given)
    if not marks:
        return given
    kept = [need for need in given if need not in marks]
    return (*kept, *(need for need in declared if _mark_of(need) in marks))


def _mark_of(need: str) -> str:
    if need.startswith("~"):
        return NEAR_MARK
    return RESOURCES_MARK if "=" in need else NEEDS_MARK


@lru_cache(4096)
def shape_of(needs: tuple[str, ...]) -> Shape:
    """Return what the entries of `needs` ask for."""
    capabilities: list[str] = []
    amounts: dict[str, int] = {}
    near, seconds = None, 0.0
    for need in needs:
        name, sign, value = need.partition("=")
        if not sign:
            capabilities.append(need)
        elif name.startswith("~"):
            near, seconds = name[1:], float(value)
        else:
            amounts[name] = ceil(float(value) if name == MEMORY else round(float(value) * 100, 6))
    return Shape(tuple(capabilities), amounts, near, seconds)


@lru_cache(10_000)
def shape_of_lane(lane: str) -> Shape:
    """Return what a lane or a sublane asks of a node."""
    return shape_of(tuple(lane.partition("/")[2].partition("#")[0].split("+")[1:]))


def to_json(amounts: Amounts) -> dict[str, float]:
    """Return amounts as the database compares them: memory in MiB."""
    return {
        name: units if name == MEMORY else units / _HUNDREDTHS for name, units in amounts.items()
    }


def from_json(stored: Mapping[str, float] | None) -> dict[str, int]:
    return {
        name: floor(value) if name == MEMORY else floor(round(value * _HUNDREDTHS, 6))
        for name, value in (stored or {}).items()
    }


def to_public(amounts: Amounts) -> dict[str, float]:
    """Return amounts as the API tells them: memory in bytes."""
    return {
        name: units * _MIB if name == MEMORY else _whole(units / _HUNDREDTHS)
        for name, units in sorted(amounts.items())
    }


def said(amounts: Amounts) -> str:
    """Return amounts for people: gpu=2, memory=8GB."""
    return ", ".join(f"{name}={said_one(name, units)}" for name, units in sorted(amounts.items()))


def said_public(amounts: Mapping[str, float], used: Mapping[str, float] | None = None) -> str:
    """Return what the API tells for people; with `used`, how much of it: gpu=1/2, memory=0MB/8GB."""
    units = parse_node(dict(amounts))
    if used is None:
        return said(units)
    held = parse_node(dict(used))
    return ", ".join(
        f"{name}={said_one(name, held.get(name, 0))}/{said_one(name, has)}"
        for name, has in sorted(units.items())
    )


def said_one(name: str, units: int) -> str:
    if name != MEMORY:
        return _written(name, units)
    for power, letter in ((2, "T"), (1, "G")):
        if units >= 1024**power:
            return f"{_trimmed(round(units / 1024**power, 2))}{letter}B"
    return f"{units}MB"


def _written(name: str, units: int) -> str:
    return str(units) if name == MEMORY else _trimmed(units / _HUNDREDTHS)


def _trimmed(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _whole(number: float) -> float:
    return int(number) if number == int(number) else number


# -- decisions


def fits(free: Amounts, shape: Amounts) -> bool:
    return all(free.get(name, 0) >= units for name, units in shape.items())


def how_many(free: Amounts, shape: Amounts, most: int) -> int:
    """Return how many jobs of a shape fit into what is free."""
    counts = (free.get(name, 0) // units for name, units in shape.items() if units)
    return max(min(most, *counts), 0) if shape else most


def minus(amounts: Amounts, shape: Amounts, times: int = 1) -> dict[str, int]:
    """Return what is left; below zero where more is held than there is."""
    return {name: units - times * shape.get(name, 0) for name, units in amounts.items()}


def plus(amounts: Amounts, shape: Amounts) -> dict[str, int]:
    return {name: amounts.get(name, 0) + shape.get(name, 0) for name in {*amounts, *shape}}


class Running(msgspec.Struct, frozen=True):
    """A job that holds amounts. `ends_in`: seconds, as expected; None: not known."""

    amounts: Amounts
    ends_in: float | None


def free_in(free: Amounts, running: Iterable[Running], shape: Amounts) -> float | None:
    """Return in how many seconds a shape fits, when what runs ends as expected; None: not known."""
    if fits(free, shape):
        return 0.0
    known = sorted(
        (each for each in running if each.ends_in is not None), key=lambda each: each.ends_in or 0.0
    )
    left: Amounts = free
    for each in known:
        left = plus(left, each.amounts)
        if fits(left, shape):
            return max(each.ends_in or 0.0, 0.0)
    return None


def expected_end(ran: float, timeout: float | None, mean: float | None) -> float | None:
    """Return in how many seconds a job may end: the lower of what its task takes and its timeout."""
    spans = [span for span in (timeout, mean) if span is not None]
    return max(min(spans) - ran, 0.0) if spans else None


class Room(msgspec.Struct, frozen=True):
    """The jobs of a lane that a claim may start: so many; `within`: only those with such a timeout."""

    count: int
    within: float | None = None


def backfill(
    capacity: Amounts, free: Amounts, reserved: Amounts, started: Amounts, shape: Amounts,
    reserved_in: float | None, most: int,
) -> Room:  # fmt: skip
    """Decide what a node with a reservation may start under another shape.

    `started`: the amounts of what it has started since the reservation. What ran before ends at last: so
    what leaves room for the reserved shape beside those may start without a bound. `reserved_in`: when
    the reserved shape is expected to fit.
    """
    beside = minus(minus(capacity, reserved), started)
    lasting = how_many({name: min(beside[name], free.get(name, 0)) for name in beside}, shape, most)
    if lasting > 0:
        return Room(lasting)
    if reserved_in is None or reserved_in <= 0:
        return Room(0)
    return Room(how_many(free, shape, most), reserved_in)
