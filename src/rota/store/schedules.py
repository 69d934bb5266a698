"""Schedules and the ledger of their occurrences, in the store. One short method per query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from rota.core import histogram
from rota.core.declarations import Declaration
from rota.core.time.calendars import NamedCalendar
from rota.core.time.schedule import ScheduleSpec
from rota.store.database import Connection, Store
from rota.store.rows import TaskDefaults, columns_of, lane_name, to_value
from rota.store.sql import OCCURRENCES, OVERLAPS
from rota.store.work import NIL

FIRED, SKIPPED = OCCURRENCES["fired"], OCCURRENCES["skipped"]

# Schedules that a scheduler has set aside: their ids, and the version of each.
Aside: TypeAlias = tuple[Sequence[UUID], Sequence[int]]
NOTHING_ASIDE: Aside = ((), ())
_RUNS = 10_000  # of workflows, of which durations are learned


class Entry(msgspec.Struct, frozen=True):
    """A new row of the ledger, with its job if it fires."""

    schedule_id: UUID
    due_at: datetime
    run_at: datetime
    state: int
    reason: str | None
    caught_up: bool
    job_id: UUID | None
    headers: str | None


class Advance(msgspec.Struct, frozen=True):
    """Up to when a schedule's occurrences are decided, and when the next one is due."""

    id: UUID
    cursor: datetime
    next_due: datetime | None
    fired: int
    undecided_version: int | None = None  # the oldest with undecided occurrences; None: the newest


class Unsettled(msgspec.Struct, frozen=True):
    """Since when an update could not decide which occurrences were due, and the reason."""

    begin: datetime
    reason: str


class State(msgspec.Struct, frozen=True):
    """The state of a schedule after a change."""

    cursor: datetime
    next_due: datetime | None
    paused_at: datetime | None
    undecided_version: int | None = None


class PlanningProblem(msgspec.Struct, frozen=True):
    """A version of a schedule that can't be planned, and the reason."""

    schedule_id: UUID
    version: int
    reason: str


class TaskDuration(msgspec.Struct, frozen=True):
    """Measured run times of a task in seconds: the median and the 95th percentile."""

    runs: int
    p50: float
    p95: float


class ScheduleWork(msgspec.Struct, frozen=True):
    """Work of a scheduler: due schedules, pauses that are over, waiting jobs; and the shards it lost."""

    due: bool
    resume: bool
    waiting: bool
    lost: list[int]


