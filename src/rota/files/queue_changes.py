"""The difference between the settings of queues and those of files, to be shown and then applied.

Each queue is changed in one transaction, and its weights after it. A run that is cut off in between is
finished by running it again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from rota.app import App
from rota.core.keys import Rate
from rota.core.time.interval import duration_text
from rota.files.changes import Change, compare
from rota.files.yaml_queues import QueueFile
from rota.operations.queues import DEFAULTS, settings_of


async def read_present(app: App, names: Container[str] = ()) -> dict[str, QueueFile]:
    """Return all queues with the settings that are not at their defaults.

    Weights are those of fair queues, and of the ones with these names.
    """
    found: dict[str, QueueFile] = {}
    for queue in await app.queues.list():
        has_weights = queue.policy == "fair" or queue.name in names
        shares = await app.queues.shares(queue.name) if has_weights else ()
        weights = {share.key: share.weight for share in shares if share.weight != 1}
        settings = {k: v for k, v in settings_of(queue).items() if v != DEFAULTS[k]}
        found[queue.name] = QueueFile(settings, weights)
    return found


def difference(
    present: Mapping[str, QueueFile], wanted: Mapping[str, QueueFile], *, prune: bool = False
) -> list[Change]:
    """Return the changes from the stored to the wanted settings.

    With `prune`, the settings of all other queues are set to their defaults.
    """
    changes = [
        compare("queue", name, _flat(present[name]) if name in present else None, _flat(one))
        for name, one in wanted.items()
    ]
    for name, one in present.items():
        if prune and name not in wanted and _flat(one):
            changes.append(compare("queue", name, _flat(one), {}))
    return changes


def _flat(one: QueueFile) -> dict[str, Any]:
    """Return the fields in one spelling, with each weight as one of them."""
    settings = {k: v for k, v in one.settings.items() if v != DEFAULTS[k]}
    if isinstance(settings.get("rate"), str):
        rate = Rate.parse(settings["rate"], settings.get("rate_burst"))
        settings |= {"rate": str(rate), "rate_burst": rate.burst}
    if settings.get("max_run_time") is not None:
        settings["max_run_time"] = duration_text(settings["max_run_time"])
    weights = {f"weights.{key}": weight for key, weight in one.weights.items() if weight != 1}
    return settings | weights


async def apply(
    app: App, changes: Iterable[Change], present: Mapping[str, QueueFile],
    wanted: Mapping[str, QueueFile],
) -> None:  # fmt: skip
    """Apply changes: each queue in one transaction, then its weights."""
    nothing = QueueFile({}, {})
    for change in changes:
        if change.action == "unchanged":
            continue
        name, one = change.name, wanted.get(change.name, nothing)
        before = present.get(name, nothing)
        await app.queues.configure(name, **{**DEFAULTS, **one.settings})
        for key in sorted(before.weights.keys() | one.weights.keys()):
            if before.weights.get(key, 1) != one.weights.get(key, 1):
                await app.queues.set_weight(name, key, one.weights.get(key))
