"""Unique jobs: what a second submit does while a first one waits, runs, or is not long ago."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from rota.core.keys import check_key, check_source, key_from
from rota.errors import ConfigError, InvalidArguments

UniqueScope: TypeAlias = Literal["waiting", "unfinished"]
UniqueConflict: TypeAlias = Literal["return", "refuse", "replace"]
ThrottleKeep: TypeAlias = Literal["first", "last"]
UniqueKeySource: TypeAlias = str | Sequence[str] | Callable[..., Any]

LONGEST = 3_155_760_000.0  # seconds
_MODES = ("unique", "debounce", "throttle")
_SCOPES = ("waiting", "unfinished")
_CONFLICTS = ("return", "refuse", "replace")
_PLAIN = 200  # characters: a longer key of several arguments is stored as a digest


class Options(Protocol):
    """The options of unique jobs, as a task declares or a submit gives them. None: not given."""

    @property
    def unique(self) -> Any: ...
    @property
    def unique_conflict(self) -> Any: ...
    @property
    def debounce(self) -> Any: ...
    @property
    def debounce_max(self) -> Any: ...
    @property
    def throttle(self) -> Any: ...
    @property
    def throttle_keep(self) -> Any: ...


class Unique(msgspec.Struct, frozen=True, omit_defaults=True):
    """The terms on which a job is unique, for rota.submit_unique(). Without a key: by its arguments."""

    per: str  # waiting, unfinished, window, debounce or throttle
    key: str | None = None
    conflict: str = "return"  # or refuse, replace; of a throttle: last
    seconds: float | None = None
    latest: float | None = None  # of a debounce
    queue: str | None = None  # where a job may be changed; None: wherever it waits

    @property
    def sets_time(self) -> bool:
        return self.per in ("debounce", "throttle")

    @property
    def is_punctual(self) -> bool:
        """Whether its job waits for its time without being claimed."""
        return self.per == "debounce" or self.conflict == "last"

    @property
    def changes(self) -> bool:
        """Whether a second submit may change the first job."""
        return self.per == "debounce" or self.conflict in ("replace", "last")

    @classmethod
    def parse(cls, options: Options) -> Unique | None:
        """Read the options of a task or a submit. None: nothing has to be unique."""
        given = [name for name in _MODES if getattr(options, name) is not None]
        if len(given) > 1:
            raise _wrong(given[1], f"give one of unique, debounce and throttle, not {given[0]} too")
        for field, needed in _NEEDS.items():
            if getattr(options, field) is not None and needed not in given:
                raise _wrong(field, f"needs {needed}")
        if not given:
            return None
        return {"unique": _unique, "debounce": _debounced, "throttle": _throttled}[given[0]](
            options
        )


def _unique(options: Options) -> Unique:
    unique, conflict = options.unique, options.unique_conflict or "return"
    if conflict not in _CONFLICTS:
        known = ", ".join(_CONFLICTS)
        raise _wrong("unique_conflict", f"must be one of {known}, not {conflict!r:.100}")
    if conflict == "replace" and unique != "waiting":
        raise _wrong(
            "unique_conflict",
            'replace needs unique="waiting": the arguments of a job that has started can\'t be '
            "replaced",
        )
    if not isinstance(unique, str):
        return Unique("window", conflict=conflict, seconds=_seconds("unique", unique))
    if unique not in _SCOPES:
        known = '"waiting", "unfinished" or a number of seconds'
        raise _wrong("unique", f"must be {known}, not {unique!r:.100}")
    return Unique(unique, conflict=conflict)


def _debounced(options: Options) -> Unique:
    seconds, latest = _seconds("debounce", options.debounce), None
    if options.debounce_max is not None:
        latest = _seconds("debounce_max", options.debounce_max)
        if latest < seconds:
            raise _wrong("debounce_max", f"must be at least debounce, {seconds:g} s")
    return Unique("debounce", seconds=seconds, latest=latest)


def _throttled(options: Options) -> Unique:
    if options.throttle_keep not in (None, "first", "last"):
        raise _wrong("throttle_keep", f"must be first or last, not {options.throttle_keep!r:.100}")
    conflict = "last" if options.throttle_keep == "last" else "return"
    return Unique("throttle", conflict=conflict, seconds=_seconds("throttle", options.throttle))


_NEEDS = {"unique_conflict": "unique", "debounce_max": "debounce", "throttle_keep": "throttle"}


def _seconds(field: str, value: object) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not 0.001 <= value <= LONGEST:  # type: ignore[operator]
        raise _wrong(field, f"must be 0.001 seconds to 100 years, not {value!r:.100}")
    return float(value)  # type: ignore[arg-type]


def _wrong(field: str, problem: str) -> InvalidArguments:
    return InvalidArguments(f"{field}: {problem}", field=field)


def check_unique_source(source: object, function: Callable[..., Any], task: str) -> None:
    """Refuse a declared `unique_key` that names no parameter of the task's function."""
    if isinstance(source, Sequence) and not isinstance(source, str):
        if not source:
            raise ConfigError(f"task {task!r}: unique_key names no parameter")
        for name in source:
            check_source("unique_key", name, function, task)
    else:
        check_source("unique_key", source, function, task)


def unique_key_of(
    source: UniqueKeySource | None, function: Callable[..., Any], arguments: Mapping[str, Any]
) -> str | None:
    """Return a job's unique key by what its task declares. None: it is unique by all its arguments."""
    if source is None or isinstance(source, str) or callable(source):
        return key_from("unique_key", source, function, arguments)
    parameters = inspect.signature(function).parameters
    values = {}
    for name in source:
        default = parameters[name].default
        values[name] = arguments.get(name, None if default is inspect.Parameter.empty else default)
    text = msgspec.json.encode(values, order="sorted", enc_hook=repr).decode()
    if len(text) > _PLAIN:
        text = "sha256 " + hashlib.sha256(text.encode()).hexdigest()
    check_key("unique_key", text)
    return text
