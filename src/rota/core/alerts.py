"""Decides what needs somebody's attention, from facts that were read together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol
from uuid import UUID

import msgspec

from rota.core.durations import format_duration
from rota.model import Alert, Count, Remedy, ShardStatus

LATE = 60.0  # seconds that a queue may be late
RECENT = 3600.0  # seconds for which a node that died is an alert
_NAMED = 10
# An alert that has no moment of its own is active again this long after its acknowledgement.
_TIMELESS = timedelta(days=1)
_KINDS = {
    "late": ("job", "started late"),
    "slow": ("job", "took unusually long"),
    "slower": ("task", "became consistently slower"),
    "timed_out": ("job", "stopped after a timeout"),
    "deadline_missed": ("job", "missed the deadline"),
    "missed": ("occurrence", "missed"),
    "run_failed": ("run", "failed"),
    "run_late": ("run", "missed the deadline"),
    "run_parked": ("run", "paused because the code contradicts the history"),
    "overran": ("occurrence", "skipped because the previous run was not over"),
}


class QueueFacts(Protocol):
    """The facts about a queue that alerts depend on."""

    name: str
    paused_at: datetime | None
    ready: Count
    lag: float | None


class NodeFacts(Protocol):
    """The facts about a node that alerts depend on."""

    @property
    def id(self) -> UUID: ...
    @property
    def name(self) -> str: ...
    @property
    def roles(self) -> Sequence[str]: ...
    @property
    def state(self) -> str: ...
    @property
    def heartbeat_age(self) -> float: ...


class Mark(Protocol):
    """An acknowledgement or a silence of an alert."""

    @property
    def acknowledged_at(self) -> datetime | None: ...
    @property
    def silenced_until(self) -> datetime | None: ...
    @property
    def actor(self) -> str: ...
    @property
    def note(self) -> str: ...


def marked(alert: Alert, mark: Mark | None, now: datetime) -> Alert:
    """Return the alert as it stands after what somebody has said of it."""
    if mark is None:
        return alert
    silenced = mark.silenced_until is not None and mark.silenced_until > now
    known = False
    if mark.acknowledged_at is not None:
        renewed = alert.latest_at if alert.latest_at is not None else now - _TIMELESS
        known = mark.acknowledged_at >= renewed
    if not silenced and not known:
        return alert
    return msgspec.structs.replace(
        alert, active=False, acknowledged_at=mark.acknowledged_at if known else None,
        silenced_until=mark.silenced_until if silenced else None, marked_by=mark.actor, note=mark.note,
    )  # fmt: skip


class Window(Protocol):
    """An open maintenance window, as far as an alert needs it."""

    @property
    def name(self) -> str: ...
    @property
    def ends_at(self) -> datetime: ...
    @property
    def actor(self) -> str: ...
    @property
    def note(self) -> str: ...


def in_maintenance(alert: Alert, window: Window) -> Alert:
    """Return the alert as it is in a maintenance window: silenced, unless somebody has marked it."""
    if not alert.active:
        return alert
    return msgspec.structs.replace(
        alert, active=False, silenced_until=window.ends_at, marked_by=window.actor,
        note=window.note or f"maintenance {window.name}",
    )  # fmt: skip


def of_failures(failed: int, latest: datetime | None) -> list[Alert]:
    if not failed:
        return []
    return [Alert(
        key="jobs-failed", severity="problem", latest_at=latest,
        text=f"{_count(failed, 'job')} failed in the last hour",
        remedies=(Remedy("show_dead", "", "See why, or retry"),),
    )]  # fmt: skip


def of_queues(queues: Iterable[QueueFacts], now: datetime, more_late: int = 0) -> list[Alert]:
    """`more_late`: how many other queues are late, which have one alert together."""
    found: list[Alert] = []
    if more_late:
        found.append(Alert(
            key="queues-late", severity="problem",
            text=f"{_count(more_late, 'other queue')} {'is' if more_late == 1 else 'are'} late",
            remedies=(Remedy("show_queues", "", "Queues"),),
        ))  # fmt: skip
    for queue in queues:
        show = Remedy("show_queue", queue.name, f"Queue {queue.name}")
        if queue.paused_at is not None:
            held = f", {_counted(queue.ready)} in it" if queue.ready.value else ""
            found.append(Alert(
                key=f"queue-paused:{queue.name}", severity="warning", latest_at=queue.paused_at,
                text=f"Queue {queue.name} is paused{held}",
                remedies=(Remedy("resume_queue", queue.name, "Resume"), show),
            ))  # fmt: skip
        elif queue.lag is not None and queue.lag > LATE:
            found.append(Alert(
                key=f"queue-late:{queue.name}", severity="problem",
                latest_at=now - timedelta(seconds=queue.lag),
                text=f"Queue {queue.name} is late by {format_duration(queue.lag)}, "
                     f"{_counted(queue.ready)} ready",
                remedies=(show, Remedy("show_ready", queue.name, "Ready jobs")),
            ))  # fmt: skip
    return found


def of_events(rows: Iterable[Any]) -> list[Alert]:
    """`rows`: of the query events_lately, a row for each kind."""
    found = []
    for row in rows:
        if row["kind"] not in _KINDS:
            continue
        noun, what = _KINDS[row["kind"]]
        found.append(Alert(
            key=f"event:{row['kind']}", severity="warning", latest_at=row["last_at"],
            text=f"{_count(row['count'], noun)} {what}, the latest of {row['task']}",
            remedies=(*_of_event(row), Remedy("show_events", row["kind"], "Events")),
        ))  # fmt: skip
    return found


def _of_event(row: Any) -> list[Remedy]:
    if row["kind"].startswith("run_"):
        return [Remedy("show_runs", "", "Runs")]
    if row["job_id"] is not None:
        return [Remedy("show_job", str(row["job_id"]), "The latest")]
    if row["kind"] == "slower":
        return [Remedy("show_task", row["task"], "Task")]
    return [Remedy("show_schedules", "", "Schedules")]


def of_schedules(names: Sequence[str]) -> list[Alert]:
    """`names`: schedules that some node can't plan."""
    if not names:
        return []
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [Alert(
        key="schedules-set-aside", severity="problem",
        text=f"{_count(len(names), 'schedule')} can't be planned: {', '.join(names[:_NAMED])}{more}",
        remedies=(Remedy("show_schedule", names[0], f"Schedule {names[0]}"),
                  Remedy("show_schedules", "", "Schedules")),
    )]  # fmt: skip


