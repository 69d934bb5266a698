"""Settings of queues in YAML.

    queues:
      imports:
        concurrency: 40
        concurrency_per_key: 3
        rate: 20/s
      reports:
        policy: fair
        weights: {acme: 5}
        max_depth: 10000
        max_run_time: 2h
        history: failures

A queue of a file has these settings and no others: what is left out is at its default. All errors of all
files are reported at once, each with its line and field, and a file with an error is not used at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, get_args

import msgspec
import yaml

from rota.config import check_name
from rota.core.history_modes import check_history
from rota.core.keys import Rate, check_key, check_most
from rota.core.time.interval import duration_text
from rota.errors import ConfigError, InvalidArguments
from rota.files.yaml_nodes import Place, Problems, QuotingDumper, Source, Value, read_document
from rota.files.yaml_values import converted, duration, once, shown, whole
from rota.model import QueuePolicy
from rota.operations.queues import DEFAULTS, check_depth, check_run_time, check_weight


class QueueFile(msgspec.Struct, frozen=True):
    """A queue in a file: its settings, and the weights of its fairness keys."""

    settings: dict[str, Any]
    weights: dict[str, float]


class WantedQueues(msgspec.Struct, frozen=True):
    """The queues of a set of files, with their positions."""

    queues: dict[str, QueueFile]
    places: dict[str, Place]


def read_queues(sources: Iterable[Source]) -> WantedQueues:
    """Read files. A `ConfigError` has a line for each error in any of them."""
    problems = Problems()
    found: list[tuple[Source, str, Value]] = []
    for source in sources:
        root = read_document(source, problems)
        if root is None:
            continue
        entries = root.entries(("queues",))
        if "queues" in entries:
            found += [(source, *each) for each in entries["queues"].entries().items()]
    wanted = WantedQueues({}, {})
    for _, name, value in once(found):
        wanted.places[name] = (value.key or value).place
        wanted.queues[name] = _queue(name, value)
    problems.raise_if_any()
    return wanted


def _queue(name: str, value: Value) -> QueueFile:
    try:
        check_name("queue", name)
    except ConfigError as error:
        (value.key or value).report(str(error))
    entries = value.entries((*DEFAULTS, "weights"))
    settings = {
        field: converted(entries[field], _checked(field))
        for field in DEFAULTS
        if field in entries and not entries[field].is_null
    }
    if "rate_burst" in settings and "rate" not in settings:
        entries["rate_burst"].report("needs a rate")
    elif isinstance(settings.get("rate"), str):
        place = entries["rate_burst" if "rate_burst" in settings else "rate"]
        converted(place, lambda _: Rate.parse(settings["rate"], settings.get("rate_burst")))
    weights = entries["weights"].entries() if "weights" in entries else {}
    if weights and settings.get("policy") != "fair":
        entries["weights"].report("weights are of fair queues: add `policy: fair`")
    return QueueFile(
        settings, {key: converted(weight, _weight(key)) for key, weight in weights.items()}
    )


def _checked(field: str) -> Callable[[Value], Any]:
    def read(value: Value) -> Any:
        found = _READERS.get(field, whole)(value)
        if field in _CHECKS and found is not None:
            _CHECKS[field](found)
        return found

    return read


def _policy(value: Value) -> str | None:
    text = value.text()
    if text is not None and text not in get_args(QueuePolicy):
        raise ConfigError(f"{text!r} is none of {', '.join(get_args(QueuePolicy))}")
    return text


def _weight(key: str) -> Callable[[Value], float]:
    def read(value: Value) -> float:
        try:
            check_key("fairness_key", key or None)
        except InvalidArguments as error:
            raise ConfigError(str(error)) from None
        found = value.data()
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise ConfigError(f"must be a number, not {shown(found)}")
        check_weight(found)
        return float(found)

    return read


_READERS: Mapping[str, Callable[[Value], Any]] = {
    "policy": _policy, "rate": Value.text, "max_run_time": duration, "history": Value.text,
}  # fmt: skip
_CHECKS: Mapping[str, Callable[[Any], None]] = {
    "max_depth": check_depth, "max_run_time": check_run_time, "history": check_history,
    **{
        field: partial(check_most, field)
        for field in ("concurrency", "concurrency_per_key", "rate_burst")
    },
}  # fmt: skip


def write_queues(queues: Mapping[str, QueueFile]) -> str:
    """Return a file with these queues."""
    written = {
        name: {
            **{
                field: duration_text(value) if field == "max_run_time" else value
                for field, value in one.settings.items()
            },
            **({"weights": one.weights} if one.weights else {}),
        }
        for name, one in queues.items()
    }
    return yaml.dump(
        {"queues": written}, Dumper=QuotingDumper, sort_keys=False, allow_unicode=True, width=100
    )