class ScheduleStore(Store):
    async def work(
        self, shards: Sequence[int], epochs: Sequence[int | None], aside: Aside = NOTHING_ASIDE
    ) -> ScheduleWork:
        """Return what there is to do for these shards; see `due_schedules`."""
        return await self._one(ScheduleWork, "schedule_work", shards, epochs, *aside)

    async def due_schedules(
        self, connection: Connection, shards: Sequence[int], epochs: Sequence[int | None],
        limit: int, aside: Aside = NOTHING_ASIDE,
    ) -> list[Any]:  # fmt: skip
        """Lock and return due schedules. A shard's epoch is the one under which it is owned.

        Of a shard without an epoch only overdue schedules are returned: that is a sweep.
        """
        return await self.database.fetch(
            "due_schedules", shards, epochs, limit, *aside, on=connection
        )

    async def note_problems(
        self, connection: Connection, node: str, problems: Sequence[PlanningProblem]
    ) -> None:
        """Record schedules that this node can't plan. They are shown while the node repeats it."""
        columns = columns_of(problems, *PlanningProblem.__struct_fields__)
        await self.database.fetch("note_problems", node, *columns, on=connection)

    async def clear_problems(self, connection: Connection, node: str, ids: Sequence[UUID]) -> None:
        await self.database.fetch("clear_problems", node, ids, on=connection)

    async def fire(
        self, connection: Connection, entries: Sequence[Entry], advances: Sequence[Advance]
    ) -> None:
        """Write ledger rows, jobs and cursors. Rows that the ledger already has are left alone."""
        if entries:
            columns = columns_of(entries, *Entry.__struct_fields__)
            await self.database.fetch("fire", *columns, on=connection)
        if advances:
            columns = columns_of(advances, *Advance.__struct_fields__)
            await self.database.fetch("advance_schedules", *columns, on=connection)

    async def resume_due(self) -> list[str]:
        return await self._all(str, "resume_due")

    async def promote_waiting(self, limit: int, after: UUID, schedules: int) -> tuple[int, UUID]:
        """Make waiting jobs ready; return how many, and the schedule to begin after the next time."""
        rows = await self.database.fetch("promote_waiting", limit, after, schedules)
        return rows[0]["promoted"], rows[0]["until"] or NIL

    async def lock(self, connection: Connection, namespace: str, name: str) -> Any:
        rows = await self.database.fetch("lock_schedule", namespace, name, on=connection)
        return rows[0] if rows else None

    async def insert(
        self, connection: Connection, id: UUID, namespace: str, spec: ScheduleSpec,
        options: TaskDefaults, state: State, source: str,
    ) -> bool:  # fmt: skip
        """Insert a schedule; False when another transaction has just inserted one of that name."""
        columns = _columns(namespace, spec, options, state, source)
        query = "insert_schedule"
        return bool(
            await self.database.fetch(query, id, *columns, namespace, spec.name, on=connection)
        )

    async def update(
        self, connection: Connection, id: UUID, namespace: str, spec: ScheduleSpec,
        options: TaskDefaults, state: State, source: str,
    ) -> int:  # fmt: skip
        """Update a schedule, and return the number of its new version."""
        columns = _columns(namespace, spec, options, state, source)
        return await self._one(int, "update_schedule", id, *columns, on=connection)

    async def note_version(
        self, connection: Connection, id: UUID, version: int, valid_from: datetime, text: str,
        unsettled: Unsettled | None = None,
    ) -> None:  # fmt: skip
        gap = (unsettled.begin, unsettled.reason) if unsettled else (None, None)
        values = (id, version, valid_from, text, *gap)
        await self.database.fetch("note_version", *values, on=connection)

    async def ensure_lane(self, connection: Connection, lane: str) -> None:
        await self.database.fetch("ensure_lanes", [lane], on=connection)

    async def find(self, namespace: str, name: str) -> Any | None:
        """Return the row of a schedule."""
        rows = await self.database.fetch("get_schedule", namespace, name)
        return rows[0] if rows else None

    async def pause(self, namespace: str, name: str, until: datetime | None) -> bool:
        return bool(await self.database.fetch("set_paused", namespace, name, until))

    async def resume(self, namespace: str, name: str) -> bool:
        return bool(await self.database.fetch("set_resumed", namespace, name))

    async def mark_deleted(
        self, connection: Connection, namespace: str, name: str, at: datetime
    ) -> Sequence[UUID]:
        """Take a schedule and its backfills out of force; return their ids, for `take_deleted`."""
        lines = await self._all(UUID, "lock_lines", namespace, name, on=connection)
        await self.database.fetch("mark_deleted", lines, at, on=connection)
        return lines

    async def take_deleted(
        self, connection: Connection, limit: int, ids: Sequence[UUID] | None = None
    ) -> Sequence[Any]:
        """Lock and return schedules (of these) that are marked as deleted and not yet removed."""
        return await self.database.fetch("take_deleted", limit, ids, on=connection)

    async def skip_unstarted(self, connection: Connection, id: UUID, limit: int) -> int:
        """Skip jobs of a schedule that have not started, and return how many."""
        return await self._one(int, "skip_unstarted", id, limit, on=connection)

    async def delete_on(self, connection: Connection, id: UUID) -> None:
        await self.database.fetch("delete_schedule", id, on=connection)

    async def occurrences(
        self, id: UUID, first: datetime, end: datetime, limit: int
    ) -> Sequence[Any]:
        return await self.database.fetch("list_occurrences", id, first, end, limit)

    async def backfill(
        self, connection: Connection, id: UUID, line: UUID, parallel: int, entries: Sequence[Entry]
    ) -> int:
        """Make jobs of past occurrences, of which `parallel` run at a time; return how many."""
        await self.database.fetch("open_backfill", id, line, parallel, on=connection)
        columns = columns_of(entries, "due_at", "job_id", "headers")
        return await self._one(int, "backfill", id, line, *columns, on=connection)

    async def ledger_from(self) -> datetime:
        """Return since when the ledger is complete: older rows were deleted."""
        return await self._one(datetime, "ledger_from")

    async def ledger(self, id: UUID, first: datetime, end: datetime) -> Sequence[Any]:
        return await self.database.fetch("ledger", id, first, end)

    async def versions(self, connection: Connection, id: UUID, first: int = 1) -> Sequence[Any]:
        """Return the versions of a schedule and when each began, the oldest first."""
        return await self.database.fetch("versions", id, first, on=connection)

    async def calendars(self) -> dict[str, dict[str, NamedCalendar]]:
        """Return all named calendars, by namespace and name."""
        found: dict[str, dict[str, NamedCalendar]] = {}
        for namespace, name, days in await self.database.fetch("calendars"):
            calendar = msgspec.json.decode(days, type=NamedCalendar)
            found.setdefault(namespace, {})[name] = calendar
        return found

    async def put_calendar(self, namespace: str, calendar: NamedCalendar) -> None:
        days = msgspec.json.encode(calendar).decode()
        await self.database.fetch("put_calendar", namespace, calendar.name, days)

    # -- declarations of applications

    async def lock_declarations(self, connection: Connection, namespace: str, app: str) -> None:
        await self.database.fetch("lock_declarations", namespace, app, on=connection)

    async def declarations(
        self, connection: Connection, namespace: str, app: str
    ) -> Sequence[Declaration]:
        """Return the sets that were declared, the one in force first."""
        return await self._all(Declaration, "declarations", namespace, app, on=connection)

    async def note_declaration(
        self, connection: Connection, namespace: str, app: str, digest: str, release: str
    ) -> None:
        values = (namespace, app, digest, release)
        await self.database.fetch("note_declaration", *values, on=connection)

    async def declared_by(self, namespace: str, app: str) -> Mapping[str, str]:
        """Return the tasks of the schedules that an application declares, by the schedules' names."""
        return dict(await self.database.fetch("declared_by", namespace, app))

    async def adopt(
        self, connection: Connection, namespace: str, app: str, names: Sequence[str]
    ) -> Sequence[tuple[str, str | None]]:
        """Make the application the owner of schedules; return those it didn't own, with the owner."""
        return await self._all(
            tuple[str, str | None], "adopt", namespace, app, names, on=connection
        )

    async def disown(self, connection: Connection, namespace: str, app: str) -> None:
        await self.database.fetch("disown", namespace, app, on=connection)

    async def latest_occurrences(
        self, namespace: str, names: Sequence[str], limit: int
    ) -> Sequence[Any]:
        """Return the newest rows of the ledger of each of these schedules."""
        return await self.database.fetch("latest_occurrences", namespace, list(names), limit)

    async def names(self, namespace: str, after: str | None, limit: int) -> list[str]:
        """Return the first names after the name `after`."""
        return await self._all(str, "schedule_names", namespace, after, limit)

    async def name_after(self, namespace: str, after: str | None, count: int) -> str | None:
        """Return the name that is `count` places after the name `after`, if it is not the last."""
        return await self._first(str, "schedule_after", namespace, after, count)

    async def task_durations(self, namespace: str) -> dict[str, TaskDuration]:
        """Return how long tasks, and workflows that schedules start, took within a week: of tasks
        within the width of a bucket of their statistics."""
        counts: dict[str, list[int]] = {}
        for row in await self.database.fetch("task_durations", namespace):
            found = counts.setdefault(row["task"], [])
            found += [0] * (row["place"] + 1 - len(found))
            found[row["place"]] = row["count"]
        rows = await self.database.fetch("workflow_durations", namespace, _RUNS)
        return {
            **{task: _to_duration(found) for task, found in counts.items()},
            **{row["task"]: to_value(row, TaskDuration) for row in rows},
        }

    async def task_defaults(self, namespace: str, task: str) -> TaskDefaults:
        found = await self._first(TaskDefaults, "defaults_of_tasks", namespace, [task])
        return found or TaskDefaults()


