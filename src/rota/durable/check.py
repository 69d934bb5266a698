"""Replays kept histories with the code at hand, without doing anything: do they still agree?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.context import Context, JobInfo
from rota.core.workflow.model import CheckpointKind, StepState
from rota.durable.branches import Left, Mismatch, failed_at
from rota.durable.context import DurableContext
from rota.durable.function import DurableFunction
from rota.durable.replay import Replay
from rota.durable.wire import Checkpoint, History, NewCheckpoint
from rota.errors import RunCancelled
from rota.lib.capture import message_of
from rota.model import Failure, Run, RunCheckpoint


class EndOfHistory(Left):
    """The function has come to something that it had not done yet."""


class _Offline:
    """A channel on which nothing happens."""

    cancelled = False

    def heartbeat(self) -> None: ...

    def progress(self, body: bytes) -> None: ...

    async def call(self, name: str, body: bytes) -> bytes:
        raise EndOfHistory(name)

    def record(self, new: Sequence[NewCheckpoint]) -> asyncio.Future[bool]:
        raise EndOfHistory(new[-1].name)


def history_of(run: Run, checkpoints: Sequence[RunCheckpoint], code_version: int = 1) -> History:
    """Return a run's history as its function reads it."""
    return History(
        run=run.id, restarts=run.restarts, round=run.round, code_version=code_version,
        now=run.created_at, paused=False, cancelled=run.cancel_requested_at is not None,
        checkpoints=[
            Checkpoint(
                number=each.number, kind=CheckpointKind.parse(each.kind),
                state=StepState.parse(each.state), name=each.name, digest=each.digest,
                attempt=each.attempt, wake_at=each.wake_at, ended_at=each.ended_at,
                result=msgspec.Raw(msgspec.json.encode(each.result)),
                error=None if each.error is None else _failure(each.error),
            )
            for each in checkpoints
        ],
    )  # fmt: skip


def _failure(error: Mapping[str, Any]) -> Failure:
    return Failure(str(error.get("type", "")), str(error.get("message", "")))


async def check_replay(
    function: DurableFunction[..., Any], given: Mapping[str, Any], history: History
) -> str | None:
    """Replay a history with the code at hand. Return what differs; None: nothing does.

    Nothing is done and nothing is written: it ends where the history does. Code that raises something
    differs, too, unless that comes from the history itself: a step that failed, or a cancel.
    """
    replay = Replay(_Offline(), history)
    job = JobInfo(id=UUID(int=0), task=function.name, attempt=1, max_attempts=1, token=0)
    context = DurableContext(Context(job, _Offline()), replay, function)
    payload = msgspec.json.encode(given)
    try:
        await replay.run(function.called_with(payload, context))
    except Mismatch as error:
        return str(error)
    except Left:
        return None
    except Exception as error:  # noqa: BLE001 - the code may raise anything
        return _raised(replay, error)
    return None


def _raised(replay: Replay, error: Exception) -> str | None:
    left = replay.left_over()
    if isinstance(error, RunCancelled) and replay.cancelled:
        return None
    if failed_at(error) is not None and left is None:
        return None
    where = "at the end of the history" if left is None else f"where the history has {left}"
    return f"the code raises {type(error).__name__}: {message_of(error)} {where}"