def of_nodes(nodes: Sequence[NodeFacts], now: datetime) -> list[Alert]:
    found = []
    if not any("worker" in node.roles for node in nodes if node.state in ("live", "draining")):
        found.append(Alert(
            key="no-worker", severity="problem", text="No worker is alive to run jobs",
            remedies=(Remedy("show_cluster", "", "Cluster"),),
        ))  # fmt: skip
    for state, what in (("dead", "died"), ("silent", "went silent")):
        recent = [node for node in nodes if node.state == state and node.heartbeat_age < RECENT]
        if recent:
            recent.sort(key=lambda node: node.heartbeat_age)
            names = ", ".join(sorted({node.name for node in recent})[:3])
            latest = recent[0]
            found.append(Alert(
                key=f"nodes-{state}", severity="problem" if state == "dead" else "warning",
                text=f"{_count(len(recent), 'node')} {what}: {names}",
                latest_at=now - timedelta(seconds=latest.heartbeat_age),
                remedies=(Remedy("show_node", str(latest.id), f"Node {latest.name}"),
                          Remedy("show_ended_nodes", "", "Cluster")),
            ))  # fmt: skip
    return found


def of_shards(shards: Sequence[ShardStatus]) -> list[Alert]:
    """Return an alert for shards without an owner: schedulers work for all namespaces."""
    free = sum(shard.owner is None for shard in shards)
    if not free:
        return []
    text = f"{_count(free, 'shard')} of {len(shards)} have no scheduler"
    if free == len(shards):
        text = "No scheduler is alive to release jobs and to fire schedules"
    return [Alert(
        key="shards-free", severity="problem", text=text,
        remedies=(Remedy("show_cluster", "", "Cluster"),),
    )]  # fmt: skip


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _counted(count: Count) -> str:
    return ("" if count.exact else "about ") + _count(count.value, "job")
