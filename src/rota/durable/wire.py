"""The messages between a durable function and the node that runs it, as JSON over the channel of its
context; and its history."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from rota.core.workflow.model import CheckpointKind, StepState
from rota.model import Failure

OPEN, CALL, RUN, WAIT, SUSPEND, RESTART, CLOSE, STATUS = (
    "function_open", "function_call", "function_run", "function_wait",
    "function_suspend", "function_restart", "function_close", "function_status",
)  # fmt: skip
NULL = msgspec.Raw(b"null")


class Checkpoint(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Something that a function has done, or waits for."""

    number: int
    kind: CheckpointKind
    state: StepState
    name: str  # where it is in the code: branch, name and occurrence
    digest: str | None = None  # of its arguments
    attempt: int = 1
    wake_at: datetime | None = None
    ended_at: datetime | None = None
    result: msgspec.Raw = NULL
    error: Failure | None = None


class History(msgspec.Struct, kw_only=True):
    """A function's run, and what it has done so far."""

    run: UUID
    restarts: int  # how often it has begun anew
    round: int
    code_version: int  # of the function's declaration when the run was started
    cancelled: bool
    paused: bool
    now: datetime  # by the database's clock
    checkpoints: list[Checkpoint]


class NewCheckpoint(msgspec.Struct, omit_defaults=True, kw_only=True):
    number: int
    kind: CheckpointKind
    state: StepState
    name: str
    digest: str | None = None
    attempt: int = 1
    delay: float | None = None  # of what waits: seconds from now
    ran: float | None = None  # of a step: seconds that this try took
    result: msgspec.Raw = NULL
    error: Failure | None = None


class NewCall(msgspec.Struct, kw_only=True):
    """A call of a job, or of a run."""

    number: int
    name: str
    digest: str | None
    child: msgspec.Raw  # a `NewJob` or a `NewRun`


class NewWait(msgspec.Struct, kw_only=True):
    number: int
    name: str
    signal: str
    key: str | None  # None: the run's own
    timeout: float | None


class Waited(msgspec.Struct):
    state: StepState
    result: msgspec.Raw = NULL


class RaceEnd(msgspec.Struct, kw_only=True):
    winner: NewCheckpoint  # a note
    losers: list[int]  # their checkpoints
    cancel: bool  # jobs and runs among them are asked to stop


class Suspension(msgspec.Struct, kw_only=True):
    waits: list[int]  # it goes on when one of these is over
    joined: list[int] = []  # or when all of these are
    knows_cancel: bool
    problem: Failure | None = None  # it is parked: somebody has to look at it


_history = msgspec.json.Decoder(History)


def decode_history(body: bytes) -> History:
    return _history.decode(body)