def _to_duration(counts: Sequence[int]) -> TaskDuration:
    # Two digits are what buckets can tell.
    p50, p95 = (float(f"{histogram.quantile(counts, each) or 0.0:.2g}") for each in (0.5, 0.95))
    return TaskDuration(sum(counts), p50, p95)


def _columns(
    namespace: str, spec: ScheduleSpec, options: TaskDefaults, state: State, source: str
) -> tuple[Any, ...]:
    """Return the columns that an insert and an update of a schedule have in common."""
    headers: dict[str, Any] = {}
    if tags := dict.fromkeys((*spec.tags, *spec.options.get("tags", ()))):
        headers["tags"] = list(tags)
    if (timeout := spec.options.get("heartbeat_timeout")) is not None:
        headers["heartbeat_timeout"] = timeout
    if spec.workflow:
        headers["start"] = {
            "workflow": spec.workflow, "priority": spec.options.get("priority")
        }  # fmt: skip
    return (
        *msgspec.structs.astuple(state), OVERLAPS[spec.overlap], spec.max_running, spec.max_queued,
        spec.drop == "newest", options.priority, options.guarantee, options.max_attempts,
        options.timeout, lane_name(namespace, options.queue, options.needs), spec.job_task,
        msgspec.json.encode(spec.payload or {}).decode(),
        msgspec.json.encode(headers).decode() if headers else None,
        msgspec.json.encode(spec).decode(), source,
    )  # fmt: skip
