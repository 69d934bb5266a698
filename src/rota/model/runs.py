"""Workflows, their runs and steps; maps, durable functions and signals."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from rota.lib.display import Bar, amount, as_html, printable


class WorkflowInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A workflow as it is stored: its newest version, or the one that was asked for."""

    namespace: str
    name: str
    version: int
    created_at: datetime
    definition: Any
    retired_at: datetime | None = None
    running: int | None = None  # how many of its runs have not ended
    source: str = "code"  # where this version is declared: code, file, api


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a workflow. `state`: running, succeeded, failed or cancelled."""

    id: UUID
    namespace: str
    workflow: str
    version: int
    state: str
    round: int  # rises each time it is resumed
    created_at: datetime
    ended_at: datetime | None
    deadline_at: datetime | None
    paused_at: datetime | None
    cancel_requested_at: datetime | None
    input: Any
    error: Any
    priority: int | None = None
    key: str | None = None
    schedule_id: UUID | None = None
    parent_id: UUID | None = None  # the run that it is a step of
    steps: int | None = None  # how many there are, and how many of them have ended
    ended_steps: int | None = None
    problem: Any = (
        None  # why it was paused: the code of its durable function contradicts its history
    )
    status: Any = None  # what its durable function says of itself
    restarts: int = 0  # how often its durable function has begun anew

    def bar(self) -> Bar:
        """Return how many of its steps have ended."""
        return Bar(f"{self.workflow}, {self._shown()}", self.ended_steps or 0, self.steps or None)

    def _shown(self) -> str:
        if self.state != "running":
            return self.state
        if self.paused_at is not None:
            return "paused"
        return "running" if self.cancel_requested_at is None else "cancelling"

    def _message(self) -> str | None:
        error = self.error or self.problem
        return str(error.get("message")) if isinstance(error, dict) else None

    def words(self) -> str:
        """Say in a line what it is and how it is doing."""
        said = [f"{self.workflow}, {self._shown()}"]
        if self.steps:
            said.append(f"{amount(self.bar())} steps")
        if (message := self._message()) is not None:
            said.append(printable(message[:200]))
        return ", ".join(said)

    def __repr__(self) -> str:
        return f"<Run {self.id}: {self.words()}>"

    def _repr_html_(self) -> str:
        rows = {
            "id": str(self.id), "status": self.status, "error": self._message(),
            "started": f"{self.created_at:%Y-%m-%d %H:%M:%S %Z}",
            "ended": f"{self.ended_at:%Y-%m-%d %H:%M:%S %Z}" if self.ended_at else None,
        }  # fmt: skip
        return as_html(self.workflow, self._shown(), self.bar(), rows)


class MapProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a map. `under_way`: members that were done in chunks that still run."""

    members: int
    succeeded: int
    failed: int
    under_way: int
    chunks: int
    ended_chunks: int
    running_jobs: int
    at_once: int
    closed: bool  # all members are known
    each: str


class GraphStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a run as its graph shows it: without results and errors."""

    number: int
    name: str
    kind: str
    task: str | None
    state: str
    after: Sequence[int]  # the numbers of the steps that it comes after
    started_at: datetime | None = None
    ended_at: datetime | None = None
    job_id: UUID | None = None
    progress: MapProgress | None = None  # of a map that has started


class RunCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a durable function has done, or waits for.

    `kind`: step, call, run, sleep, signal or note. `state`: waiting, succeeded, failed, cancelled, or
    skipped, of what lost a race.
    """

    number: int
    kind: str
    name: str
    state: str
    attempt: int
    created_at: datetime
    ended_at: datetime | None
    wake_at: datetime | None = None
    job_id: UUID | None = None
    signal: str | None = None
    signal_key: str | None = None
    digest: str | None = None
    result: Any = None
    error: Any = None


class SignalSent(msgspec.Struct, frozen=True):
    """The answer to a signal that was sent. `run_id`: the run that took it; None: it waits for one."""

    id: UUID
    existed: bool  # the same `once` was sent before: nothing happened now
    run_id: UUID | None = None


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that was sent. Without `taken_at` it waits for a function that takes it."""

    id: UUID
    name: str
    key: str
    sent_at: datetime
    once: str | None = None
    taken_at: datetime | None = None
    run_id: UUID | None = None
    payload: Any = None


class MapMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member of a map. `state`: waiting, running, succeeded, failed or cancelled."""

    number: int
    state: str
    attempt: int
    item: Any
    result: Any = None
    error: Any = None
    job_id: UUID | None = None  # of its chunk, or its own
    ended_at: datetime | None = None


class RunStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a run. `state`: waiting, running, succeeded, failed, cancelled, skipped or
    upstream_failed."""

    number: int
    name: str
    kind: str  # task, map or workflow
    task: str  # or the workflow's name
    state: str
    rule: str
    waits: int  # predecessors that have not ended
    after: tuple[str, ...] = ()
    when: str | None = None
    job_id: UUID | None = None  # of a workflow: its run
    started_at: datetime | None = None
    ended_at: datetime | None = None
    result: Any = None
    error: Any = None
    note: str | None = None  # such as that a person skipped it
    progress: MapProgress | None = None  # of a map that has started


class RunChanged(msgspec.Struct, frozen=True):
    """The result of an action on a run. `steps`: how many steps it concerned."""

    id: UUID
    outcome: Literal["cancelling", "paused", "resumed", "retried", "skipped"]
    steps: int = 0
