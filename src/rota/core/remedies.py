"""Decides what somebody can do about what an explanation says: the actions beside its sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rota.model import Remedy

Facts = Mapping[str, Any]
_NAMED = 3  # jobs that hold a limit


def remedies_of(code: str, facts: Facts) -> tuple[Remedy, ...]:
    """Return what can be done, the most likely first. Every code has something."""
    found = _BY_CODE.get(code, _cluster)(facts)
    return tuple(dict.fromkeys(found))


def queue_of(lane: str) -> str:
    """Return the queue of a lane: ``default/mail+gpu#x`` is of ``mail``."""
    return lane.partition("/")[2].partition("#")[0].partition("+")[0]


def _cluster(facts: Facts) -> list[Remedy]:
    return [Remedy("show_cluster", "", "Cluster"), _queue(facts)]


def _queue(facts: Facts) -> Remedy:
    name = queue_of(facts["lane"])
    return Remedy("show_queue", name, f"Queue {name}")


def _paused(facts: Facts) -> list[Remedy]:
    name = queue_of(facts["lane"])
    return [Remedy("resume_queue", name, "Resume the queue"), _queue(facts)]


def _busy(facts: Facts) -> list[Remedy]:
    return [_queue(facts), Remedy("show_cluster", "", "Cluster")]


def _for_room(facts: Facts) -> list[Remedy]:
    """Lead to what holds the resources that it waits for."""
    holders = [holder for machine in facts.get("machines") or () for holder in machine.holders]
    return [
        Remedy("show_cluster", "", "Cluster"),
        *(Remedy("show_job", each.id, f"Holder …{each.id[-8:]}") for each in holders[:_NAMED]),
        _queue(facts),
    ]


def _waiting_for_retry(facts: Facts) -> list[Remedy]:
    return [Remedy("retry_job", str(facts["id"]), "Retry now")]


def _not_due(facts: Facts) -> list[Remedy]:
    return [Remedy("cancel_job", str(facts["id"]), "Cancel"), _queue(facts)]


def _ordered(facts: Facts) -> list[Remedy]:
    found = []
    for limit in facts.get("limits") or ():
        if limit["order_job"] is None:
            continue
        if limit["order_state"] == "failed":
            found.append(Remedy("retry_job", str(limit["order_job"]), "Retry the job before it"))
        found.append(Remedy("show_job", str(limit["order_job"]), "Job before it"))
    return [*found, _queue(facts)]


def _limited(facts: Facts) -> list[Remedy]:
    """Raise the limit where it is set: at the queue, or in the code of the task."""
    found: list[Remedy] = []
    for limit in facts.get("limits") or ():
        name = limit["name"] or ""
        kind, _, rest = name.partition(":")
        if kind == "queue":
            found.append(Remedy("raise_limit", queue_of(facts["lane"]), "Raise the limit"))
        elif kind == "task":
            found.append(Remedy("show_task", rest.partition("/")[0], "Task"))
        found += [
            Remedy("show_job", str(holder), f"Holder …{str(holder)[-8:]}")
            for holder in (limit["holders"] or ())[:_NAMED]
        ]
    return [*found, _queue(facts)]


def _node(facts: Facts) -> list[Remedy]:
    if facts["node"] is None:
        return _cluster(facts)
    return [Remedy("show_node", str(facts["node"]), "Node"), _queue(facts)]


def _waiting(facts: Facts) -> list[Remedy]:
    if facts.get("schedule"):
        return [Remedy("show_schedule", facts["schedule"], f"Schedule {facts['schedule']}")]
    return [_queue(facts)]


def _failed(facts: Facts) -> list[Remedy]:
    return [
        Remedy("retry_job", str(facts["id"]), "Retry"),
        Remedy("show_failures", facts["task"], "Other failures of this task"),
    ]


def _ended(facts: Facts) -> list[Remedy]:
    found = [Remedy("submit_again", str(facts["id"]), "Submit again…")]
    return [*_waiting(facts), *found] if facts.get("schedule") else found


_BY_CODE: Mapping[str, Callable[[Facts], list[Remedy]]] = {
    "queue_paused": _paused, "all_busy": _busy, "starting": _busy, "about_to_start": _busy,
    "waiting_for_retry": _waiting_for_retry, "not_due": _not_due, "debounced": _not_due,
    "throttled": _not_due, "waiting_for_order": _ordered, "rate_reached": _limited,
    "limit_reached": _limited, "node_lost": _node, "running": _node, "stopping": _node,
    "waiting_for_limit": _node, "waiting_for_resources": _for_room,
    "waiting": _waiting, "failed": _failed, "succeeded": _ended, "cancelled": _ended,
    "skipped": _ended,
}  # fmt: skip
