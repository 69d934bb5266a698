"""The verbs of an app for synchronous code: ``app.sync.jobs.list()``.

Written by docs/generate_sync.py. Each is the coroutine of the same name, run by an event loop in a
thread of its own.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from rota.lib.sync_bridge import sync_bridge

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from typing import Literal
    from uuid import UUID
    from zoneinfo import ZoneInfo

    from msgspec import UnsetType

    from rota.core.administration import (
        EndpointStatus,
        Format,
        NewEndpoint,
        NewWebhook,
        Person,
        RetryNumbers,
        SinkStatus,
        TriggerStatus,
        Webhook,
    )
    from rota.core.declarations import Verdict
    from rota.core.explain import Explanation
    from rota.core.time.calendars import NamedCalendar
    from rota.core.time.lint import Warned
    from rota.core.time.recurrence import Recurrence
    from rota.core.time.schedule import ScheduleSpec
    from rota.core.time.status import (
        Audit,
        LatestOccurrence,
        LoadForecast,
        OccurrenceStatus,
        Preview,
        ScheduleStatus,
    )
    from rota.core.workflow.graph import Graph
    from rota.core.workflow.model import Definition, EachName
    from rota.handle import JobHandle
    from rota.model import (
        Accepted,
        Alert,
        Backfilled,
        BulkChange,
        Cancelled,
        Count,
        DeadCount,
        DeadGroup,
        Discarded,
        Event,
        FairShare,
        GuaranteeName,
        HistoryPartition,
        Job,
        JobSummary,
        LimitHolder,
        LimitStatus,
        LogLine,
        MaintenanceWindow,
        ManyChanged,
        NodeJob,
        NodeStatus,
        PoolStatus,
        QueuePeriod,
        QueuePolicy,
        QueueStatus,
        Run,
        RunChanged,
        RunStats,
        RunStep,
        SavedView,
        ShardStatus,
        ShareService,
        SignalSent,
        Takeover,
        TaskInfo,
        TaskTotals,
        Triggered,
        WorkflowInfo,
    )
    from rota.operations.bulk_changes import Begun, Bulks
    from rota.operations.history import PartitionSize
    from rota.operations.jobs import Action, Ids, LogLines, Summaries
    from rota.operations.preconditions import Precondition
    from rota.operations.runs import Checkpoints, Graphed, Handles, MemberList, RunList, Steps
    from rota.operations.schedule_changes import Change
    from rota.operations.schedule_forecasts import CalendarLoad, ComingSchedule, WeekAhead
    from rota.operations.schedule_reads import Measured
    from rota.operations.schedules import Saved
    from rota.operations.signals import SignalList
    from rota.operations.webhooks import Names
    from rota.operations.workflows import Infos
    from rota.run_handle import Declared, RunHandle
    from rota.store.migrate import Migrated
    from rota.store.rows import NewRun
    from rota.store.search import JobFilter, Looked
    from rota.task import Task
    from rota.workflow import Workflow

T = TypeVar("T")


class _Shell:
    """Runs the coroutines of one asynchronous object."""

    def __init__(self, own: Any, name: str) -> None:
        self._own = own
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name} for synchronous code>"

    def _run(self, call: Callable[[], Coroutine[Any, Any, T]], verb: str) -> T:
        return sync_bridge.call(call, verb, *self._words(verb))

    def _iterate(self, call: Callable[[], AsyncIterator[T]], verb: str) -> Iterator[T]:
        return sync_bridge.iterate(call, verb, *self._words(verb))

    def _words(self, verb: str) -> tuple[str, str]:
        """Return what was called, and what those call instead who have an event loop."""
        return f"{self._name}.{verb}()", f"app{self._name[8:]}.{verb}()"


class SyncJobs(_Shell):
    """`app.sync.jobs`"""

    def find(self, id: UUID | str) -> Job | None:
        """Return the job as it is now; None when there is none (any more)."""
        done: Job | None = self._run(lambda: self._own.find(id), "find")
        return done

    def get(self, id: UUID | str) -> Job:
        """Return the job as it is now; `NotFound` when there is none (any more)."""
        done: Job = self._run(lambda: self._own.get(id), "get")
        return done

    def check_kept(self, id: UUID | str) -> None:
        """Raise `HistoryNotKept` if this job succeeded in a queue that does not keep such jobs."""
        self._run(lambda: self._own.check_kept(id), "check_kept")

    def list(
        self,
        *,
        state: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        outcome: str | None = None,
        before: UUID | str | None = None,
        limit: int = 50,
    ) -> builtins.list[Job]:
        """List jobs, newest first. For the next page pass the last id as `before`."""
        done: builtins.list[Job] = self._run(
            lambda: self._own.list(
                state=state,
                task=task,
                queue=queue,
                tag=tag,
                outcome=outcome,
                before=before,
                limit=limit,
            ),
            "list",
        )
        return done

    def look_whole(
        self,
        *,
        state: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        outcome: str | None = None,
        before: UUID | str | None = None,
        limit: int = 50,
    ) -> tuple[Sequence[Job], UUID | None]:
        """List jobs as `list` does, but only among the newest 20,000 (of a state): it takes the same time however many jobs there are. Also returns the job up to which it looked if there are older ones: pass that as `before` to go on. None: the page is full, or all jobs were looked at."""
        done: tuple[Sequence[Job], UUID | None] = self._run(
            lambda: self._own.look_whole(
                state=state,
                task=task,
                queue=queue,
                tag=tag,
                outcome=outcome,
                before=before,
                limit=limit,
            ),
            "look_whole",
        )
        return done

    def count(
        self, *, state: str | None = None, task: str | None = None, queue: str | None = None
    ) -> dict[str, int]:
        """Count the jobs by state. The count is exact, and so slow over a long history."""
        done: dict[str, int] = self._run(
            lambda: self._own.count(state=state, task=task, queue=queue), "count"
        )
        return done

    def search(
        self,
        wanted: JobFilter,
        *,
        before: UUID | None = None,
        limit: int = 50,
        patience_ms: int | None = None,
    ) -> Summaries:
        """Find jobs, the newest first, older than `before`. `TooMuchToRead` when that takes too long."""
        done: Summaries = self._run(
            lambda: self._own.search(wanted, before=before, limit=limit, patience_ms=patience_ms),
            "search",
        )
        return done

    def look(self, wanted: JobFilter, *, before: UUID | None = None, limit: int = 50) -> Looked:
        """Find jobs as `search` does, but only among the newest: the answer says how far it looked."""
        done: Looked = self._run(lambda: self._own.look(wanted, before=before, limit=limit), "look")
        return done

    def count_matching(self, wanted: JobFilter, *, quick: bool = False) -> Count:
        """Count the jobs that match: exactly if that takes little time, otherwise an estimate."""
        done: Count = self._run(
            lambda: self._own.count_matching(wanted, quick=quick), "count_matching"
        )
        return done

    def cancel(self, id: UUID | str) -> Cancelled:
        """Cancel a job, or ask it to stop if it runs. Raises `Conflict` if it has ended."""
        done: Cancelled = self._run(lambda: self._own.cancel(id), "cancel")
        return done

    def cancel_many(
        self, ids: Sequence[UUID | str]
    ) -> dict[UUID, Literal["cancelled", "stopping"]]:
        """Cancel jobs; for each that could be cancelled: 'cancelled' or 'stopping'."""
        done: dict[UUID, Literal["cancelled", "stopping"]] = self._run(
            lambda: self._own.cancel_many(ids), "cancel_many"
        )
        return done

    def retry(self, id: UUID | str) -> Accepted:
        """Run a failed job, or one that waits for its next retry, now, counting its attempts afresh."""
        done: Accepted = self._run(lambda: self._own.retry(id), "retry")
        return done

    def retry_many(self, ids: Sequence[UUID | str]) -> Ids:
        """Run failed jobs, and jobs that wait for their next retry, again; the ids of those."""
        done: Ids = self._run(lambda: self._own.retry_many(ids), "retry_many")
        return done

    def discard(self, id: UUID | str) -> Discarded:
        """Take a failed job off the dead-letter list for good. Raises `Conflict` for any other."""
        done: Discarded = self._run(lambda: self._own.discard(id), "discard")
        return done

    def discard_many(self, ids: Sequence[UUID | str]) -> Ids:
        """Take failed jobs off the dead-letter list for good; the ids that were on it."""
        done: Ids = self._run(lambda: self._own.discard_many(ids), "discard_many")
        return done

    def change_many(self, action: Action, ids: Sequence[UUID | str]) -> Ids:
        """Cancel, retry or discard jobs; the ids of those that were changed."""
        done: Ids = self._run(lambda: self._own.change_many(action, ids), "change_many")
        return done

    def applicable(self, action: Action, ids: Sequence[UUID | str]) -> Ids:
        """Return the ids of those jobs to which the action applies in their state."""
        done: Ids = self._run(lambda: self._own.applicable(action, ids), "applicable")
        return done

    def matching(self, action: Action, wanted: JobFilter, limit: int = 10000) -> Ids:
        """Return the ids, oldest first, of the jobs that match and to which the action applies."""
        done: Ids = self._run(lambda: self._own.matching(action, wanted, limit), "matching")
        return done

    def change_matching(
        self,
        action: Action,
        wanted: JobFilter,
        *,
        limit: int = 10000,
        dry_run: bool = False,
        everything: bool = False,
    ) -> ManyChanged:
        """Cancel, retry or discard the jobs that match, the oldest first, all in one transaction."""
        done: ManyChanged = self._run(
            lambda: self._own.change_matching(
                action, wanted, limit=limit, dry_run=dry_run, everything=everything
            ),
            "change_matching",
        )
        return done

    def change_selected(
        self,
        action: Action,
        ids: Sequence[UUID],
        subject: str,
        before: object = None,
        *,
        limit: int,
        dry_run: bool,
    ) -> ManyChanged:
        """Act on jobs that were selected by a description, under the name of that description."""
        done: ManyChanged = self._run(
            lambda: self._own.change_selected(
                action, ids, subject, before, limit=limit, dry_run=dry_run
            ),
            "change_selected",
        )
        return done

    def dead_letters(
        self,
        *,
        task: str | None = None,
        queue: str | None = None,
        error: str | None = None,
        limit: int = 10000,
    ) -> Ids:
        """Return the ids of failed jobs, oldest first."""
        done: Ids = self._run(
            lambda: self._own.dead_letters(task=task, queue=queue, error=error, limit=limit),
            "dead_letters",
        )
        return done

    def retry_dead(
        self,
        *,
        task: str | None = None,
        queue: str | None = None,
        error: str | None = None,
        limit: int = 10000,
    ) -> Ids:
        """Run all failed jobs that match again; the ids of those."""
        done: Ids = self._run(
            lambda: self._own.retry_dead(task=task, queue=queue, error=error, limit=limit),
            "retry_dead",
        )
        return done

    def has_ended(self, id: UUID | str) -> bool:
        """Return whether the job is in a final state."""
        done: bool = self._run(lambda: self._own.has_ended(id), "has_ended")
        return done

    def log_lines(
        self, id: UUID | str, *, attempt: int | None = None, read: dict[int, int], limit: int
    ) -> LogLines:
        """Return the next lines of a job's log. `read`: the last line that was read, by an attempt's token."""
        done: LogLines = self._run(
            lambda: self._own.log_lines(id, attempt=attempt, read=read, limit=limit), "log_lines"
        )
        return done

    def logs(
        self, id: UUID | str, *, attempt: int | None = None, follow: bool = False
    ) -> Iterator[LogLine]:
        """Iterate over what the job printed and logged, line by line."""
        return self._iterate(lambda: self._own.logs(id, attempt=attempt, follow=follow), "logs")

    def explain(self, id: UUID | str) -> Explanation:
        """Explain why the job isn't running now, or what it does."""
        done: Explanation = self._run(lambda: self._own.explain(id), "explain")
        return done


