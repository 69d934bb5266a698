"""References in a step's arguments, to the run's input and to the results of other steps.

`{"$input": "day"}` stands for a value of the input, `{"$step": "rows"}` for the result of a step. Both
may have a `"path"`: keys and positions inside the value. `{"$results": "parts"}` stands for the list of
the results of a map's members. An object of the caller's own that has one of
these keys is written `{"$value": {...}}`. Results are passed by reference: a step's arguments are
completed when it starts, so that a large result is stored once, however many steps read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from rota.errors import InvalidArguments

STEP, INPUT, VALUE, RESULTS = "$step", "$input", "$value", "$results"
CHUNK = "$chunk"  # the whole arguments of a chunk's job: its number
_KEYS = (STEP, INPUT, VALUE, RESULTS, CHUNK)
_MARKS = tuple(f'"{key}"'.encode() for key in _KEYS)


class Reference(msgspec.Struct, frozen=True):
    """A place whose value is filled in when a step starts. `path` leads inside of it."""

    kind: str  # STEP, INPUT or RESULTS
    name: str | int
    path: tuple[str | int, ...] = ()
    optional: bool = False  # of the input: left out where the input has no such name

    def to_json(self) -> dict[str, Any]:
        """Return the form in which it is stored."""
        written: dict[str, Any] = {self.kind: self.name}
        if self.path:
            written["path"] = list(self.path)
        if self.optional:
            written["optional"] = True
        return written

    def __str__(self) -> str:
        inside = "".join(f"[{each!r}]" for each in self.path)
        return f"{self.name}{inside}" if self.kind != INPUT else f"input[{self.name!r}]{inside}"


class _Absent:
    """The value of an optional reference to an input that isn't there."""


ABSENT = _Absent()


def has_references(payload: bytes) -> bool:
    """Return whether arguments, as JSON, may hold references. Quick, and not exact."""
    return b'"$' in payload and any(mark in payload for mark in _MARKS)


def read_reference(value: Mapping[str, Any]) -> Reference | None:
    """Return the reference that a JSON object is, if it is one."""
    for kind in (STEP, INPUT, RESULTS):
        if kind in value:
            path = value.get("path", ())
            return Reference(kind, value[kind], tuple(path), bool(value.get("optional")))
    return None


def escape(value: Any) -> Any:
    """Return a plain value such that none of its objects is taken for a reference."""
    if isinstance(value, Mapping):
        return escaped({key: escape(each) for key, each in value.items()})
    if isinstance(value, list | tuple):
        return [escape(each) for each in value]
    return value


def escaped(members: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object, whose members are written already, such that it isn't taken for a reference."""
    return {VALUE: members} if any(key in members for key in _KEYS) else members


def find_references(value: Any) -> Iterator[Reference]:
    """Yield the references inside a value."""
    if isinstance(value, Mapping):
        if VALUE in value:
            inside = value[VALUE]
            for each in inside.values() if isinstance(inside, Mapping) else ():
                yield from find_references(each)
        elif (reference := read_reference(value)) is not None:
            yield reference
        else:
            for each in value.values():
                yield from find_references(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from find_references(each)


def replace_references(value: Any, replaced: Callable[[Reference], Any]) -> Any:
    """Return the value with something else in place of each reference; `ABSENT` leaves its name out."""
    if isinstance(value, Mapping):
        if VALUE in value and isinstance(value[VALUE], Mapping):
            return _members(value[VALUE], replaced)
        if (reference := read_reference(value)) is not None:
            return replaced(reference)
        return _members(value, replaced)
    if isinstance(value, list | tuple):
        return [replace_references(each, replaced) for each in value]
    return value


def _members(value: Mapping[str, Any], replaced: Callable[[Reference], Any]) -> dict[str, Any]:
    members = {key: replace_references(each, replaced) for key, each in value.items()}
    return {key: each for key, each in members.items() if each is not ABSENT}


def renamed(value: Any, numbers: Mapping[str, int]) -> Any:
    """Return arguments whose references to steps use numbers, as they are stored for the workers."""

    def to_number(reference: Reference) -> Any:
        if reference.kind in (STEP, RESULTS):
            number = numbers[str(reference.name)]
            return Reference(reference.kind, number, reference.path).to_json()
        return reference.to_json()

    return _rewrap(value, to_number)


def _rewrap(value: Any, replaced: Callable[[Reference], Any]) -> Any:
    """As `replace_references`, keeping the escapes: the result is read again."""
    if isinstance(value, Mapping):
        if VALUE in value and isinstance(value[VALUE], Mapping):
            return {VALUE: {key: _rewrap(each, replaced) for key, each in value[VALUE].items()}}
        if (reference := read_reference(value)) is not None:
            return replaced(reference)
        return {key: _rewrap(each, replaced) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rewrap(each, replaced) for each in value]
    return value


def complete(
    arguments: Any, given: Mapping[str, Any], results: Mapping[int, Any], step: str,
    members: Mapping[int, Any] | None = None,
) -> Any:  # fmt: skip
    """Return arguments with the values that their references stand for. `members`: results of maps.

    Raises `InvalidArguments`, naming the step, for a path that leads nowhere.
    """

    def value_of(reference: Reference) -> Any:
        if reference.kind == INPUT:
            if reference.name not in given:
                if reference.optional:
                    return ABSENT
                raise InvalidArguments(f"step {step!r}: the run's input has no {reference.name!r}")
            return follow(given[str(reference.name)], reference, step)
        if reference.kind == RESULTS:
            return follow((members or {}).get(int(reference.name)), reference, step)
        return follow(results.get(int(reference.name)), reference, step)

    return replace_references(arguments, value_of)


def follow(value: Any, reference: Reference, step: str) -> Any:
    """Return what the reference's path leads to inside a value."""
    for key in reference.path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            raise InvalidArguments(
                f"step {step!r}: {reference} leads nowhere: there is no {key!r} in "
                f"{_kind_of(value)}"
            ) from None
    return value


def _kind_of(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object with " + (", ".join(map(repr, list(value)[:10])) or "no members")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"a list of {len(value)}"
    return "null" if value is None else f"a {type(value).__name__}"
