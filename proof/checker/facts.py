"""A history, read and indexed: what the rules ask for.

Moments of the database are kept as they are; `Facts.at` puts them on the history's own clock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from proof.checker.lives import Life, lives_of, unchanged_lives
from proof.history import (
    EVERYONE,
    OK,
    WITHDRAWAL,
    Beat,
    Fault,
    History,
    Meta,
    SchedulePromise,
    Sight,
    Submission,
)

WAITING, SCHEDULED, READY, RUNNING, SUCCEEDED, FAILED, CANCELLED, SKIPPED = range(1, 9)
STATES = [
    "?",
    "waiting",
    "scheduled",
    "ready",
    "running",
    "succeeded",
    "failed",
    "cancelled",
    "skipped",
]
GUARANTEES = {"at_least_once": 1, "at_most_once": 2, "exactly_once": 3}
AT_MOST_ONCE, EXACTLY_ONCE = 2, 3
FIRED = 1  # the state of an occurrence; 2: skipped


class ErrorRow(msgspec.Struct, gc=False):
    type: str = ""
    message: str = ""


class AttemptRow(msgspec.Struct, gc=False):
    """An entry of a job's list of attempts. Those that were given back, or succeeded, have none."""

    token: int = 0
    number: int = 0
    outcome: str = ""
    ended_at: datetime | None = None
    node: str = ""


class JobRow(msgspec.Struct, gc=False, omit_defaults=True):
    id: str
    task: str
    state: int
    guarantee: int
    attempt: int
    max_attempts: int
    crashes: int
    due_at: float
    created_at: float
    token: int | None = None
    finished_at: float | None = None
    key: str | None = None
    schedule_id: str | None = None
    run_id: str | None = None
    step: int | None = None
    share: str | None = None  # its keys
    error: ErrorRow | None = None
    attempts: list[AttemptRow] | None = None
    occurrence: str | None = None  # whose job it is, as its handler is told
    unique_key: str | None = None


class DepthRow(msgspec.Struct):
    """A queue with a limit of depth."""

    queue: str
    jobs: int
    unfolded: int  # came and went, and was not added yet
    max_depth: int
    shut: int


class OccurrenceRow(msgspec.Struct, gc=False, omit_defaults=True):
    schedule_id: str
    due_at: float
    state: int
    schedule: str | None = None
    reason: str | None = None
    caught_up: bool = False
    job_id: str | None = None
    decided_at: float = 0.0
    run_at: float | None = None  # later than `due_at` by spread and jitter


class ScheduleRow(msgspec.Struct):
    id: str
    name: str
    created_at: float
    cursor: float


class RunRow(msgspec.Struct, omit_defaults=True):
    id: str
    name: str
    state: int
    round: int
    created_at: float = 0.0
    cancel_at: float | None = None
    ended_at: float | None = None
    deadline_at: float | None = None
    parent_id: str | None = None
    parent_step: int | None = None
    schedule_id: str | None = None


class CheckpointRow(msgspec.Struct, gc=False, omit_defaults=True):
    run_id: str
    number: int
    kind: int
    state: int
    attempt: int
    token: int
    name: str
    created_at: float
    job_id: str | None = None  # of a call: its job or run; of a wait: the signal that it took
    signal: str | None = None
    signal_key: str | None = None
    ended_at: float | None = None
    wake_at: float | None = None


class TraceRow(msgspec.Struct, gc=False):
    """Of a job that succeeded, and that its queue did not keep."""

    id: str
    queue: str
    ended_at: float


class SignalRow(msgspec.Struct, gc=False, omit_defaults=True):
    id: str
    name: str
    key: str
    sent_at: float
    payload: object
    once: str | None = None
    run_id: str | None = None
    taken_at: float | None = None


class Made(msgspec.Struct, gc=False):
    """The result of a step: by which attempt, and of which result."""

    by: str
    of: Any


class StepRow(msgspec.Struct, gc=False, omit_defaults=True):
    run_id: str
    number: int
    name: str
    kind: int
    rule: int
    state: int
    tolerated: int = 0
    optional: bool = False
    conditional: bool = False
    by_hand: bool = False  # somebody has skipped it
    unjudged: bool = False  # it failed without having started
    job_id: str | None = None
    before: list[int] = []  # the numbers of the steps that it comes after
    takes: int | None = None  # the number of the one whose result it is given
    result: Made | int | None = None


class MapRow(msgspec.Struct):
    run_id: str
    members: int
    succeeded: int
    failed: int


class GateRow(msgspec.Struct):
    schedule_id: str
    job_id: str


class ShardRow(msgspec.Struct):
    shard: int
    epoch: int
    owner: str | None = None


class MoveRow(msgspec.Struct):
    shard: int
    epoch: int
    owner: str
    at: float
    previous: str | None = None
    previous_until: float | None = None


