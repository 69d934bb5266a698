"""Schedules and the ledger of their occurrences, in the store. One short method per query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from rota.core.declarations import Declaration
from rota.core.time.calendars import NamedCalendar
from rota.core.time.schedule import ScheduleSpec
from rota.errors import ConfigError
from rota.store.database import Connection, Database
from rota.store.rows import lane_name
from rota.store.sql import OCCURRENCES, OVERLAPS
from rota.store.work import NIL

FIRED, SKIPPED = OCCURRENCES["fired"], OCCURRENCES["skipped"]

# Schedules that a scheduler has set aside: their ids, and the version of each.
Aside: TypeAlias = tuple[Sequence[UUID], Sequence[int]]
NOTHING_ASIDE: Aside = ((), ())

_spec = msgspec.json.Decoder(ScheduleSpec)


class Entry(msgspec.Struct, frozen=True):
    """A row of the ledger to be, with its job if it fires."""

    schedule_id: UUID
    due_at: datetime
    run_at: datetime
    state: int
    reason: str | None
    caught_up: bool
    job_id: UUID | None
    headers: str | None


class Advance(msgspec.Struct, frozen=True):
    """How far a schedule is accounted for, and when it has to be looked at next."""

    id: UUID
    cursor: datetime
    next_due: datetime | None
    fired: int
    undecided_version: int | None = None  # the oldest with undecided occurrences; None: the newest


class Unsettled(msgspec.Struct, frozen=True):
    """From when an update could not say what was due, and why."""

    begin: datetime
    reason: str


class State(msgspec.Struct, frozen=True):
    """Where a schedule stands after a change."""

    cursor: datetime
    next_due: datetime | None
    paused_at: datetime | None
    undecided_version: int | None = None


class PlanningProblem(msgspec.Struct, frozen=True):
    """A version of a schedule that can't be planned, and why."""

    schedule_id: UUID
    version: int
    reason: str


class JobOptions(msgspec.Struct, frozen=True):
    """What a schedule's jobs are made with."""

    queue: str
    needs: tuple[str, ...]
    priority: int
    guarantee: int
    max_attempts: int
    timeout: float | None


class TaskDuration(msgspec.Struct, frozen=True):
    """What was measured, in seconds: half of the runs took at most `p50`, 19 of 20 `p95`."""

    runs: int
    p50: float
    p95: float


class ScheduleWork(msgspec.Struct, frozen=True):
    """Whether schedules are due, pauses are over, jobs wait for their schedule's turn; shards lost."""

    due: bool
    resume: bool
    waiting: bool
    lost: list[int]


def decode_spec(text: str) -> ScheduleSpec:
    """What is stored of a schedule; a `ConfigError` says why this release can't read it."""
    try:
        spec = _spec.decode(text)
        said = msgspec.json.decode(text)
        parts = ((said, spec), (said["rule"], spec.rule), (said.get("catch_up"), spec.catch_up))
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ConfigError(
            f"what is stored can't be read by this release of Rota: {error}"
        ) from None
    for fields, known in parts:
        # A newer release may say something that changes when it fires: better not at all than wrongly.
        if unknown := sorted(set(fields or ()) - {*known.__struct_fields__, "type"}):
            raise ConfigError(
                f"what is stored has a field {unknown[0]!r} that this release of Rota doesn't know"
            )
    return spec