class SyncDead(_Shell):
    """`app.sync.dead`"""

    def groups(
        self, *, task: str | None = None, queue: str | None = None, limit: int = 100
    ) -> builtins.list[DeadGroup]:
        """List the groups, the largest first. Messages that differ in numbers and ids only are one group."""
        done: builtins.list[DeadGroup] = self._run(
            lambda: self._own.groups(task=task, queue=queue, limit=limit), "groups"
        )
        return done

    def count_by_error(
        self, *, task: str | None = None, queue: str | None = None
    ) -> builtins.list[DeadCount]:
        """Count the dead letters by task and type of error, the most frequent first."""
        done: builtins.list[DeadCount] = self._run(
            lambda: self._own.count_by_error(task=task, queue=queue), "count_by_error"
        )
        return done

    def retry_group(
        self, fingerprint: str, *, limit: int = 10000, dry_run: bool = False
    ) -> ManyChanged:
        """Run the jobs of a group again, the oldest first."""
        done: ManyChanged = self._run(
            lambda: self._own.retry_group(fingerprint, limit=limit, dry_run=dry_run), "retry_group"
        )
        return done

    def discard_group(
        self, fingerprint: str, *, limit: int = 10000, dry_run: bool = False
    ) -> ManyChanged:
        """Take the jobs of a group off the list for good. They stay readable for their retention."""
        done: ManyChanged = self._run(
            lambda: self._own.discard_group(fingerprint, limit=limit, dry_run=dry_run),
            "discard_group",
        )
        return done

    def change_group(
        self, action: Action, fingerprint: str, *, limit: int = 10000, dry_run: bool = False
    ) -> ManyChanged:
        """Retry or discard a group; see `retry_group` and `discard_group`."""
        done: ManyChanged = self._run(
            lambda: self._own.change_group(action, fingerprint, limit=limit, dry_run=dry_run),
            "change_group",
        )
        return done


