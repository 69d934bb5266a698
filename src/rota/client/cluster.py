"""`client.pools`, `client.queues`, `client.alerts`, `client.bulk`, `client.nodes`, `client.tasks`,
`client.dead` and `client.events`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

from msgspec import UNSET, UnsetType

from rota.client import wire
from rota.client.connections import C, Resource, call, iteration
from rota.client.exchanges import Exchange, Page, Pages, fetch, order, send
from rota.client.streams import Stream
from rota.model import (
    Alert,
    BulkChange,
    DeadCount,
    DeadGroup,
    Event,
    FairShare,
    LimitHolder,
    LimitStatus,
    MaintenanceWindow,
    ManyChanged,
    NodeStatus,
    PoolStatus,
    QueuePolicy,
    QueueStatus,
    RunStats,
    ShareService,
    TaskInfo,
)


def _path(*parts: Any) -> str:
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


class Pools(Resource[C]):
    """`client.pools`"""

    @call
    def list(self) -> Exchange[Sequence[PoolStatus]]:
        """List pools of workers, with how many slots they should have."""
        return (yield from fetch("/v1/pools", wire.PoolList)).items

    @call
    def get(self, name: str) -> Exchange[PoolStatus]:
        """Return a pool."""
        return fetch(_path("pools", name), PoolStatus)

    @call
    def put(
        self, name: str, *, max_slots: int, min_slots: int = 0, queues: Sequence[str] = (),
        capabilities: Sequence[str] = (), slots_per_worker: int = 1, drain_target: float = 60.0,
    ) -> Exchange[PoolStatus]:  # fmt: skip
        """Define a pool, or change it: what it serves, and how many slots it may have."""
        body = {
            "max_slots": max_slots, "min_slots": min_slots, "queues": queues,
            "capabilities": capabilities, "slots_per_worker": slots_per_worker,
            "drain_target": drain_target,
        }  # fmt: skip
        return send("PUT", _path("pools", name), PoolStatus, body, repeatable=True)

    @call
    def delete(self, name: str) -> Exchange[PoolStatus]:
        """Delete a pool. Its workers stay."""
        return send("DELETE", _path("pools", name), PoolStatus)


class Queues(Resource[C]):
    """`client.queues`"""

    @call
    def list(self) -> Exchange[Sequence[QueueStatus]]:
        """List queues, with the numbers of their jobs and their lag."""
        return (yield from fetch("/v1/queues", wire.QueueList)).items

    @call
    def get(self, name: str) -> Exchange[QueueStatus]:
        """Return a queue."""
        return fetch(_path("queues", name), QueueStatus)

    @call
    def pause(self, name: str, *, new: bool = False) -> Exchange[QueueStatus]:
        """Start none of its jobs until it is resumed. Running jobs are not affected. `new`: also a queue
        that no job and no task has used yet."""
        path, query = _path("queues", name, "pause"), {"new": new}
        return send("POST", path, QueueStatus, query=query, repeatable=True)

    @call
    def resume(self, name: str) -> Exchange[QueueStatus]:
        """Start the jobs of a paused queue again."""
        return send("POST", _path("queues", name, "resume"), QueueStatus, repeatable=True)

    @call
    def undo(self, name: str, entry: int) -> Exchange[QueueStatus]:
        """Undo a change of a queue by its id in the audit log, unless it was changed again."""
        return send("POST", _path("queues", name, "undo", entry), QueueStatus)

    @call
    def service(self, name: str) -> Exchange[Sequence[ShareService]]:
        """Return the seconds that fairness keys were served in the last hour, by minute."""
        path = _path("queues", name, "service")
        return (yield from fetch(path, wire.ShareServiceList)).items

    @call
    def configure(
        self, name: str, settings: Mapping[str, Any], *, new: bool = False
    ) -> Exchange[QueueStatus]:
        """Change several settings at once: all of them, or none. What is left out stays as it is.

        `settings`: `policy`, `max_run_time`, `concurrency`, `concurrency_per_key`, `rate`, `rate_burst`,
        `max_depth` and `history`, as in `PUT /v1/queues/{name}`.
        """
        path, query = _path("queues", name), {"new": new}
        return send("PUT", path, QueueStatus, settings, query=query, repeatable=True)

    @call
    def set_max_run_time(
        self, name: str, seconds: float | None, *, new: bool = False
    ) -> Exchange[QueueStatus]:
        """Set how long an attempt of this queue's jobs may run when the job has no timeout.

        An attempt that runs longer is stopped, as after a timeout. None: the installation's maximum
        applies.
        """
        body, query = {"max_run_time": seconds}, {"new": new}
        return send("PUT", _path("queues", name), QueueStatus, body, query=query, repeatable=True)

    @call
    def set_max_depth(
        self, name: str, most: int | None, *, new: bool = False
    ) -> Exchange[QueueStatus]:
        """Set how many jobs of a queue there may be that have not ended; None: no limit.

        Above it submits raise `QueueFull`.
        """
        body, query = {"max_depth": most}, {"new": new}
        return send("PUT", _path("queues", name), QueueStatus, body, query=query, repeatable=True)

    @call
    def set_history(self, name: str, mode: str, *, new: bool = False) -> Exchange[QueueStatus]:
        """Set what is kept of a queue's jobs that succeed: `all`, `failures`, `sample:1%` or `none`."""
        body, query = {"history": mode}, {"new": new}
        return send("PUT", _path("queues", name), QueueStatus, body, query=query, repeatable=True)

    @call
    def set_limits(
        self,
        name: str,
        *,
        concurrency: int | UnsetType | None = UNSET,
        concurrency_per_key: int | UnsetType | None = UNSET,
        rate: str | UnsetType | None = UNSET,
        rate_burst: int | None = None,
        new: bool = False,
    ) -> Exchange[QueueStatus]:
        """Set the limits of a queue: jobs that run at a time, and starts in a period (`100/minute`).

        What is left out stays as it is; None: no limit.
        """
        given = {
            "concurrency": concurrency, "concurrency_per_key": concurrency_per_key, "rate": rate
        }  # fmt: skip
        body: dict[str, Any] = {key: value for key, value in given.items() if value is not UNSET}
        if rate_burst is not None:
            body["rate_burst"] = rate_burst
        path, query = _path("queues", name), {"new": new}
        return send("PUT", path, QueueStatus, body, query=query, repeatable=True)

    @call
    def set_policy(
        self, name: str, policy: QueuePolicy, *, new: bool = False
    ) -> Exchange[QueueStatus]:
        """Set which jobs of a queue start first: `priority`, or `fair` between fairness keys."""
        body, query = {"policy": policy}, {"new": new}
        return send("PUT", _path("queues", name), QueueStatus, body, query=query, repeatable=True)

    @call
    def set_weight(
        self, name: str, key: str, weight: float | None
    ) -> Exchange[Sequence[FairShare]]:
        """Set the weight of a fairness key in a queue; None: the default, 1."""
        body = {"key": key, "weight": weight}
        path = _path("queues", name, "shares")
        return (yield from send("PUT", path, wire.ShareList, body, repeatable=True)).items

    @call
    def shares(self, name: str) -> Exchange[Sequence[FairShare]]:
        """List the shares of a fair queue, the one that is served next first."""
        return (yield from fetch(_path("queues", name, "shares"), wire.ShareList)).items

    @call
    def limits(self) -> Exchange[Sequence[LimitStatus]]:
        """List the limits that are in use: how many jobs run under each, and how many groups wait."""
        return (yield from fetch("/v1/limits", wire.LimitList)).items

    @call
    def holders(self, limit: str) -> Exchange[Sequence[LimitHolder]]:
        """List the jobs that run under a limit."""
        path = f"/v1/limits/holders?name={quote(limit, safe='')}"
        return (yield from fetch(path, wire.HolderList)).items


