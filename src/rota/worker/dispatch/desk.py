"""Serves the calls of handlers where there is no database, and turns outcomes into reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from rota.core.lifecycle import may_retry
from rota.errors import ConfigError
from rota.lifecycle import State
from rota.model import Failure, Outcome, OutcomeKind
from rota.runtime.attempts import retry_of
from rota.runtime.work import Work


class RemoteDesk:
    """A `Desk`: see `rota.worker.runners.base`. `report`: takes progress."""

    def __init__(self, state: State, report: Callable[[Work, bytes], None]) -> None:
        self.state = state
        self._report = report

    def report_progress(self, work: Work, progress: bytes) -> None:
        self._report(work, progress)

    async def answer(self, work: Work, name: str, body: bytes) -> bytes:
        called = {"once": "ctx.once()", "limit": "ctx.limit()"}.get(name.partition("_")[0], name)
        raise ConfigError(
            f"{called} needs the database, which a worker that takes its jobs from a broker doesn't "
            f"reach: run the task {work.task!r} on a node with the role worker"
        )

    async def transact(self, work: Work, handler: Callable[[Any], Awaitable[Outcome]]) -> Outcome:
        raise ConfigError(f"job {work.id} is exactly_once, which needs the database")


def finish_item(work: Work, outcome: Outcome, tasks: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report of an attempt's outcome, an item of the call `finish`."""
    item: dict[str, Any] = {"job": work.id, "token": work.token}
    failure = outcome.failure
    match outcome.kind:
        case OutcomeKind.SUCCEEDED:
            item["outcome"] = "succeeded"
            if outcome.result is not None:
                item["result"] = msgspec.Raw(outcome.result)
            if failure is not None:
                item["error"] = _error(failure)
        case OutcomeKind.CANCELLED:
            item["outcome"] = "cancelled"
        case OutcomeKind.RETURNED:
            item |= {"outcome": "released", "begun": bool(work.started)}
        case _:
            failure = failure or Failure(outcome.kind.label, "no error was recorded")
            item |= {"outcome": "failed", "error": _error(failure)}
            if outcome.retry_after is not None:
                item |= {"outcome": "retry_after", "seconds": outcome.retry_after}
            # Relays know the name of an error and not its base classes: what those mean is decided here.
            elif outcome.fatal or not may_retry(retry_of(tasks, work.task), failure):
                item["fatal"] = True
    return item


def _error(failure: Failure) -> dict[str, str]:
    return {"type": failure.type, "message": failure.message, "traceback": failure.traceback}


def released(work: Work) -> dict[str, Any]:
    """Return the report of a job that was offered and not begun."""
    return {"job": work.id, "token": work.token, "outcome": "released", "begun": False}