class SyncQueues(_Shell):
    """`app.sync.queues`"""

    def list(self) -> builtins.list[QueueStatus]:
        """List all queues, with how full and how late they are."""
        done: builtins.list[QueueStatus] = self._run(lambda: self._own.list(), "list")
        return done

    def get(self, name: str) -> QueueStatus:
        """Return one queue; `NotFound` when no job has been in it and no task declares it."""
        done: QueueStatus = self._run(lambda: self._own.get(name), "get")
        return done

    def settings(self, name: str) -> QueueStatus:
        """Return a queue without counting its jobs: quick, however many there are."""
        done: QueueStatus = self._run(lambda: self._own.settings(name), "settings")
        return done

    def pause(self, name: str, *, must_exist: bool = False) -> QueueStatus:
        """Start no job of this queue until it is resumed. Running jobs are not affected."""
        done: QueueStatus = self._run(lambda: self._own.pause(name, must_exist=must_exist), "pause")
        return done

    def resume(self, name: str) -> QueueStatus:
        """Start the jobs of a paused queue again."""
        done: QueueStatus = self._run(lambda: self._own.resume(name), "resume")
        return done

    def set_max_run_time(
        self, name: str, seconds: float | None, *, must_exist: bool = False
    ) -> QueueStatus:
        """Set how long an attempt of this queue's jobs may run when the job has no timeout."""
        done: QueueStatus = self._run(
            lambda: self._own.set_max_run_time(name, seconds, must_exist=must_exist),
            "set_max_run_time",
        )
        return done

    def set_max_depth(
        self, name: str, most: int | None, *, must_exist: bool = False
    ) -> QueueStatus:
        """Set how many jobs of this queue there may be that have not ended; None: no limit."""
        done: QueueStatus = self._run(
            lambda: self._own.set_max_depth(name, most, must_exist=must_exist), "set_max_depth"
        )
        return done

    def set_history(self, name: str, mode: str, *, must_exist: bool = False) -> QueueStatus:
        """Set what is kept of this queue's jobs that succeed. Workers know it within seconds."""
        done: QueueStatus = self._run(
            lambda: self._own.set_history(name, mode, must_exist=must_exist), "set_history"
        )
        return done

    def set_limits(
        self,
        name: str,
        *,
        concurrency: int | UnsetType | None = msgspec.UNSET,
        concurrency_per_key: int | UnsetType | None = msgspec.UNSET,
        rate: str | UnsetType | None = msgspec.UNSET,
        rate_burst: int | None = None,
        must_exist: bool = False,
    ) -> QueueStatus:
        """Set the limits of this queue in the whole cluster. What is left out stays as it is."""
        done: QueueStatus = self._run(
            lambda: self._own.set_limits(
                name,
                concurrency=concurrency,
                concurrency_per_key=concurrency_per_key,
                rate=rate,
                rate_burst=rate_burst,
                must_exist=must_exist,
            ),
            "set_limits",
        )
        return done

    def configure(
        self,
        name: str,
        *,
        policy: QueuePolicy | UnsetType = msgspec.UNSET,
        max_run_time: float | UnsetType | None = msgspec.UNSET,
        concurrency: int | UnsetType | None = msgspec.UNSET,
        concurrency_per_key: int | UnsetType | None = msgspec.UNSET,
        rate: str | UnsetType | None = msgspec.UNSET,
        rate_burst: int | UnsetType | None = msgspec.UNSET,
        max_depth: int | UnsetType | None = msgspec.UNSET,
        history: str | UnsetType = msgspec.UNSET,
        must_exist: bool = False,
    ) -> QueueStatus:
        """Change several settings at once: all of them, or none. What is left out stays as it is."""
        done: QueueStatus = self._run(
            lambda: self._own.configure(
                name,
                policy=policy,
                max_run_time=max_run_time,
                concurrency=concurrency,
                concurrency_per_key=concurrency_per_key,
                rate=rate,
                rate_burst=rate_burst,
                max_depth=max_depth,
                history=history,
                must_exist=must_exist,
            ),
            "configure",
        )
        return done

    def set_policy(
        self, name: str, policy: QueuePolicy, *, must_exist: bool = False
    ) -> QueueStatus:
        """Set which jobs of this queue start first. It acts at once, also on jobs that wait."""
        done: QueueStatus = self._run(
            lambda: self._own.set_policy(name, policy, must_exist=must_exist), "set_policy"
        )
        return done

    def set_weight(self, name: str, key: str, weight: float | None) -> None:
        """Set the weight of a fairness key in a queue: what it gets in relation to others."""
        self._run(lambda: self._own.set_weight(name, key, weight), "set_weight")

    def undo(self, name: str, entry: int) -> QueueStatus:
        """Undo a change of a queue: a pause, a resume, a setting or a weight."""
        done: QueueStatus = self._run(lambda: self._own.undo(name, entry), "undo")
        return done

    def service(self, name: str) -> Sequence[ShareService]:
        """Return the seconds that the fairness keys of a queue were served, by minute, of the last hour."""
        done: Sequence[ShareService] = self._run(lambda: self._own.service(name), "service")
        return done

    def shares(self, name: str) -> Sequence[FairShare]:
        """List the shares of a fair queue, the one that is served next first."""
        done: Sequence[FairShare] = self._run(lambda: self._own.shares(name), "shares")
        return done

    def limits(self, name: str | None = None) -> Sequence[LimitStatus]:
        """List the limits that are in use, or the one of this name: how many jobs run, and wait."""
        done: Sequence[LimitStatus] = self._run(lambda: self._own.limits(name), "limits")
        return done

    def holders(self, limit: str) -> Sequence[LimitHolder]:
        """List the jobs that run under a limit, as `limits` names it; those that run longest first."""
        done: Sequence[LimitHolder] = self._run(lambda: self._own.holders(limit), "holders")
        return done


class SyncNodes(_Shell):
    """`app.sync.nodes`"""

    def list(self, *, ended: bool = False) -> builtins.list[NodeStatus]:
        """List the live nodes; with `ended`, also those that stopped or died within the last day."""
        done: builtins.list[NodeStatus] = self._run(lambda: self._own.list(ended=ended), "list")
        return done

    def get(self, id: UUID) -> NodeStatus:
        """Return one node: live, or ended within the last day."""
        done: NodeStatus = self._run(lambda: self._own.get(id), "get")
        return done

    def drain(self, id: UUID) -> NodeStatus:
        """Ask a node to start no more jobs. What runs there ends; what it holds goes to other nodes."""
        done: NodeStatus = self._run(lambda: self._own.drain(id), "drain")
        return done

    def undrain(self, id: UUID) -> NodeStatus:
        """Let a drained node start jobs again."""
        done: NodeStatus = self._run(lambda: self._own.undrain(id), "undrain")
        return done

    def stop(self, id: UUID) -> NodeStatus:
        """Ask a node to drain and to end its process, as SIGTERM does. It can't be taken back."""
        done: NodeStatus = self._run(lambda: self._own.stop(id), "stop")
        return done

    def running(self, id: UUID, limit: int = 200) -> Sequence[NodeJob]:
        """List the jobs that a node runs now, the oldest first."""
        done: Sequence[NodeJob] = self._run(lambda: self._own.running(id, limit), "running")
        return done

    def shards(self) -> Sequence[ShardStatus]:
        """List the shards, each with the scheduler that owns it."""
        done: Sequence[ShardStatus] = self._run(lambda: self._own.shards(), "shards")
        return done

    def takeovers(self, within: float = 86400) -> Sequence[Takeover]:
        """List the takeovers of shards in the last `within` seconds, newest first. Kept for a week."""
        done: Sequence[Takeover] = self._run(lambda: self._own.takeovers(within), "takeovers")
        return done


class SyncPools(_Shell):
    """`app.sync.pools`"""

    def list(self) -> builtins.list[PoolStatus]:
        """List the pools, with how many slots they should have now."""
        done: builtins.list[PoolStatus] = self._run(lambda: self._own.list(), "list")
        return done

    def get(self, name: str) -> PoolStatus:
        """Return one pool."""
        done: PoolStatus = self._run(lambda: self._own.get(name), "get")
        return done

    def put(
        self,
        name: str,
        *,
        max_slots: int,
        min_slots: int = 0,
        queues: Sequence[str] = (),
        capabilities: Sequence[str] = (),
        slots_per_worker: int = 1,
        drain_target: float = 60.0,
    ) -> PoolStatus:
        """Define a pool, or change it."""
        done: PoolStatus = self._run(
            lambda: self._own.put(
                name,
                max_slots=max_slots,
                min_slots=min_slots,
                queues=queues,
                capabilities=capabilities,
                slots_per_worker=slots_per_worker,
                drain_target=drain_target,
            ),
            "put",
        )
        return done

    def delete(self, name: str) -> PoolStatus:
        """Delete a pool. Its workers stay."""
        done: PoolStatus = self._run(lambda: self._own.delete(name), "delete")
        return done