class Alerts(Resource[C]):
    """`client.alerts`"""

    @call
    def list(self, *, active: bool = False) -> Exchange[Sequence[Alert]]:
        """List alerts; with `active`, without those that are acknowledged or silenced."""
        return (yield from fetch("/v1/alerts", wire.AlertList, active=active)).items

    @call
    def acknowledge(self, key: str, *, note: str = "") -> Exchange[Alert]:
        """Say that somebody has seen an alert. It is active again when it happens again."""
        body = {"key": key, "note": note}
        return send("POST", "/v1/alerts:acknowledge", Alert, body, repeatable=True)

    @call
    def silence(self, key: str, time: str = "1h", *, note: str = "") -> Exchange[Alert]:
        """Silence an alert for a time, such as ``4h``, whatever happens meanwhile."""
        body = {"key": key, "for": time, "note": note}
        return send("POST", "/v1/alerts:silence", Alert, body, repeatable=True)

    @call
    def restore(self, key: str) -> Exchange[None]:
        """Forget that an alert was acknowledged or silenced."""
        return order("POST", "/v1/alerts:restore", {"key": key}, repeatable=False)


class Maintenance(Resource[C]):
    """`client.maintenance`: times in which people are not told of events."""

    @call
    def list(self) -> Exchange[Sequence[MaintenanceWindow]]:
        """List maintenance windows: open, planned, and those that ended within a day."""
        return (yield from fetch("/v1/maintenance", wire.MaintenanceList)).items

    @call
    def get(self, name: str) -> Exchange[MaintenanceWindow]:
        """Return a maintenance window."""
        return fetch(_path("maintenance", name), MaintenanceWindow)

    @call
    def put(
        self, name: str, *, start: datetime | None = None, time: str = "1h",
        kinds: Sequence[str] = (), note: str = "",
    ) -> Exchange[MaintenanceWindow]:  # fmt: skip
        """Define a window, or change it: people are told of no events until it has ended."""
        body = {"start": start, "for": time, "kinds": kinds, "note": note}
        return send("PUT", _path("maintenance", name), MaintenanceWindow, body, repeatable=True)

    @call
    def delete(self, name: str) -> Exchange[MaintenanceWindow]:
        """End a window now, or take back one that is planned."""
        return send("DELETE", _path("maintenance", name), MaintenanceWindow)


