"""What a run writes down, to be judged afterwards: a folder of JSON files, one object a line.

Written by those who were there, and by nobody in Rota's store:

    meta.json         one object, see `Meta`
    journal-*.jsonl   by the jobs themselves, one file per process: see `Beat`
    members-*.jsonl   by the calls of maps, likewise: see `Member`
    clients.jsonl     by those who submitted: see `Submission`
    operations.jsonl  by those who steered schedules and jobs: see `Operation`
    faults.jsonl      by whoever broke things: see `Fault`
    db-<table>.jsonl  every row of a table after healing, by `dump_database` with plain SQL

All `at` are seconds on one clock that no fault touches: the machine's monotonic clock for real processes
(the wall clocks of some of them are wrong on purpose), the virtual clock in the simulation. `Meta` says
how that clock relates to the database's.

What the checker relies on:

- Every task of the workload journals. `start` is written as the first thing a handler does, `end` as the
  last, with outcome OK or FAILED; a handler that is stopped from outside writes INTERRUPTED, or nothing.
- `node` is the name of one process (a handler in a child process gives its node's name). A process that
  is started in the place of another has another name.
- A fault of kind KILL, PAUSE, SHUTDOWN or WITHDRAWAL has such a name as its target, several with commas
  between them, or EVERYONE. A process that dies by itself (poison, a failpoint) is a KILL too, written
  by whoever sees it.
- Clients have ended before the dump. Nodes haven't: what a stopped node leaves open, nobody closes.
  `Meta.ended` is the moment of the dump's snapshot: what `dump_database` gives back, less
  `database_minus_at`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import asyncpg
import msgspec

from proof.keyed_tasks import STARTS_RUNS, UNIQUE
from proof.owners import OWN_SETTINGS

T = TypeVar("T")

Guarantee = Literal["at_least_once", "at_most_once", "exactly_once"]

# Outcomes of a beat. An `end` that is none of these counts as FAILED.
OK = "ok"
FAILED = "failed"
INTERRUPTED = "interrupted"
ACCEPTED = "accepted"  # guarded
REFUSED = "refused"  # guarded

# Kinds of faults that mean something to the checker. All others only say that something was broken.
KILL = "kill"  # gone from `at` on, without a word
PAUSE = "pause"  # doesn't run between `at` and `until`
SHUTDOWN = "shutdown"  # asked at `at` to end gracefully, gone at `until`
# Began at `at`, gave its start up, ended gracefully, and was gone at `until`. Nobody asked it to, so
# that it is no fault: what made it give up was one, and may be over by then.
WITHDRAWAL = "withdrawal"
EVERYONE = "*"


class TaskPromise(msgspec.Struct, frozen=True):
    """What the workload's author declared of a task."""

    guarantee: Guarantee
    max_attempts: int
    # How a job of this task ends when nothing is broken; "any" when the handler itself decides.
    ends: Literal["succeeded", "failed", "any"] = "succeeded"
    # After so many seconds, or so many without a sign of life, an attempt is stopped.
    limit: float | None = None
    # Some attempts do nothing until they are stopped; else all keep to the limit.
    hangs: bool = False


