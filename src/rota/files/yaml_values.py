"""Values of YAML files: durations, numbers, names and options, with errors at their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.core.time.interval import seconds_of
from rota.errors import ConfigError, SubmitError
from rota.files.yaml_nodes import Source, Value
from rota.task import SubmitOptions

_YEARS = range(1900, 2201)  # times far outside can't be converted between zones


def duration(value: Value) -> float | None:
    text = value.text()
    return None if text is None else seconds_of(text, last(value))


def whole(value: Value) -> int:
    number = value.data()
    if not isinstance(number, int) or isinstance(number, bool):
        raise ConfigError(f"must be a whole number, not {shown(number)}")
    return number


def boolean(value: Value) -> bool:
    found = value.data()
    if not isinstance(found, bool):
        raise ConfigError(f"must be true or false, not {shown(found)}")
    return found


def moment(value: Value) -> datetime | None:
    text = value.text()
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a time; write 2027-01-31T09:00:00+01:00") from None
    if moment.year not in _YEARS:
        raise ConfigError(f"{text!r} is not in the years {_YEARS[0]} to {_YEARS[-1]}")
    return moment


def names(value: Value) -> tuple[str, ...] | None:
    return tuple(text for each in value.items() if (text := each.text()) is not None)


def mapping(value: Value) -> dict[str, Any]:
    if not value.is_mapping:
        raise ConfigError("must be a mapping such as {memory: 2GB, gpu: 1}")
    found: dict[str, Any] = value.data()
    return found


def once(found: Sequence[tuple[Source, str, Value]]) -> Iterable[tuple[Source, str, Value]]:
    first: dict[str, Value] = {}
    for source, name, value in found:
        if name in first:
            (value.key or value).report(f"is also in {first[name].place}")
        else:
            first[name] = value
            yield source, name, value


def converted(value: Value, read: Callable[[Value], Any]) -> Any:
    """Return the value, or report an error and return None."""
    try:
        return read(value)
    except ConfigError as error:
        value.report(str(error).removeprefix(f"{last(value)}: "))
        return None


def last(value: Value) -> str:
    return value.path.rpartition(".")[2]


def shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()[:60]


def option(value: Value, name: str) -> Any:
    """Return an option of jobs, such as a queue; or report an error and return None."""
    found = converted(value, OPTION_READERS[name])
    if found is None:
        return None
    try:
        SubmitOptions.checked(**{**_WITH.get(name, {}), name: found})
    except (SubmitError, ConfigError) as error:
        value.report(str(error))
        return None
    return list(found) if isinstance(found, tuple) else found


OPTION_READERS: dict[str, Callable[[Value], Any]] = {
    "queue": Value.text, "priority": whole, "needs": names, "timeout": duration,
    "heartbeat_timeout": duration, "max_attempts": whole, "tags": names,
    "resources": mapping, "near": Value.text, "near_patience": duration,
}  # fmt: skip
# Without which an option is refused. Each is checked by itself, so that its error has its place.
_WITH: dict[str, dict[str, Any]] = {"near_patience": {"near": "anywhere"}}