class Bulk(Resource[C]):
    """`client.bulk`: actions on many jobs, what became of them, and their undo."""

    @call
    def list(self) -> Exchange[Sequence[BulkChange]]:
        """List the newest bulk actions."""
        return (yield from fetch("/v1/jobs/changes", wire.BulkChangeList)).items

    @call
    def get(self, id: UUID | str) -> Exchange[BulkChange]:
        """Return a bulk action with the states of its jobs now."""
        return fetch(_path("jobs", "changes", id), BulkChange)

    @call
    def undo(self, id: UUID | str) -> Exchange[BulkChange]:
        """Bring back the jobs that are still as the action left them. It can be done once."""
        return send("POST", _path("jobs", "changes", id, "undo"), BulkChange)


class Nodes(Resource[C]):
    """`client.nodes`"""

    @call
    def list(self, *, ended: bool = False) -> Exchange[wire.NodeList]:
        """List the live nodes; with `ended`, also those that stopped or died within the last day."""
        return fetch("/v1/nodes", wire.NodeList, ended=ended)

    @call
    def shards(self, *, hours: float = 24) -> Exchange[wire.ShardList]:
        """List the shards with their owners, and the takeovers of the last hours."""
        return fetch("/v1/shards", wire.ShardList, hours=hours)

    @call
    def get(self, id: UUID | str) -> Exchange[NodeStatus]:
        """Return a node."""
        return fetch(_path("nodes", id), NodeStatus)

    @call
    def drain(self, id: UUID | str) -> Exchange[NodeStatus]:
        """Let a node start no more jobs."""
        return send("POST", _path("nodes", id, "drain"), NodeStatus, repeatable=True)

    @call
    def undrain(self, id: UUID | str) -> Exchange[NodeStatus]:
        """Let a drained node start jobs again."""
        return send("POST", _path("nodes", id, "undrain"), NodeStatus, repeatable=True)

    @call
    def stop(self, id: UUID | str) -> Exchange[NodeStatus]:
        """Let a node drain and end its process."""
        return send("POST", _path("nodes", id, "stop"), NodeStatus, repeatable=True)