class SchedulePromise(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schedule of the workload: due at every multiple of `every` seconds since 1970."""

    name: str
    task: str
    every: int
    overlap: Literal["allow", "skip", "queue", "kill"] = "allow"
    catch_up: Literal["all", "latest", "none"] = "all"
    within: float | None = None  # the window of the catch-up
    spread: float = 0.0  # at most so much later than the multiple, always the same
    jitter: float = 0.0  # and at most so much, each time another
    max_running: int | None = None
    max_queued: int = 1
    drop: Literal["oldest", "newest"] = "newest"
    paused: bool = False

    @property
    def places(self) -> int | None:
        """How many of its jobs may run at a time; None: any number."""
        return self.max_running or (None if self.overlap == "allow" else 1)


class ClockStep(msgspec.Struct, frozen=True):
    """The database's clock was set while the run lasted, by the machine it runs on."""

    at: float
    by: float  # seconds, forward


class Meta(msgspec.Struct, frozen=True):
    kind: Literal["nemesis", "simulation", "sweep"]
    tasks: dict[str, TaskPromise]
    schedules: list[SchedulePromise]
    started: float
    healed: float  # from here on nothing is broken
    ended: float  # when the database was dumped
    database_minus_at: float  # database's time (seconds since 1970) minus `at`, at the end
    lease_seconds: float
    max_crashes: int
    # Lag is judged for jobs that were due at least so long after the last fault ended and before the
    # next began; and then it must be below the limit.
    calm_after: float = 5.0
    max_lag: float = 5.0
    seed: int | None = None
    note: str = ""
    # A job that was due this long before the end must have ended: at least the longest handler, with its
    # retries, and two leases.
    stuck_after: float = 30.0
    # By how much `database_minus_at` may be wrong.
    clock_error: float = 0.25
    clock_steps: list[ClockStep] = []  # in order
    # So far ahead a scheduler may have decided when its schedule changes.
    horizon: float = 2.0
    # How many handlers a worker runs at a time. 0: it isn't known, and no late start is excused by it.
    slots: int = 0

    def database(self, at: float) -> float:
        """The database's time at that moment."""
        later = sum(step.by for step in self.clock_steps if step.at > at)
        return at + self.database_minus_at - later

    def shown(self, first: float, last: float) -> tuple[float, float]:
        """The earliest and the latest time that the database's clock showed between the two moments."""
        times = [self.database(first), self.database(last)]
        for step in self.clock_steps:
            if first <= step.at <= last:
                after = self.database(step.at)
                times += [after - step.by, after]
        return min(times), max(times)

    def at(self, database_time: float) -> float:
        """The moment at which the database's clock had come so far."""
        difference = self.database_minus_at
        for step in reversed(self.clock_steps):
            if database_time - difference >= step.at:
                break
            difference -= step.by
            if database_time - difference > step.at:
                return step.at  # a time that it has leapt over
        return database_time - difference


class Beat(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A line of a job's own journal."""

    at: float
    event: Literal["start", "end", "guarded", "effect"]
    job: str
    task: str
    token: int
    attempt: int
    node: str  # a process: its name in the run
    schedule: str | None = None
    # end: how the handler ended. guarded: whether the application's own table took the write, which
    # the handler guards by its token.
    outcome: str = ""
    # guarded, accepted: the place of this write among the job's writes, as that table counts them. A
    # process may be paused between its write and this line, so that `at` doesn't tell their order.
    order: int = 0


class Sight(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What one replay of a durable function did or saw, at a place of its body: see `proof.functions`.

    open: it began, with the code `value` of the program `seconds`. try, done: the body of a step. asked:
    for a sleep of so many seconds; or for a race that leaves its losers, or in one for a signal. saw:
    a result, or an error with `!` before it. told: that its run is being cancelled. left: it ended, or
    was left.
    """

    at: float
    event: Literal["open", "try", "done", "asked", "saw", "told", "left"]
    run: str
    round: int
    token: int
    node: str
    place: str = ""
    value: str = ""
    seconds: float = 0.0


class Member(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a call for one item of a map wrote down."""

    at: float
    event: Literal["start", "ok", "failed"]
    map: str  # its name in the run
    item: int
    job: str  # the chunk's, or its own
    token: int
    node: str


class Submission(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A client's record, written before it asks (answer "asked") and again when it knows more."""

    at: float
    job: str  # the id that the client made or was told; the key when it has neither
    task: str
    answer: Literal["asked", "acknowledged", "refused", "unknown"]
    due_in: float = 0.0
    key: str | None = None
    cancelled: bool = False  # the client asked to cancel it: how it ends is open


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an operator asked for, once or until there was an answer; written when it is over.

    It took effect once, at some moment between `at` and `until`, if it is "done"; and not at all if it
    was "refused". "failed": it ended with an error that nobody should ever see.
    """

    at: float
    until: float
    kind: Literal[
        "create", "update", "pause", "resume", "trigger", "backfill", "rename", "delete",
        "spoil", "cancel", "retry", "discard", "start run", "cancel run", "pause run",
        "resume run", "retry step", "skip step", "send", "submit unique", "drain", "undrain",
        "start map", "submit spared", "switch history",
    ]  # fmt: skip
    subject: str  # the name of a schedule or workflow, or the id of a job or run
    answer: Literal["done", "refused", "failed"]
    schedule: SchedulePromise | None = None  # create, update, rename: what it says from now on
    # create, rename: of the new schedule; trigger, submit unique: of the job; start map: of the run
    id: str = ""
    # backfill: the range, in seconds since 1970. submit unique: when it was asked for the last time.
    first: float = 0.0
    end: float = 0.0
    # backfill: how many it says it made; start map: its members; submit unique: 1 if the job existed
    count: int = 0
    absurd: bool = False  # create: nobody should want that, so that it may be refused
    detail: str = ""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    at: float
    until: float
    kind: str
    target: str
    detail: str = ""


class Recorder:
    """Appends lines to one file of a history. One write a line: a killed process leaves none torn."""

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / f"{name}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def write(self, line: msgspec.Struct) -> None:
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        os.close(self._file)


class History:
    """A folder, read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def meta(self) -> Meta:
        return msgspec.json.decode((self.folder / "meta.json").read_bytes(), type=Meta)

    def beats(self) -> list[Beat]:
        files = sorted(self.folder.glob("journal-*.jsonl"))
        return sorted((b for f in files for b in _lines(f, Beat)), key=lambda beat: beat.at)

    def sights(self) -> list[Sight]:
        files = sorted(self.folder.glob("functions-*.jsonl"))
        return sorted((s for f in files for s in _lines(f, Sight)), key=lambda sight: sight.at)

    def members(self) -> list[Member]:
        files = sorted(self.folder.glob("members-*.jsonl"))
        return sorted((m for f in files for m in _lines(f, Member)), key=lambda member: member.at)

    def submissions(self) -> list[Submission]:
        return list(_lines(self.folder / "clients.jsonl", Submission))

    def operations(self) -> list[Operation]:
        return list(_lines(self.folder / "operations.jsonl", Operation))

    def faults(self) -> list[Fault]:
        return list(_lines(self.folder / "faults.jsonl", Fault))

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self.rows_as(table, dict[str, Any])

    def rows_as(self, table: str, kind: type[T]) -> list[T]:
        """The same, as structs that name the columns they want."""
        return list(_lines(self.folder / f"db-{table}.jsonl", kind))


def write_meta(folder: Path, meta: Meta) -> None:
    (folder / "meta.json").write_bytes(msgspec.json.format(msgspec.json.encode(meta)))


def _lines(file: Path, kind: type[T]) -> Iterator[T]:
    """The complete lines: a last one without its newline is still being written."""
    if file.exists():
        decoder = msgspec.json.Decoder(kind)
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield decoder.decode(line)
                except msgspec.DecodeError as error:
                    raise ValueError(f"{file.name}, line {number}: {error}") from None


_UNIQUE = ", ".join(f"'{task}'" for task in UNIQUE)

# What is dumped: the view of all jobs without their payloads, and the tables around them. Moments are
# seconds since 1970. `app_effect` is the workload's own table, made in the same schema (job uuid,
# token bigint): a row per effect of an exactly_once job.
_DUMPS = {
    "job": """
        select id::text, task, state, token, attempt, max_attempts, guarantee, key, crashes,
               schedule_id::text, run_id::text, step, share,
               extract(epoch from due_at)::float8 as due_at,
               extract(epoch from created_at)::float8 as created_at,
               extract(epoch from started_at)::float8 as started_at,
               extract(epoch from finished_at)::float8 as finished_at, attempts, error::jsonb as error,
               -- A step of a scheduled run knows its occurrence as well, and is no job of it.
               nullif(case when run_id is null then
                   concat_ws(' ', headers -> 'occurrence' ->> 'schedule',
                             headers -> 'occurrence' ->> 'due_at') end, '') as occurrence,
               case when task in ({unique}) then payload ->> 'key' end as unique_key
        from {schema}.job where task <> '{start_task}' order by id""",
    "occurrence": """
        select o.schedule_id::text, s.name as schedule, extract(epoch from o.due_at)::float8 as due_at,
               extract(epoch from o.run_at)::float8 as run_at, o.state, o.reason, o.caught_up,
               o.job_id::text, extract(epoch from o.decided_at)::float8 as decided_at
        from {schema}.occurrence as o left join {schema}.schedule as s on s.id = o.schedule_id
        where s.task is distinct from '{start_task}'
        order by s.name, o.due_at""",
    "schedule": """
        select id::text, name, source, extract(epoch from created_at)::float8 as created_at,
               extract(epoch from cursor)::float8 as cursor,
               extract(epoch from next_due)::float8 as next_due
        from {schema}.schedule order by name""",
    "run": """
        select id::text, name, state, round, extract(epoch from cancel_at)::float8 as cancel_at,
               extract(epoch from deadline_at)::float8 as deadline_at, parent_id::text, parent_step,
               schedule_id::text, extract(epoch from created_at)::float8 as created_at,
               extract(epoch from ended_at)::float8 as ended_at
        from {schema}.run order by id""",
    "checkpoint": """
        select run_id::text, number, kind, state, attempt, token, name, job_id::text, signal, signal_key,
               extract(epoch from created_at)::float8 as created_at,
               extract(epoch from ended_at)::float8 as ended_at,
               extract(epoch from wake_at)::float8 as wake_at
        from {schema}.checkpoint order by run_id, number""",
    "signal": """
        select id::text, name, key, once, payload, run_id::text,
               extract(epoch from sent_at)::float8 as sent_at,
               extract(epoch from taken_at)::float8 as taken_at
        from {schema}.run_signal order by id""",
    "step": """
        select s.run_id::text, s.number, w.name, w.kind, w.rule, w.tolerated, w.optional, s.state,
               s.job_id::text, w.condition is not null as conditional,
               (w.arguments -> 'value' ->> '$step')::int as takes,
               case when starts_with(w.task, 'step_') then s.result end as result,
               coalesce(s.error ->> 'type' = 'SkippedByHand', false) as by_hand,
               s.state = 6 and s.started_at is null as unjudged,
               array(select p.number from {schema}.workflow_step as p
                     where p.workflow_id = r.workflow_id and s.number = any(p.successors)) as before
        from {schema}.run as r join {schema}.step as s on s.run_id = r.id
        join {schema}.workflow_step as w on w.workflow_id = r.workflow_id and w.number = s.number
        order by s.run_id, s.number""",
    "gate": "select schedule_id::text, job_id::text from {schema}.gate order by schedule_id, job_id",
    "shard": """
        select shard, owner::text, epoch, extract(epoch from expires_at)::float8 as expires_at
        from {schema}.shard order by shard""",
    "shard_move": """
        select shard, epoch, owner::text, previous::text, extract(epoch from at)::float8 as at,
               extract(epoch from previous_until)::float8 as previous_until
        from {schema}.shard_move order by shard, epoch""",
    "node": """
        select id::text, name, pid, state, roles, extract(epoch from started_at)::float8 as started_at,
               extract(epoch from ended_at)::float8 as ended_at
        from {schema}.node order by started_at""",
    "batch": "select token, lane, node::text from {schema}.batch order by token, lane",
    "map": """
        select run_id::text, step, each_job, members, succeeded, failed, chunks, ended,
               (select coalesce(sum(c.size), 0)::int from {schema}.map_chunk as c
                where c.run_id = m.run_id and c.step = m.step) as stored
        from {schema}.map as m order by run_id, step""",
    "depth": """
        -- What a fold would still take: it passes by what is older than it has settled.
        select d.queue, d.jobs, d.max_depth, d.shut, coalesce((
            select sum(f.jobs) from {schema}.flow as f
            join {schema}.depth as w on w.namespace = f.namespace and w.queue = ''
            where f.namespace = d.namespace and f.queue = d.queue and f.xid >= w.settled
        ), 0)::bigint as unfolded
        from {schema}.depth as d where d.queue <> '' and d.max_depth is not null order by d.queue""",
    "trace": """
        select unnest(ids)::text as id, queue, extract(epoch from ended_at)::float8 as ended_at
        from {schema}.trace order by 1""",
    "submit_key": "select key, job_id::text from {schema}.submit_key order by key",
    "app_effect": "select job::text, token from {schema}.app_effect order by job, token",
}


async def dump_database(url: str, schema: str, folder: Path) -> float:
    """Every row of what matters, by plain SQL, as it was at one moment: the database's time, given back.

    A table that isn't there is an empty file.
    """
    connection = await asyncpg.connect(url, server_settings=OWN_SETTINGS)
    try:
        # One snapshot: between two tables a job might end, and its effect would have no job.
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            now = await connection.fetchval(f"select extract(epoch from {schema}.now())::float8")
            for name, query in _DUMPS.items():
                text = query.format(schema=schema, unique=_UNIQUE, start_task=STARTS_RUNS)
                await _dump(connection, text, folder / f"db-{name}.jsonl")
        return float(now)
    finally:
        await connection.close()


async def _dump(connection: Any, query: str, file: Path) -> None:
    text = f"select to_jsonb(row)::text as row from ({query}) as row"
    with file.open("wb") as lines, contextlib.suppress(asyncpg.UndefinedTableError):
        async with connection.transaction():  # a table that is missing must not end the snapshot
            async for row in connection.cursor(text, prefetch=5_000):
                lines.write(row["row"].encode() + b"\n")