class ScheduleStore:
    def __init__(self, database: Database) -> None:
        self.database = database

    async def work(
        self, shards: Sequence[int], epochs: Sequence[int | None], aside: Aside = NOTHING_ASIDE
    ) -> ScheduleWork:
        """What there is to do for these shards; see `due_schedules`."""
        rows = await self.database.fetch("schedule_work", shards, epochs, *aside)
        return ScheduleWork(*rows[0])

    async def due_schedules(
        self,
        connection: Connection,
        shards: Sequence[int],
        epochs: Sequence[int | None],
        limit: int,
        aside: Aside = NOTHING_ASIDE,
    ) -> list[Any]:
        """Locked. Shards come with the epoch under which they are ours; without one it's a sweep."""
        rows: list[Any] = await connection.fetch(
            self.database.queries["due_schedules"], shards, epochs, limit, *aside
        )
        return rows

    async def note_problems(
        self, connection: Connection, node: str, problems: Sequence[PlanningProblem]
    ) -> None:
        """This node can't plan these. People see it for as long as the node notes it again."""
        fields = PlanningProblem.__struct_fields__
        columns = [[getattr(one, field) for one in problems] for field in fields]
        await connection.fetch(self.database.queries["note_problems"], node, *columns)

    async def clear_problems(self, connection: Connection, node: str, ids: Sequence[UUID]) -> None:
        await connection.execute(self.database.queries["clear_problems"], node, ids)

    async def fire(
        self, connection: Connection, entries: Sequence[Entry], advances: Sequence[Advance]
    ) -> None:
        """Ledger rows, jobs and cursors. What the ledger already has is left as it is."""
        if entries:
            columns = [
                [getattr(entry, field) for entry in entries] for field in Entry.__struct_fields__
            ]
            await connection.fetch(self.database.queries["fire"], *columns)
        if advances:
            columns = [[getattr(a, field) for a in advances] for field in Advance.__struct_fields__]
            await connection.fetch(self.database.queries["advance_schedules"], *columns)

    async def resume_due(self) -> list[str]:
        return [row[0] for row in await self.database.fetch("resume_due")]

    async def promote_waiting(self, limit: int, after: UUID, schedules: int) -> tuple[int, UUID]:
        """How many; and the schedule to begin after the next time."""
        rows = await self.database.fetch("promote_waiting", limit, after, schedules)
        return rows[0]["promoted"], rows[0]["until"] or NIL

    async def lock(self, connection: Connection, namespace: str, name: str) -> Any:
        return await connection.fetchrow(self.database.queries["lock_schedule"], namespace, name)

    async def insert(
        self, connection: Connection, id: UUID, namespace: str, spec: ScheduleSpec,
        options: JobOptions, state: State, source: str,
    ) -> bool:  # fmt: skip
        """False when a schedule of that name has just come into being."""
        arguments = _columns(namespace, spec, options, source)
        made = await connection.fetchval(
            self.database.queries["insert_schedule"], id, namespace, spec.name,
            state.cursor, state.next_due, state.paused_at, *arguments,
        )  # fmt: skip
        return made is not None

    async def update(
        self, connection: Connection, id: UUID, namespace: str, spec: ScheduleSpec,
        options: JobOptions, state: State, source: str,
    ) -> int:  # fmt: skip
        """The new version's number."""
        arguments = _columns(namespace, spec, options, source)
        version: int = await connection.fetchval(
            self.database.queries["update_schedule"],
            id,
            *msgspec.structs.astuple(state),
            *arguments,
        )
        return version

    async def note_version(
        self, connection: Connection, id: UUID, version: int, valid_from: datetime, text: str,
        unsettled: Unsettled | None = None,
    ) -> None:  # fmt: skip
        query = self.database.queries["note_version"]
        gap = (unsettled.begin, unsettled.reason) if unsettled else (None, None)
        await connection.execute(query, id, version, valid_from, text, *gap)

    async def ensure_lane(self, connection: Connection, lane: str) -> None:
        await connection.fetch(self.database.queries["ensure_lanes"], [lane])

    async def list(self, namespace: str, name: str | None = None) -> list[Any]:
        return await self.database.fetch("list_schedules", namespace, name)

    async def pause(self, namespace: str, name: str, until: datetime | None) -> bool:
        return bool(await self.database.fetch("set_paused", namespace, name, until))

    async def resume(self, namespace: str, name: str) -> bool:
        return bool(await self.database.fetch("set_resumed", namespace, name))

    async def mark_deleted(
        self, connection: Connection, namespace: str, name: str, at: datetime
    ) -> Sequence[UUID]:
        """Take it and the lines of its backfills out of force: their ids, for `take_deleted`."""
        queries = self.database.queries
        lines = [row[0] for row in await connection.fetch(queries["lock_lines"], namespace, name)]
        await connection.execute(queries["mark_deleted"], lines, at)
        return lines

    async def take_deleted(
        self, connection: Connection, limit: int, ids: Sequence[UUID] | None = None
    ) -> Sequence[Any]:
        """Schedules that were deleted and aren't gone yet (all, or of these), locked."""
        query = self.database.queries["take_deleted"]
        rows: Sequence[Any] = await connection.fetch(query, limit, ids)
        return rows

    async def skip_unstarted(self, connection: Connection, id: UUID, limit: int) -> int:
        """How many of its jobs were skipped, of those that had not started."""
        query = self.database.queries["skip_unstarted"]
        count: int = await connection.fetchval(query, id, limit)
        return count

    async def delete_on(self, connection: Connection, id: UUID) -> None:
        await connection.execute(self.database.queries["delete_schedule"], id)

    async def occurrences(
        self, id: UUID, first: datetime, end: datetime, limit: int
    ) -> Sequence[Any]:
        return await self.database.fetch("list_occurrences", id, first, end, limit)

    async def backfill(
        self, connection: Connection, id: UUID, line: UUID, parallel: int, entries: Sequence[Entry]
    ) -> int:
        """The jobs wait in a line of their own, so many of them at a time."""
        await connection.fetch(self.database.queries["open_backfill"], id, line, parallel)
        count: int = await connection.fetchval(
            self.database.queries["backfill"], id, line, [entry.due_at for entry in entries],
            [entry.job_id for entry in entries], [entry.headers for entry in entries],
        )  # fmt: skip
        return count

    async def ledger_from(self) -> datetime:
        """Since when the ledger is complete: what is older has been forgotten."""
        moment: datetime = await self.database.fetchval("ledger_from")
        return moment

    async def ledger(self, id: UUID, first: datetime, end: datetime) -> Sequence[Any]:
        return await self.database.fetch("ledger", id, first, end)

    async def versions(self, connection: Connection, id: UUID, first: int = 1) -> Sequence[Any]:
        """What each version said and from when on, the oldest first."""
        rows: Sequence[Any] = await connection.fetch(self.database.queries["versions"], id, first)
        return rows

    async def calendars(self) -> dict[str, dict[str, NamedCalendar]]:
        """All named calendars, by namespace and name."""
        found: dict[str, dict[str, NamedCalendar]] = {}
        for namespace, name, days in await self.database.fetch("calendars"):
            calendar = msgspec.json.decode(days, type=NamedCalendar)
            found.setdefault(namespace, {})[name] = calendar
        return found

    async def put_calendar(self, namespace: str, calendar: NamedCalendar) -> None:
        days = msgspec.json.encode(calendar).decode()
        await self.database.fetch("put_calendar", namespace, calendar.name, days)

    # -- what code declares, by application

    async def lock_declarations(self, connection: Connection, namespace: str, app: str) -> None:
        await connection.fetch(self.database.queries["lock_declarations"], namespace, app)

    async def declarations(
        self, connection: Connection, namespace: str, app: str
    ) -> Sequence[Declaration]:
        """The sets that were declared, the one in force first."""
        query = self.database.queries["declarations"]
        return [Declaration(*row) for row in await connection.fetch(query, namespace, app)]

    async def note_declaration(
        self, connection: Connection, namespace: str, app: str, digest: str, release: str
    ) -> None:
        query = self.database.queries["note_declaration"]
        await connection.execute(query, namespace, app, digest, release)

    async def declared_by(self, namespace: str, app: str) -> Mapping[str, str]:
        """The tasks of the schedules that an application declares, by the schedules' names."""
        rows = await self.database.fetch("declared_by", namespace, app)
        return {row["name"]: row["task"] for row in rows}

    async def adopt(
        self, connection: Connection, namespace: str, app: str, names: Sequence[str]
    ) -> Sequence[tuple[str, str | None]]:
        """Make them the application's; those that were not, with whose they were."""
        query = self.database.queries["adopt"]
        return [tuple(row) for row in await connection.fetch(query, namespace, app, names)]

    async def disown(self, connection: Connection, namespace: str, app: str) -> None:
        await connection.execute(self.database.queries["disown"], namespace, app)

    async def latest_occurrences(
        self, namespace: str, name: str | None = None, limit: int = 1
    ) -> Sequence[Any]:
        """The newest rows of the ledger, of one schedule or of each."""
        return await self.database.fetch("latest_occurrences", namespace, name, limit)

    async def task_durations(self, namespace: str) -> dict[str, TaskDuration]:
        """How long the tasks of schedules usually take, where it is known."""
        rows = await self.database.fetch("task_durations", namespace)
        return {row["task"]: TaskDuration(row["runs"], row["p50"], row["p95"]) for row in rows}

    async def task_defaults(self, namespace: str, task: str) -> JobOptions:
        rows = await self.database.fetch("task_defaults", namespace, task)
        if not rows:
            return JobOptions("default", (), 0, 1, 5, None)
        queue, needs, *rest = rows[0]
        return JobOptions(queue, tuple(needs), *rest)


def _columns(
    namespace: str, spec: ScheduleSpec, options: JobOptions, source: str
) -> tuple[Any, ...]:
    named = dict.fromkeys((*spec.tags, *spec.options.get("tags", ())))
    told: dict[str, Any] = {"tags": list(named)} if named else {}
    if (silence := spec.options.get("heartbeat_timeout")) is not None:
        told["heartbeat_timeout"] = silence
    headers = msgspec.json.encode(told).decode() if told else None
    return (
        OVERLAPS[spec.overlap], spec.max_running, spec.max_queued, spec.drop == "newest",
        options.priority, options.guarantee, options.max_attempts, options.timeout,
        lane_name(namespace, options.queue, options.needs), spec.task,
        msgspec.json.encode(spec.payload or {}).decode(), headers,
        msgspec.json.encode(spec).decode(), source,
    )  # fmt: skip