class SyncAlerts(_Shell):
    """`app.sync.alerts`"""

    def list(self, *, active: bool = False) -> Sequence[Alert]:
        """List alerts, the problems first; with `active`, without those acknowledged or silenced."""
        done: Sequence[Alert] = self._run(lambda: self._own.list(active=active), "list")
        return done

    def acknowledge(self, key: str, *, note: str = "") -> Alert:
        """Say that somebody has seen an alert. It is active again when it happens again."""
        done: Alert = self._run(lambda: self._own.acknowledge(key, note=note), "acknowledge")
        return done

    def silence(self, key: str, time: str | float = "1h", *, note: str = "") -> Alert:
        """Silence an alert for a time, such as ``4h``, whatever happens meanwhile; 31 days at most."""
        done: Alert = self._run(lambda: self._own.silence(key, time, note=note), "silence")
        return done

    def restore(self, key: str) -> None:
        """Forget that an alert was acknowledged or silenced."""
        self._run(lambda: self._own.restore(key), "restore")


class SyncMaintenance(_Shell):
    """`app.sync.maintenance`"""

    def list(self) -> Sequence[MaintenanceWindow]:
        """List maintenance windows: open, planned, and those that ended within a day."""
        done: Sequence[MaintenanceWindow] = self._run(lambda: self._own.list(), "list")
        return done

    def get(self, name: str) -> MaintenanceWindow:
        """Return one window."""
        done: MaintenanceWindow = self._run(lambda: self._own.get(name), "get")
        return done

    def put(
        self,
        name: str,
        *,
        start: datetime | None = None,
        time: str | float = "1h",
        kinds: Sequence[str] = (),
        note: str = "",
    ) -> MaintenanceWindow:
        """Define a window, or change it: people are told of no events until it has ended."""
        done: MaintenanceWindow = self._run(
            lambda: self._own.put(name, start=start, time=time, kinds=kinds, note=note), "put"
        )
        return done

    def delete(self, name: str) -> MaintenanceWindow:
        """End a window now, or take back one that is planned. Returns it as it was."""
        done: MaintenanceWindow = self._run(lambda: self._own.delete(name), "delete")
        return done


class SyncBulk(_Shell):
    """`app.sync.bulk`"""

    def get(self, id: UUID) -> BulkChange:
        """Return a bulk action with the states of its jobs now."""
        done: BulkChange = self._run(lambda: self._own.get(id), "get")
        return done

    def list(self, limit: int = 20) -> Bulks:
        """List bulk actions, newest first."""
        done: Bulks = self._run(lambda: self._own.list(limit), "list")
        return done

    def jobs(self, id: UUID, limit: int = 50) -> Sequence[UUID]:
        """Return the ids of the first jobs of a bulk action."""
        done: Sequence[UUID] = self._run(lambda: self._own.jobs(id, limit), "jobs")
        return done

    def undo(self, id: UUID) -> BulkChange:
        """Bring back the jobs that are still as the action left them. It can be done once."""
        done: BulkChange = self._run(lambda: self._own.undo(id), "undo")
        return done

    def begin(self, action: str, ids: Sequence[UUID]) -> Begun:
        """Lock what an undo could bring back. For `Jobs.change_selected`, inside its transaction."""
        done: Begun = self._run(lambda: self._own.begin(action, ids), "begin")
        return done

    def note(self, action: str, changed: Sequence[UUID], begun: Begun) -> UUID:
        """Note what a bulk action has changed. For `Jobs.change_selected`, inside its transaction."""
        done: UUID = self._run(lambda: self._own.note(action, changed, begun), "note")
        return done


class SyncViews(_Shell):
    """`app.sync.views`"""

    def list(self) -> Sequence[SavedView]:
        """List one's own views, then those that others share."""
        done: Sequence[SavedView] = self._run(lambda: self._own.list(), "list")
        return done

    def save(self, name: str, address: str, *, shared: bool = False) -> SavedView:
        """Save a view, or replace one's own view of that name."""
        done: SavedView = self._run(lambda: self._own.save(name, address, shared=shared), "save")
        return done

    def remove(self, name: str) -> SavedView:
        """Remove one's own view."""
        done: SavedView = self._run(lambda: self._own.remove(name), "remove")
        return done


class SyncRegistry(_Shell):
    """`app.sync.registry`"""

    def list(self, *, after: str = "", limit: int = 100) -> builtins.list[TaskInfo]:
        """List the tasks that nodes have registered, by name, from after a name on."""
        done: builtins.list[TaskInfo] = self._run(
            lambda: self._own.list(after=after, limit=limit), "list"
        )
        return done

    def get(self, name: str) -> TaskInfo:
        """Return a task that nodes have registered: its options, arguments and result."""
        done: TaskInfo = self._run(lambda: self._own.get(name), "get")
        return done


class SyncStatistics(_Shell):
    """`app.sync.statistics`"""

    def task(self, name: str, within: str = "1h") -> RunStats:
        """Return the runs of a task, in all queues; `NotFound` if it has no jobs and no node has it."""
        done: RunStats = self._run(lambda: self._own.task(name, within), "task")
        return done

    def queue(self, name: str, within: str = "1h") -> RunStats:
        """Return the runs of a queue, without Rota's own tasks, and how many jobs were ready."""
        done: RunStats = self._run(lambda: self._own.queue(name, within), "queue")
        return done

    def all(self, within: str = "1h") -> RunStats:
        """Return the runs of the namespace, without Rota's own tasks."""
        done: RunStats = self._run(lambda: self._own.all(within), "all")
        return done

    def before(self, within: str = "1h") -> tuple[int, int]:
        """Return the runs of the namespace, and the failures, in the same time before `within`."""
        done: tuple[int, int] = self._run(lambda: self._own.before(within), "before")
        return done

    def queues(
        self, within: str = "1h", *, names: Sequence[str] | None = None
    ) -> dict[str, Sequence[QueuePeriod]]:
        """Return the runs and the numbers of ready jobs of each queue. `names`: only of these."""
        done: dict[str, Sequence[QueuePeriod]] = self._run(
            lambda: self._own.queues(within, names=names), "queues"
        )
        return done

    def tasks(
        self, within: str = "1h", *, names: Sequence[str] | None = None
    ) -> Sequence[TaskTotals]:
        """Return the sums of each task that nodes have registered, by name, 500 at most."""
        done: Sequence[TaskTotals] = self._run(
            lambda: self._own.tasks(within, names=names), "tasks"
        )
        return done


class SyncHistory(_Shell):
    """`app.sync.history`"""

    def page(
        self,
        since: datetime,
        until: datetime,
        *,
        state: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        after: UUID | None = None,
        limit: int = 200,
    ) -> Sequence[Job]:
        """Return jobs that ended in a period, in the order in which they were submitted."""
        done: Sequence[Job] = self._run(
            lambda: self._own.page(
                since, until, state=state, task=task, queue=queue, after=after, limit=limit
            ),
            "page",
        )
        return done

    def partitions(self) -> Sequence[HistoryPartition]:
        """List the partitions of the history, with their sizes. All namespaces are in the same ones."""
        done: Sequence[HistoryPartition] = self._run(lambda: self._own.partitions(), "partitions")
        return done

    def partition_by(self, size: PartitionSize) -> None:
        """Set whether the history has a partition for each day (the default) or for each hour."""
        self._run(lambda: self._own.partition_by(size), "partition_by")

    def jobs(
        self,
        since: datetime,
        until: datetime,
        *,
        state: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        after: UUID | None = None,
    ) -> Iterator[Job]:
        """Iterate over all jobs that ended from `since` to before `until`."""
        return self._iterate(
            lambda: self._own.jobs(since, until, state=state, task=task, queue=queue, after=after),
            "jobs",
        )