class NodeRow(msgspec.Struct):
    id: str
    name: str
    state: str
    ended_at: float | None = None


class BatchRow(msgspec.Struct):
    token: int
    lane: str
    node: str


class KeyRow(msgspec.Struct, gc=False):
    key: str
    job_id: str


class EffectRow(msgspec.Struct, gc=False):
    job: str
    token: int


class Attempt(msgspec.Struct, gc=False):
    """One start of a job, and how that ended if it did."""

    start: Beat
    end: Beat | None = None

    @property
    def token(self) -> int:
        return self.start.token

    @property
    def beats(self) -> list[Beat]:
        return [self.start] if self.end is None else [self.start, self.end]

    @property
    def ended_ok(self) -> bool:
        return self.end is not None and self.end.outcome == OK


class Request(msgspec.Struct, gc=False):
    """All that clients wrote down about one job: under its id, or its key as long as they had no id."""

    job: str
    task: str
    key: str | None
    asked: int = 0
    acknowledged: int = 0
    refused: int = 0
    unknown: int = 0
    cancelled: bool = False
    due: float | None = None  # the earliest that anybody wanted it, by the database's clock
    # And without it: that clock may be set back between the question and the answer.
    wanted_at: float | None = None

    @property
    def by_key(self) -> bool:
        return self.job == self.key

    @property
    def open(self) -> bool:
        """Somebody asked and never learnt what became of it."""
        return self.unknown > 0 or self.asked > self.acknowledged + self.refused

    def add(self, record: Submission, meta: Meta) -> None:
        setattr(self, record.answer, getattr(self, record.answer) + 1)
        self.cancelled = self.cancelled or record.cancelled
        if record.answer == "asked" and not record.cancelled:
            due = meta.database(record.at) + record.due_in
            self.due = due if self.due is None else min(self.due, due)
            wanted = record.at + record.due_in
            self.wanted_at = wanted if self.wanted_at is None else min(self.wanted_at, wanted)