class Tasks(Resource[C]):
    """`client.tasks`: what nodes have registered."""

    @call
    def list(self) -> Exchange[Sequence[TaskInfo]]:
        """List the registered tasks, by name."""
        return (yield from fetch("/v1/tasks", wire.TaskList)).items

    @call
    def get(self, name: str) -> Exchange[TaskInfo]:
        """Return a registered task: its options, and JSON Schemas of what it takes and returns."""
        return fetch(_path("tasks", name), TaskInfo)

    @call
    def stats(self, name: str, within: str = "1h") -> Exchange[RunStats]:
        """Return statistics of a task's runs within 15m, 1h, 6h, 24h, 7d or 30d."""
        return fetch(_path("tasks", name, "stats"), RunStats, within=within)


class Dead(Resource[C]):
    """`client.dead`: dead letters, grouped by task and error."""

    @call
    def list(
        self, *, task: str | None = None, queue: str | None = None, limit: int = 100
    ) -> Exchange[Sequence[DeadGroup]]:
        """List dead letters in groups by task and error, the largest first."""
        query = {"task": task, "queue": queue, "limit": limit}
        return (yield from fetch("/v1/dead", wire.DeadGroups, **query)).items

    @call
    def errors(
        self, *, task: str | None = None, queue: str | None = None
    ) -> Exchange[Sequence[DeadCount]]:
        """Count dead letters by task and type of error, the most frequent first."""
        return (yield from fetch("/v1/dead:errors", wire.DeadCounts, task=task, queue=queue)).items

    @call
    def ids(
        self, *, task: str | None = None, queue: str | None = None, error: str | None = None,
        limit: int = 10_000,
    ) -> Exchange[Sequence[UUID]]:  # fmt: skip
        """List the ids of the dead letters that match, oldest first. `error`: the type of error."""
        query = {"task": task, "queue": queue, "error": error, "limit": limit}
        return (yield from fetch("/v1/dead:ids", wire.JobIds, **query)).ids

    @call
    def retry_ids(self, ids: Sequence[UUID]) -> Exchange[Sequence[UUID]]:
        """Run these again, and return those that were. It is not repeated when a response is lost."""
        return (yield from send("POST", "/v1/dead:retry", wire.JobIds, {"ids": ids})).ids

    @call
    def discard_ids(self, ids: Sequence[UUID]) -> Exchange[Sequence[UUID]]:
        """Remove these for good, and return those that were on the list."""
        return (yield from send("POST", "/v1/dead:discard", wire.JobIds, {"ids": ids})).ids

    @call
    def retry(
        self, fingerprint: str, *, dry_run: bool = False, limit: int = 10_000
    ) -> Exchange[ManyChanged]:
        """Run a group's jobs again, the oldest first."""
        return _change_group(fingerprint, "retry", dry_run, limit)

    @call
    def discard(
        self, fingerprint: str, *, dry_run: bool = False, limit: int = 10_000
    ) -> Exchange[ManyChanged]:
        """Remove a group's jobs from the dead letters for good."""
        return _change_group(fingerprint, "discard", dry_run, limit)


def _change_group(
    fingerprint: str, action: str, dry_run: bool, limit: int
) -> Exchange[ManyChanged]:
    body = {"dry_run": dry_run, "limit": limit}
    path = _path("dead", fingerprint, action)
    return send("POST", path, ManyChanged, body, repeatable=dry_run)


class Events(Resource[C]):
    """`client.events`"""

    @iteration
    def list(
        self, *, kind: str | None = None, since: datetime | None = None, limit: int | None = None,
        page_size: int = 100,
    ) -> Pages[Event]:  # fmt: skip
        """List events, newest first."""
        return Pages("/v1/events", Page[Event], {"kind": kind, "since": since}, limit, page_size)

    @iteration
    def follow(self, *, kind: str | None = None, from_start: bool = False) -> Stream[Event]:
        """Follow events as they happen, without end; `from_start`: begin with the stored ones."""
        query = {"kind": kind, "after": "0.0" if from_start else None}
        return Stream("/v1/events/stream", query, Event)