class SyncSchedules(_Shell):
    """`app.sync.schedules`"""

    def compile_spec(self, spec: ScheduleSpec) -> Recurrence:
        """Compile a rule, with the calendars that the database has."""
        done: Recurrence = self._run(lambda: self._own.compile_spec(spec), "compile_spec")
        return done

    def list(self) -> builtins.list[ScheduleStatus]:
        """List all schedules, by name."""
        done: builtins.list[ScheduleStatus] = self._run(lambda: self._own.list(), "list")
        return done

    def pages(
        self, *, task: str | None = None, tag: str | None = None
    ) -> Iterator[Sequence[ScheduleStatus]]:
        """List all schedules that match, by name, a page at a time: as many as there are, in the memory of one page."""
        return self._iterate(lambda: self._own.pages(task=task, tag=tag), "pages")

    def page(
        self,
        *,
        task: str | None = None,
        tag: str | None = None,
        paused: bool | None = None,
        text: str | None = None,
        after: str | None = None,
        limit: int = 50,
        among: int | None = None,
    ) -> Sequence[ScheduleStatus]:
        """List the schedules that match, by name, beginning after the name `after`."""
        done: Sequence[ScheduleStatus] = self._run(
            lambda: self._own.page(
                task=task, tag=tag, paused=paused, text=text, after=after, limit=limit, among=among
            ),
            "page",
        )
        return done

    def look(
        self,
        *,
        task: str | None = None,
        tag: str | None = None,
        paused: bool | None = None,
        text: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> tuple[Sequence[ScheduleStatus], str | None]:
        """List those that match among the first 10,000 names after `after`: takes the same time however many schedules there are. Also returns the name after which to go on; None: there are no more."""
        done: tuple[Sequence[ScheduleStatus], str | None] = self._run(
            lambda: self._own.look(
                task=task, tag=tag, paused=paused, text=text, after=after, limit=limit
            ),
            "look",
        )
        return done

    def resolve(self, name_or_id: str) -> str:
        """Return the name of a schedule that is given by its name or its id."""
        done: str = self._run(lambda: self._own.resolve(name_or_id), "resolve")
        return done

    def get(self, name: str) -> ScheduleStatus:
        """Return a schedule as it is now."""
        done: ScheduleStatus = self._run(lambda: self._own.get(name), "get")
        return done

    def latest(self, name: str | None = None, limit: int = 1) -> Sequence[LatestOccurrence]:
        """Return the newest rows of the ledger, newest first: of one schedule, or of each."""
        done: Sequence[LatestOccurrence] = self._run(
            lambda: self._own.latest(name, limit), "latest"
        )
        return done

    def latest_of(self, names: Sequence[str], limit: int = 1) -> Sequence[LatestOccurrence]:
        """Return the newest rows of the ledger of each of these schedules, newest first."""
        done: Sequence[LatestOccurrence] = self._run(
            lambda: self._own.latest_of(names, limit), "latest_of"
        )
        return done

    def latest_page(
        self, limit: int = 1, *, after: str | None = None, schedules: int = 500
    ) -> tuple[Sequence[LatestOccurrence], str | None]:
        """Return the newest rows of the ledger of the first schedules after the name `after`, and the name after which the next page begins: None after the last page."""
        done: tuple[Sequence[LatestOccurrence], str | None] = self._run(
            lambda: self._own.latest_page(limit, after=after, schedules=schedules), "latest_page"
        )
        return done

    def calendars(self) -> dict[str, NamedCalendar]:
        """Return the named calendars of the namespace, by name."""
        done: dict[str, NamedCalendar] = self._run(lambda: self._own.calendars(), "calendars")
        return done

    def preview(
        self, spec: ScheduleSpec, count: int = 10, *, after: datetime | None = None
    ) -> Preview:
        """Compute the next occurrences of a rule, whether it is stored or not."""
        done: Preview = self._run(lambda: self._own.preview(spec, count, after=after), "preview")
        return done

    def occurrences(
        self,
        name: str,
        first: datetime,
        end: datetime,
        limit: int = 1000,
        *,
        state: str | None = None,
    ) -> Sequence[OccurrenceStatus]:
        """Read the ledger of a stretch of time, oldest first. `state`: only fired or skipped ones."""
        done: Sequence[OccurrenceStatus] = self._run(
            lambda: self._own.occurrences(name, first, end, limit, state=state), "occurrences"
        )
        return done

    def audit(self, name: str, first: datetime, end: datetime) -> Audit:
        """Recompute what must be in the ledger, and compare: nothing missing, nothing extra."""
        done: Audit = self._run(lambda: self._own.audit(name, first, end), "audit")
        return done

    def measure(self) -> Measured:
        """Return the stored schedules compiled, with how long their tasks usually take."""
        done: Measured = self._run(lambda: self._own.measure(), "measure")
        return done

    def check_tasks(self, specs: Iterable[ScheduleSpec]) -> Sequence[Warned]:
        """Warn of schedules whose task no node has registered, or doesn't take their payload."""
        done: Sequence[Warned] = self._run(lambda: self._own.check_tasks(specs), "check_tasks")
        return done

    def lint(self, herd: int = 100) -> Sequence[Warned]:
        """Warn of what will go wrong: DST, too many at once (`herd`), too often for its duration, an end soon, an unknown task, or arguments that its task doesn't take."""
        done: Sequence[Warned] = self._run(lambda: self._own.lint(herd), "lint")
        return done

    def forecast(
        self,
        days: int = 7,
        *,
        slots: int | None = None,
        durations: Mapping[str, float] | None = None,
        assumed: float = 1.0,
    ) -> LoadForecast:
        """Forecast the coming days: all occurrences against the usual durations of their tasks."""
        done: LoadForecast = self._run(
            lambda: self._own.forecast(days, slots=slots, durations=durations, assumed=assumed),
            "forecast",
        )
        return done

    def calendar_load(
        self, first: datetime, end: datetime, zone: ZoneInfo, *, by_name: bool = True
    ) -> CalendarLoad:
        """Estimate what is still to come of a period, by the hours of a zone, in a short time."""
        done: CalendarLoad = self._run(
            lambda: self._own.calendar_load(first, end, zone, by_name=by_name), "calendar_load"
        )
        return done

    def coming_week(self, zone: ZoneInfo | None = None) -> WeekAhead:
        """Forecast the coming week hour by hour, in a short time: see `forecast` for each run."""
        done: WeekAhead = self._run(lambda: self._own.coming_week(zone), "coming_week")
        return done

    def coming(self, until: datetime, most: int) -> tuple[builtins.list[ComingSchedule], int]:
        """Return the schedules that fire before a moment, soonest first, with their occurrences."""
        done: tuple[builtins.list[ComingSchedule], int] = self._run(
            lambda: self._own.coming(until, most), "coming"
        )
        return done

    def declare(self, *, force: bool = False) -> Verdict:
        """Bring the schedules that the code declares into the database. Schedulers do it at start."""
        done: Verdict = self._run(lambda: self._own.declare(force=force), "declare")
        return done

    def put(
        self, spec: ScheduleSpec, *, source: str = "api", expect: Precondition | None = None
    ) -> Saved:
        """Create a schedule, or change it from now on: the old rule decides what was due before."""
        done: Saved = self._run(lambda: self._own.put(spec, source=source, expect=expect), "put")
        return done

    def put_all(
        self,
        specs: Sequence[ScheduleSpec],
        *,
        delete: Sequence[str] = (),
        source: str = "api",
        expect: Precondition | None = None,
        within: Any = None,
    ) -> Sequence[Change]:
        """Create or change many, and delete others: all or none, in one transaction."""
        done: Sequence[Change] = self._run(
            lambda: self._own.put_all(
                specs, delete=delete, source=source, expect=expect, within=within
            ),
            "put_all",
        )
        return done

    def pause(self, name: str, *, until: datetime | None = None) -> ScheduleStatus:
        """Fire no occurrence until it is resumed (or `until`). Running jobs are not affected."""
        done: ScheduleStatus = self._run(lambda: self._own.pause(name, until=until), "pause")
        return done

    def resume(self, name: str) -> ScheduleStatus:
        """Resume a schedule. The catch-up policy decides about what was due during the pause."""
        done: ScheduleStatus = self._run(lambda: self._own.resume(name), "resume")
        return done

    def delete(self, name: str, *, expect: Precondition | None = None) -> None:
        """Delete a schedule. Running jobs are not affected; jobs that haven't started are skipped."""
        self._run(lambda: self._own.delete(name, expect=expect), "delete")

    def put_calendar(self, calendar: NamedCalendar) -> None:
        """Create or replace a named calendar, for `exclude` and `include`."""
        self._run(lambda: self._own.put_calendar(calendar), "put_calendar")

    def trigger(self, name: str) -> Triggered:
        """Run a schedule once, now, beside its rule."""
        done: Triggered = self._run(lambda: self._own.trigger(name), "trigger")
        return done

    def backfill(
        self,
        name: str,
        first: datetime,
        end: datetime,
        *,
        max_parallel: int | None = None,
        dry_run: bool = False,
    ) -> Backfilled:
        """Run the occurrences of a past stretch of time that have no row in the ledger yet."""
        done: Backfilled = self._run(
            lambda: self._own.backfill(
                name, first, end, max_parallel=max_parallel, dry_run=dry_run
            ),
            "backfill",
        )
        return done


class SyncEvents(_Shell):
    """`app.sync.events`"""

    def list(
        self, *, kind: str | None = None, since: datetime | None = None, limit: int = 100
    ) -> builtins.list[Event]:
        """List events, newest first."""
        done: builtins.list[Event] = self._run(
            lambda: self._own.list(kind=kind, since=since, limit=limit), "list"
        )
        return done


class SyncWebhooks(_Shell):
    """`app.sync.webhooks`"""

    def add(
        self,
        url: str,
        *,
        kinds: Sequence[str] = (),
        form: Format = "json",
        secret: str | None = None,
    ) -> NewWebhook:
        """Send events to a URL from now on."""
        done: NewWebhook = self._run(
            lambda: self._own.add(url, kinds=kinds, form=form, secret=secret), "add"
        )
        return done

    def list(self) -> builtins.list[Webhook]:
        done: builtins.list[Webhook] = self._run(lambda: self._own.list(), "list")
        return done

    def get(self, id: UUID) -> Webhook:
        done: Webhook = self._run(lambda: self._own.get(id), "get")
        return done

    def remove(self, id: UUID) -> Webhook:
        """Remove a webhook, and return it as it was."""
        done: Webhook = self._run(lambda: self._own.remove(id), "remove")
        return done

    def pause(self, id: UUID) -> Webhook:
        """Send nothing until it is resumed. Events that happen in between are not sent later."""
        done: Webhook = self._run(lambda: self._own.pause(id), "pause")
        return done

    def resume(self, id: UUID) -> Webhook:
        """Send events to a paused webhook again."""
        done: Webhook = self._run(lambda: self._own.resume(id), "resume")
        return done

    def test(self, id: UUID) -> JobHandle[Any]:
        """Send a test event, as a job like all deliveries."""
        done: JobHandle[Any] = self._run(lambda: self._own.test(id), "test")
        return done

    def deliveries(self, id: UUID, *, limit: int = 50) -> Sequence[JobSummary]:
        """List the jobs that deliver events to a webhook, newest first: those of the last week."""
        done: Sequence[JobSummary] = self._run(
            lambda: self._own.deliveries(id, limit=limit), "deliveries"
        )
        return done

    def deliveries_filter(self, id: UUID) -> JobFilter:
        """Return the filter that finds a webhook's deliveries of the last week."""
        done: JobFilter = self._run(lambda: self._own.deliveries_filter(id), "deliveries_filter")
        return done

    def redeliver(self, job_id: UUID) -> JobHandle[Any]:
        """Send the event of a delivery once more, as a new job. The receiver sees the same event id."""
        done: JobHandle[Any] = self._run(lambda: self._own.redeliver(job_id), "redeliver")
        return done

    def allow(self, entry: str) -> None:
        """Allow requests of this namespace to a host, address or network that isn't public."""
        self._run(lambda: self._own.allow(entry), "allow")

    def disallow(self, entry: str) -> None:
        """Withdraw what `allow` allowed."""
        self._run(lambda: self._own.disallow(entry), "disallow")

    def allowed(self) -> Names:
        """List the hosts, addresses and networks that are allowed besides public addresses."""
        done: Names = self._run(lambda: self._own.allowed(), "allowed")
        return done


class SyncEndpoints(_Shell):
    """`app.sync.endpoints`"""

    def add(
        self,
        name: str,
        url: str,
        *,
        secret: str | None = None,
        queue: str = "default",
        needs: Sequence[str] = (),
        priority: int = 0,
        guarantee: GuaranteeName = "at_least_once",
        retry: RetryNumbers | None = None,
        timeout: float = 30.0,
        callback_timeout: float = 3600.0,
    ) -> NewEndpoint:
        """Make an HTTP endpoint a task, for all workers of the namespace, within seconds."""
        done: NewEndpoint = self._run(
            lambda: self._own.add(
                name,
                url,
                secret=secret,
                queue=queue,
                needs=needs,
                priority=priority,
                guarantee=guarantee,
                retry=retry,
                timeout=timeout,
                callback_timeout=callback_timeout,
            ),
            "add",
        )
        return done

    def list(self) -> builtins.list[EndpointStatus]:
        done: builtins.list[EndpointStatus] = self._run(lambda: self._own.list(), "list")
        return done

    def get(self, name: str) -> EndpointStatus:
        done: EndpointStatus = self._run(lambda: self._own.get(name), "get")
        return done

    def change(self, name: str, **changes: Any) -> EndpointStatus:
        """Change what is given, as in `add`. It holds for pushes from a few seconds later on."""
        done: EndpointStatus = self._run(lambda: self._own.change(name, **changes), "change")
        return done

    def remove(self, name: str) -> EndpointStatus:
        """Remove an endpoint, and return it as it was. Its jobs stay in their queue."""
        done: EndpointStatus = self._run(lambda: self._own.remove(name), "remove")
        return done


class SyncWorkflows(_Shell):
    """`app.sync.workflows`"""

    def put(self, graph: Graph) -> int:
        """Store a definition, unless it is stored already, and return its version."""
        done: int = self._run(lambda: self._own.put(graph), "put")
        return done

    def put_all(
        self, graphs: Sequence[Graph], *, retire: Sequence[str] = (), source: str = "file"
    ) -> None:
        """Make these the newest versions of their workflows, and retire others: all or none."""
        self._run(lambda: self._own.put_all(graphs, retire=retire, source=source), "put_all")

    def declare(self) -> None:
        """Store what this process declares. A node does so at its start."""
        self._run(lambda: self._own.declare(), "declare")

    def put_declared(self, workflow: Declared) -> int:
        """Store a workflow of this process, after those that are steps of it; return its version."""
        done: int = self._run(lambda: self._own.put_declared(workflow), "put_declared")
        return done

    def list(self) -> Infos:
        """List the workflows, each with its newest version and how many of its runs are under way."""
        done: Infos = self._run(lambda: self._own.list(), "list")
        return done

    def get(self, name: str, version: int | None = None) -> WorkflowInfo:
        """Return a workflow: its newest version, or another; `NotFound` when there is none."""
        done: WorkflowInfo = self._run(lambda: self._own.get(name, version), "get")
        return done

    def find(self, name: str) -> WorkflowInfo | None:
        """Return the newest version of a workflow; None when there is none."""
        done: WorkflowInfo | None = self._run(lambda: self._own.find(name), "find")
        return done

    def definition(self, name: str, version: int | None = None) -> Definition:
        """Return a stored definition."""
        done: Definition = self._run(lambda: self._own.definition(name, version), "definition")
        return done

    def retire(self, name: str, *, retired: bool = True) -> WorkflowInfo:
        """Let no more runs of a workflow start, or let them again. Runs under way go on."""
        done: WorkflowInfo = self._run(lambda: self._own.retire(name, retired=retired), "retire")
        return done


class SyncRuns(_Shell):
    """`app.sync.runs`"""

    def start_declared(
        self, workflow: Declared, given: Mapping[str, Any], options: Mapping[str, Any]
    ) -> RunHandle:
        """Start a run of a workflow that this process declares; see `Workflow.start`."""
        done: RunHandle = self._run(
            lambda: self._own.start_declared(workflow, given, options), "start_declared"
        )
        return done

    def start_all_declared(
        self, workflow: Declared, inputs: Iterable[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> Handles:
        """Start many runs, all or none; see `Workflow.start_many`."""
        done: Handles = self._run(
            lambda: self._own.start_all_declared(workflow, inputs, options), "start_all_declared"
        )
        return done

    def new_declared(
        self, workflow: Declared, given: Mapping[str, Any], options: Mapping[str, Any]
    ) -> NewRun:
        """Make a run of what this process declares, to be stored by the caller."""
        done: NewRun = self._run(
            lambda: self._own.new_declared(workflow, given, options), "new_declared"
        )
        return done

    def start(
        self,
        name: str,
        given: Mapping[str, Any] | None = None,
        *,
        version: int | None = None,
        key: str | None = None,
        priority: int | None = None,
        deadline: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RunHandle:
        """Start a run of a stored workflow, by its name. `headers` go to the jobs of all its steps."""
        done: RunHandle = self._run(
            lambda: self._own.start(
                name,
                given,
                version=version,
                key=key,
                priority=priority,
                deadline=deadline,
                headers=headers,
            ),
            "start",
        )
        return done

    def get(self, id: UUID | str) -> Run:
        """Return the run as it is now; `NotFound` when there is none (any more)."""
        done: Run = self._run(lambda: self._own.get(id), "get")
        return done

    def has_ended(self, id: UUID | str) -> bool:
        """Return whether a run has ended. Reads one row, where `get` counts the run's steps."""
        done: bool = self._run(lambda: self._own.has_ended(id), "has_ended")
        return done

    def list(
        self,
        *,
        workflow: str | None = None,
        state: str | None = None,
        before: tuple[datetime, UUID] | None = None,
        limit: int = 50,
    ) -> RunList:
        """List runs, newest first. For the next page pass `(created_at, id)` of the last one."""
        done: RunList = self._run(
            lambda: self._own.list(workflow=workflow, state=state, before=before, limit=limit),
            "list",
        )
        return done

    def steps(
        self, id: UUID | str, *, after: int = -1, state: str | None = None, limit: int = 1000
    ) -> Steps:
        """Return steps of a run, by their numbers. For the next page pass the last number as `after`."""
        done: Steps = self._run(
            lambda: self._own.steps(id, after=after, state=state, limit=limit), "steps"
        )
        return done

    def graph(self, id: UUID | str) -> Graphed:
        """Return all steps of a run with their states and what they come after, by their numbers."""
        done: Graphed = self._run(lambda: self._own.graph(id), "graph")
        return done

    def step(self, id: UUID | str, name: str) -> RunStep:
        """Return one step of a run; `NotFound` when it has none of this name."""
        done: RunStep = self._run(lambda: self._own.step(id, name), "step")
        return done

    def result(self, id: UUID | str) -> Any:
        """Return the result of a run: that of its last step, or those of several by name."""
        done: Any = self._run(lambda: self._own.result(id), "result")
        return done

    def explain(self, id: UUID | str, step: str | None = None) -> Explanation:
        """Explain what a run waits for, or one step of it, and what to do."""
        done: Explanation = self._run(lambda: self._own.explain(id, step), "explain")
        return done

    def cancel(self, id: UUID | str) -> RunChanged:
        """Cancel a run: close what waits, ask what runs to stop; steps that always run still do."""
        done: RunChanged = self._run(lambda: self._own.cancel(id), "cancel")
        return done

    def pause(self, id: UUID | str) -> RunChanged:
        """Start no further steps of a run until it is resumed. What runs goes on."""
        done: RunChanged = self._run(lambda: self._own.pause(id), "pause")
        return done

    def resume(self, id: UUID | str) -> RunChanged:
        """Let a run go on: after a pause, or from the steps that failed or were cancelled."""
        done: RunChanged = self._run(lambda: self._own.resume(id), "resume")
        return done

    def retry(self, id: UUID | str, step: str) -> RunChanged:
        """Run a step that has ended again, and everything that comes after it. Of a durable function: from something in its history on, or from the beginning if `step` is the function's name."""
        done: RunChanged = self._run(lambda: self._own.retry(id, step), "retry")
        return done

    def skip(self, id: UUID | str, step: str, result: Any = None) -> RunChanged:
        """Let a step count as succeeded with this result, without running it; what comes after it is decided again. Raises `Conflict` if one of those steps is running."""
        done: RunChanged = self._run(lambda: self._own.skip(id, step, result), "skip")
        return done

    def members(
        self,
        id: UUID | str,
        step: str,
        *,
        after: int = -1,
        state: str | None = None,
        limit: int = 100,
    ) -> MemberList:
        """Return members of a map, by their numbers: items, results and errors. For the next page pass the last number as `after`."""
        done: MemberList = self._run(
            lambda: self._own.members(id, step, after=after, state=state, limit=limit), "members"
        )
        return done

    def retry_members(
        self, id: UUID | str, step: str, numbers: Sequence[int] | None = None
    ) -> RunChanged:
        """Run members of a map that have failed again, all or some, and what comes after the map."""
        done: RunChanged = self._run(
            lambda: self._own.retry_members(id, step, numbers), "retry_members"
        )
        return done

    def send(
        self, id: UUID | str, signal: str, payload: Any = None, *, once: str | None = None
    ) -> SignalSent:
        """Send a signal to a run of a durable function, which takes it with ``ctx.wait(signal)``."""
        done: SignalSent = self._run(lambda: self._own.send(id, signal, payload, once=once), "send")
        return done

    def history(self, id: UUID | str, *, after: int = 0, limit: int = 1000) -> Checkpoints:
        """Return what the durable function of a run has done so far, and waits for."""
        done: Checkpoints = self._run(
            lambda: self._own.history(id, after=after, limit=limit), "history"
        )
        return done


class SyncSignals(_Shell):
    """`app.sync.signals`"""

    def send(
        self,
        name: str,
        key: str,
        payload: Any = None,
        *,
        once: str | None = None,
        connection: Any = None,
    ) -> SignalSent:
        """Send a signal: to the function that has waited longest for it, or to the next that will."""
        done: SignalSent = self._run(
            lambda: self._own.send(name, key, payload, once=once, connection=connection), "send"
        )
        return done

    def list(
        self, *, name: str | None = None, key: str | None = None, limit: int = 100
    ) -> SignalList:
        """List signals, newest first. Those without `taken_at` wait for a function."""
        done: SignalList = self._run(
            lambda: self._own.list(name=name, key=key, limit=limit), "list"
        )
        return done


class SyncTriggers(_Shell):
    """`app.sync.triggers`"""

    def list(self) -> builtins.list[TriggerStatus]:
        """List the triggers of the namespace."""
        done: builtins.list[TriggerStatus] = self._run(lambda: self._own.list(), "list")
        return done

    def get(self, name: str) -> TriggerStatus:
        done: TriggerStatus = self._run(lambda: self._own.get(name), "get")
        return done

    def pause(self, name: str) -> TriggerStatus:
        """Start no jobs until it is resumed. Its messages wait in the broker."""
        done: TriggerStatus = self._run(lambda: self._own.pause(name), "pause")
        return done

    def resume(self, name: str) -> TriggerStatus:
        """Go on where it was paused."""
        done: TriggerStatus = self._run(lambda: self._own.resume(name), "resume")
        return done

    def rewind(self, name: str, to: str | None = None) -> TriggerStatus:
        """Go on after another position: messages after it become jobs, also those that did before."""
        done: TriggerStatus = self._run(lambda: self._own.rewind(name, to), "rewind")
        return done

    def remove(self, name: str) -> TriggerStatus:
        """Forget a trigger and its position. While code declares it, it is made anew."""
        done: TriggerStatus = self._run(lambda: self._own.remove(name), "remove")
        return done


class SyncSinks(_Shell):
    """`app.sync.sinks`"""

    def list(self) -> builtins.list[SinkStatus]:
        """List the sinks of the namespace."""
        done: builtins.list[SinkStatus] = self._run(lambda: self._own.list(), "list")
        return done

    def get(self, name: str) -> SinkStatus:
        done: SinkStatus = self._run(lambda: self._own.get(name), "get")
        return done

    def pause(self, name: str) -> SinkStatus:
        """Send nothing until it is resumed. Events wait, for as long as events are kept."""
        done: SinkStatus = self._run(lambda: self._own.pause(name), "pause")
        return done

    def resume(self, name: str) -> SinkStatus:
        """Go on where it was paused."""
        done: SinkStatus = self._run(lambda: self._own.resume(name), "resume")
        return done

    def rewind(self, name: str, to: str | None = None) -> SinkStatus:
        """Send events again that come after a position."""
        done: SinkStatus = self._run(lambda: self._own.rewind(name, to), "rewind")
        return done

    def remove(self, name: str) -> SinkStatus:
        """Forget a sink and its position. While code declares it, it is made anew."""
        done: SinkStatus = self._run(lambda: self._own.remove(name), "remove")
        return done


class SyncPersons(_Shell):
    """`app.sync.persons`"""

    def seal(self, person: str, value: Any) -> str:
        """Encrypt a value with the key of a person, which is made if they have none."""
        done: str = self._run(lambda: self._own.seal(person, value), "seal")
        return done

    def open(self, sealed: str, type: Any = None) -> Any:
        """Decrypt a sealed value. Raises `PersonErased` once the key of its person is destroyed."""
        done: Any = self._run(lambda: self._own.open(sealed, type), "open")
        return done

    def erase(self, person: str) -> Person:
        """Destroy the key of a person: what was sealed for them can't be read by anybody again."""
        done: Person = self._run(lambda: self._own.erase(person), "erase")
        return done

    def erase_ids(self, ids: Sequence[UUID]) -> Sequence[Person]:
        """Destroy the keys of persons by their ids, as after a restore. Returns those that had one."""
        done: Sequence[Person] = self._run(lambda: self._own.erase_ids(ids), "erase_ids")
        return done

    def find(self, person: str) -> Person:
        """Return the key of a person: its id, and when it was made. Not the key itself."""
        done: Person = self._run(lambda: self._own.find(person), "find")
        return done

    def list(self, *, erased: bool | None = None, limit: int = 100) -> Sequence[Person]:
        """List persons: erased ones first, the latest before the others."""
        done: Sequence[Person] = self._run(
            lambda: self._own.list(erased=erased, limit=limit), "list"
        )
        return done


class SyncApp(_Shell):
    """`app.sync`: the verbs of an app, for synchronous code."""

    def __init__(self, app: Any) -> None:
        super().__init__(app, "app.sync")
        self.jobs = SyncJobs(app.jobs, "app.sync.jobs")
        self.dead = SyncDead(app.dead, "app.sync.dead")
        self.queues = SyncQueues(app.queues, "app.sync.queues")
        self.nodes = SyncNodes(app.nodes, "app.sync.nodes")
        self.pools = SyncPools(app.pools, "app.sync.pools")
        self.alerts = SyncAlerts(app.alerts, "app.sync.alerts")
        self.maintenance = SyncMaintenance(app.maintenance, "app.sync.maintenance")
        self.bulk = SyncBulk(app.bulk, "app.sync.bulk")
        self.views = SyncViews(app.views, "app.sync.views")
        self.registry = SyncRegistry(app.registry, "app.sync.registry")
        self.statistics = SyncStatistics(app.statistics, "app.sync.statistics")
        self.history = SyncHistory(app.history, "app.sync.history")
        self.schedules = SyncSchedules(app.schedules, "app.sync.schedules")
        self.events = SyncEvents(app.events, "app.sync.events")
        self.webhooks = SyncWebhooks(app.webhooks, "app.sync.webhooks")
        self.endpoints = SyncEndpoints(app.endpoints, "app.sync.endpoints")
        self.workflows = SyncWorkflows(app.workflows, "app.sync.workflows")
        self.runs = SyncRuns(app.runs, "app.sync.runs")
        self.signals = SyncSignals(app.signals, "app.sync.signals")
        self.triggers = SyncTriggers(app.triggers, "app.sync.triggers")
        self.sinks = SyncSinks(app.sinks, "app.sync.sinks")
        self.persons = SyncPersons(app.persons, "app.sync.persons")

    def map(
        self,
        task: Task[..., Any],
        /,
        *,
        over: Any,
        size: int | None = None,
        at_once: int = 50,
        tolerate: float | str = 0,
        each: EachName = "chunk",
        item: str | None = None,
        key: str | None = None,
        deadline: float | str | None = None,
        priority: int | None = None,
        arguments: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> RunHandle:
        """Call a task for each item that an iterable yields: a run, which begins while items are added."""
        done: RunHandle = self._run(
            lambda: self._own.map(
                task,
                over=over,
                size=size,
                at_once=at_once,
                tolerate=tolerate,
                each=each,
                item=item,
                key=key,
                deadline=deadline,
                priority=priority,
                arguments=arguments,
                **more,
            ),
            "map",
        )
        return done

    def send(
        self,
        signal: str,
        *,
        key: str,
        payload: Any = None,
        once: str | None = None,
        connection: Any = None,
    ) -> SignalSent:
        """Send a signal to the durable function that waits for it, or to the next one that will."""
        done: SignalSent = self._run(
            lambda: self._own.send(
                signal, key=key, payload=payload, once=once, connection=connection
            ),
            "send",
        )
        return done

    def schedule(
        self, name: str, task: Task[..., Any] | Workflow | str = "", **settings: Any
    ) -> Change:
        """Create a schedule, or change it from now on. Returns 'created', 'updated' or 'unchanged'."""
        done: Change = self._run(lambda: self._own.schedule(name, task, **settings), "schedule")
        return done

    def submit(
        self, task: str, payload: Mapping[str, Any] | None = None, **options: Any
    ) -> JobHandle[Any]:
        """Submit by name. If the task's code is elsewhere, what its nodes registered applies."""
        done: JobHandle[Any] = self._run(
            lambda: self._own.submit(task, payload, **options), "submit"
        )
        return done

    def migrate(self, *, include_post: bool = False) -> Migrated:
        """Migrate the database's schema to this code, and return the files that were applied."""
        done: Migrated = self._run(lambda: self._own.migrate(include_post=include_post), "migrate")
        return done

    def close(self) -> None:
        """Close this event loop's connections and those of synchronous callers, and leave the embedded PostgreSQL."""
        self._run(lambda: self._own.close(), "close")
