"""Logs each attempt that failed: WARNING when it is tried again, ERROR when it is a dead letter.

An observer of outcomes. The traceback goes along, as text, because the exception itself may have been
raised in another process; the log's own formatter takes known secrets out of it. Of jobs whose payload
is encrypted only the type of the error is logged. When very many fail in one second the rest is counted.

It also calls the app's `on_error` hooks for failures without an exception of the handler: a timeout, a
missing sign of life, a child process that died. For what a handler raises, the runner calls them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import monotonic

from rota import errors
from rota.context import ErrorHook, JobInfo
from rota.core.durations import format_duration
from rota.core.lifecycle import End, TryAgain, Verdict
from rota.model import Failure, Outcome, OutcomeKind, State
from rota.runtime.work import Work
from rota.worker.runners.failures import call_hooks

log = logging.getLogger("rota.jobs")

_MOST_A_SECOND = 100


class FailureLog:
    def __init__(self, hooks: Sequence[ErrorHook]) -> None:
        self._hooks = hooks
        self._since = 0.0
        self._logged = 0
        self._left_out = 0

    def ended(self, work: Work, outcome: Outcome, verdict: Verdict) -> None:
        if isinstance(verdict, TryAgain) and outcome.failure is not None:
            self._log(logging.WARNING, work, outcome.failure, _again(verdict))
        elif isinstance(verdict, End) and verdict.state is State.FAILED:
            failure = verdict.failure or Failure("Unknown", "no error was recorded")
            self._log(logging.ERROR, work, failure, "it is a dead letter now")
        else:
            return
        if self._hooks and outcome.kind is not OutcomeKind.RAISED:
            call_hooks(self._hooks, JobInfo.of(work), _as_exception(outcome))

    def _log(self, level: int, work: Work, failure: Failure, follows: str) -> None:
        if not self._may_log():
            return
        encrypted = work.encryptor is not None
        message = "(encrypted)" if encrypted else failure.message
        traceback = "" if encrypted or not failure.traceback else f"\n{failure.traceback.rstrip()}"
        log.log(
            level, "job %s (%s) failed at attempt %d of %d, %s: %s: %s%s",
            work.id, work.task, work.attempt, work.max_attempts, follows, failure.type, message,
            traceback,
        )  # fmt: skip

    def _may_log(self) -> bool:
        now = monotonic()
        if now - self._since >= 1:
            if self._left_out:
                log.warning("%d more attempts failed and were not logged", self._left_out)
            self._since, self._logged, self._left_out = now, 0, 0
        self._logged += 1
        if self._logged > _MOST_A_SECOND:
            self._left_out += 1
            return False
        return True


def _again(verdict: TryAgain) -> str:
    if verdict.delay <= 0:
        return "and is tried again at once"
    return f"and is tried again in {format_duration(verdict.delay)}"


def _as_exception(outcome: Outcome) -> Exception:
    failure = outcome.failure or Failure("JobError", outcome.kind.label)
    kind = getattr(errors, failure.type, None)
    if isinstance(kind, type) and issubclass(kind, errors.JobError):
        return kind(failure.message)
    return errors.JobError(f"{failure.type}: {failure.message}")