class Spans:
    """Stretches of time, any of which a question may overlap."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self._starts: list[float] = []
        self._ends: list[float] = []
        for start, end in sorted(spans):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def overlap(self, first: float, last: float) -> bool:
        """Whether any of them has a moment in [first, last]."""
        place = bisect_right(self._starts, last) - 1
        return place >= 0 and self._ends[place] >= first


class Facts:
    def __init__(self, folder: Path) -> None:
        history = History(folder)
        self.meta = history.meta
        self.faults = history.faults()
        self._trouble = Spans(
            (fault.at, max(fault.at, fault.until))
            for fault in self.faults
            if fault.kind != WITHDRAWAL
        )
        self._read_journals(history.beats())
        self._read_clients(history.submissions())
        self.depths = history.rows_as("depth", DepthRow)
        self._read_jobs(history.rows_as("job", JobRow))
        self.occurrences = history.rows_as("occurrence", OccurrenceRow)
        self.occurrence_of = {row.job_id: row for row in self.occurrences if row.job_id}
        self.schedules = history.rows_as("schedule", ScheduleRow)
        self.schedule_names = {row.id: row.name for row in self.schedules}
        self._read_operations(history)
        self.gates = history.rows_as("gate", GateRow)
        self.runs = {row.id: row for row in history.rows_as("run", RunRow)}
        self.steps: dict[str, list[StepRow]] = defaultdict(list)
        for step in history.rows_as("step", StepRow):
            self.steps[step.run_id].append(step)
        self.checkpoints: dict[str, list[CheckpointRow]] = defaultdict(list)
        for checkpoint in history.rows_as("checkpoint", CheckpointRow):
            self.checkpoints[checkpoint.run_id].append(checkpoint)
        self.signals = history.rows_as("signal", SignalRow)
        self.sights: dict[str, list[Sight]] = defaultdict(list)  # of a run, in order of time
        for sight in history.sights():
            self.sights[sight.run].append(sight)
        self.maps = {row.run_id: row for row in history.rows_as("map", MapRow)}
        self.members = history.members()  # in order of time
        self.traces: dict[str, list[TraceRow]] = defaultdict(list)
        for trace in history.rows_as("trace", TraceRow):
            self.traces[trace.id].append(trace)
        self.shards = history.rows_as("shard", ShardRow)
        self.moves = history.rows_as("shard_move", MoveRow)
        self.nodes = {row.id: row for row in history.rows_as("node", NodeRow)}
        self.batches = history.rows_as("batch", BatchRow)
        self.keys = {row.key: row for row in history.rows_as("submit_key", KeyRow)}
        self.effects: dict[str, list[EffectRow]] = defaultdict(list)
        for effect in history.rows_as("app_effect", EffectRow):
            self.effects[effect.job].append(effect)

    def _read_journals(self, beats: list[Beat]) -> None:
        self.beats = beats  # in order of time
        self.attempts: dict[str, list[Attempt]] = {}  # of a job, in order of their tokens
        self.guarded: dict[str, list[Beat]] = defaultdict(list)
        self.orphans: list[Beat] = []  # ends without a start
        for beat in beats:
            if beat.event == "start":
                self.attempts.setdefault(beat.job, []).append(Attempt(beat))
            elif beat.event == "guarded":
                self.guarded[beat.job].append(beat)
            elif beat.event == "end":
                self._read_end(beat)
        for attempts in self.attempts.values():
            if len(attempts) > 1:
                attempts.sort(key=lambda attempt: attempt.token)

    def _read_end(self, beat: Beat) -> None:
        for attempt in self.attempts.get(beat.job, ()):
            if attempt.token == beat.token and attempt.end is None:
                attempt.end = beat
                return
        self.orphans.append(beat)

    def _read_clients(self, records: list[Submission]) -> None:
        self.submissions = records
        self._records_of: dict[str, list[Submission]] = {}
        self.requests: dict[str, Request] = {}
        self.acknowledged_keys: dict[str, set[str]] = {}  # the ids that clients were told
        for record in records:
            request = self.requests.get(record.job)
            if request is None:
                request = Request(record.job, record.task, record.key)
                self.requests[record.job] = request
            request.add(record, self.meta)
            if record.key is not None and record.answer == "acknowledged":
                ids = self.acknowledged_keys.setdefault(record.key, set())
                if record.job != record.key:
                    ids.add(record.job)
        # What may be in the database under a key: somebody asked, and wasn't refused.
        self.open_keys = {
            request.key
            for request in self.requests.values()
            if request.key is not None and (request.open or request.acknowledged)
        }

    def _read_jobs(self, rows: list[JobRow]) -> None:
        self.jobs: dict[str, JobRow] = {}
        self.doubled: list[JobRow] = []
        self.by_key: dict[str, list[JobRow]] = {}
        self.jobs_of_steps: dict[tuple[str, int], list[JobRow]] = defaultdict(list)  # of all rounds
        for row in rows:
            if row.id in self.jobs:
                self.doubled.append(row)
            self.jobs[row.id] = row
            if row.run_id is not None and row.step is not None:
                self.jobs_of_steps[row.run_id, row.step].append(row)
            if row.key is not None:
                self.by_key.setdefault(row.key, []).append(row)

    def _read_operations(self, history: History) -> None:
        self.operations = history.operations()
        made = {row.name: (row.id, self.at(row.created_at)) for row in self.schedules}
        touched = {operation.subject for operation in self.operations}
        lives = lives_of(self.operations)
        lives += unchanged_lives(self.meta.schedules, made, touched)
        self.lives: dict[str, Life] = {life.id: life for life in lives}
        # Jobs that somebody asked to be cancelled, tried again or forgotten.
        self.steered: dict[str, set[str]] = defaultdict(set)
        for operation in self.operations:
            if operation.answer != "refused":
                self.steered[operation.kind].add(operation.subject)

    def promises_of(self, row: JobRow) -> list[SchedulePromise]:
        """All that the schedule that made it has ever said."""
        life = self.lives.get(row.schedule_id or "")
        return life.promises if life else []

    def records_of(self, name: str) -> list[Submission]:
        """What clients wrote about a job or a key. Indexed only when something is to be shown."""
        if not self._records_of:
            for record in self.submissions:
                for about in {record.job, record.key or record.job}:
                    self._records_of.setdefault(about, []).append(record)
        return self._records_of.get(name, [])

    # -- time

    def at(self, database_time: float) -> float:
        return self.meta.at(database_time)

    def finished(self, row: JobRow) -> float | None:
        return None if row.finished_at is None else self.at(row.finished_at)

    def disturbed(self, first: float, last: float) -> bool:
        """Whether anything was broken then."""
        return self._trouble.overlap(first, last)

    def life_was_calm(self, row: JobRow) -> bool:
        """Nothing was broken in its life, nor a lease before or after it."""
        finished, lease = self.finished(row), self.meta.lease_seconds
        return finished is not None and not self.disturbed(
            self.at(row.created_at) - lease, finished + lease
        )

    # -- faults

    def faults_of(self, kind: str, node: str) -> list[Fault]:
        return [fault for fault in self.faults if fault.kind == kind and hits(fault, node)]

    # -- promises

    def guarantee(self, task: str, row: JobRow | None) -> int:
        """As the workload's author declared it, whatever the database says."""
        promise = self.meta.tasks.get(task)
        return GUARANTEES[promise.guarantee] if promise else row.guarantee if row else 1


def hits(fault: Fault, node: str) -> bool:
    return fault.target == EVERYONE or node in fault.target.split(",")
