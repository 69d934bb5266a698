"""Takes the outcomes that runners report to the verdicts, counts each claimed batch, logs failures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any
from uuid import UUID

from rota.context import ErrorHook, JobInfo
from rota.core.durations import format_duration
from rota.core.lifecycle import End, GiveBack, Succeed, TryAgain, Verdict
from rota.lib import tracing
from rota.lib.capture import storable
from rota.model import Failure, Guarantee, Outcome, OutcomeKind, Retry, State
from rota.runtime.attempts import retry_of
from rota.runtime.work import Work
from rota.store.work import Returned
from rota.task import Task
from rota.worker.finisher import Finisher
from rota.worker.runners.results import call_hooks, named_error

log = logging.getLogger("rota.outcomes")
_failures = logging.getLogger("rota.jobs")

# Called with each attempt that ended here and the verdict on it. Must be quick, and not raise.
Observer = Callable[[Work, Outcome, Verdict], None]

_MOST_A_SECOND = 100  # failures that are logged
_SUCCEED = Succeed()
_RETURNED = GiveBack()
_SUCCEEDED = OutcomeKind.SUCCEEDED


class Outcomes:
    def __init__(self, tasks: Mapping[str, Task[..., Any]], finisher: Finisher) -> None:
        self._tasks = tasks
        self._finisher = finisher
        self._verdicts = finisher.verdicts
        self._batches: dict[int, int] = {}  # token -> jobs that are not accounted for
        self.ended: Callable[[Work], None] = lambda work: None
        self.observers: list[Observer] = []
        self.failure_observers: list[Observer] = []  # of attempts that did not simply succeed
        self.claims = 0
        self.claimed_jobs = 0

    def open_batch(self, token: int, size: int) -> None:
        self.claims += 1
        self.claimed_jobs += size
        if tracing.active:
            tracing.note_claim(token)
        self._batches[token] = size

    def known_batches(self) -> set[int]:
        return set(self._batches) | self._finisher.closing()

    def done(self, work: Work, outcome: Outcome) -> None:
        """End an attempt, whichever runner it was in. Whatever happens, its slot becomes free."""
        if work.recorder is not None or work.span is not None:
            self._close_records(work, outcome)
        try:
            if work.token in self._batches:
                self._note(work, outcome)
        finally:
            self.ended(work)

    def _close_records(self, work: Work, outcome: Outcome) -> None:
        try:
            if work.recorder is not None:
                work.recorder.close()
            if work.span is not None:
                failure = outcome.failure
                problem = f"{failure.type}: {failure.message}" if failure is not None else None
                tracing.end(work, outcome.kind.label, problem)
        except Exception:
            log.exception("the log or the trace of job %s could not be closed", work.id)

    def _note(self, work: Work, outcome: Outcome) -> None:
        verdict: Verdict = _SUCCEED
        try:
            if outcome.kind is not _SUCCEEDED:
                # A durable function that waits was suspended by its own statement.
                verdict = _RETURNED if outcome.settled else self._judge(work, outcome)
            elif work.guarantee is not Guarantee.EXACTLY_ONCE and not outcome.settled:
                # An exactly_once job was finished by its own transaction.
                self._verdicts.succeed(work, outcome, monotonic())
        except Exception as error:
            log.exception("the outcome of job %s can't be judged, so it fails", work.id)
            verdict = self._fail(work, error)
        self._account(work.token)
        observers = self.observers
        if verdict is not _SUCCEED:
            observers = [*observers, *self.failure_observers]
        for observe in observers:
            try:
                observe(work, outcome, verdict)
            except Exception:
                log.exception("an observer of job %s failed", work.id)

    def _judge(self, work: Work, outcome: Outcome) -> Verdict:
        now = monotonic()
        ran = now - work.started if work.started else 0.0
        if work.run is not None:
            self._finisher.step_failed = True
        retry = retry_of(self._tasks, work.task)
        if work.chunk is not None:
            # The policy is for its members; a chunk that was interrupted goes on after the first delay.
            retry = Retry(base=retry.base, factor=1.0, cap=retry.cap, jitter=retry.jitter)
        return self._verdicts.judge(work, outcome, retry, ran, now)

    def _fail(self, work: Work, error: Exception) -> Verdict:
        """Fail a job whose outcome can't be judged: it must not stay running."""
        why = f"{type(error).__name__}: {error}" if work.encryptor is None else type(error).__name__
        failure = Failure("OutcomeNotStored", storable(why))
        self._verdicts.fail(work.id, work.token, work.crashes, failure, monotonic())
        return End(State.FAILED, work.crashes, failure)

    def fail_claimed(self, id: UUID, token: int, crashes: int, error: Exception) -> None:
        """Fail a claimed job that this node can't even make a work of."""
        if token in self._batches:
            failure = Failure("NotAccepted", storable(f"{type(error).__name__}: {error}"))
            self._verdicts.fail(id, token, crashes, failure, monotonic())
            self._account(token)

    def refuse(self, work: Work, failure: Failure) -> None:
        """Move a job that can never begin to the dead letters."""
        if work.token in self._batches:
            self._judge(work, Outcome(OutcomeKind.RAISED, failure=failure, fatal=True))
            self._account(work.token)

    def return_unstarted(self, work: Work) -> None:
        """Return a job that never began to its queue, as if it had not been claimed."""
        if work.token in self._batches:
            self._verdicts.give_back(work)
            self._account(work.token)

    def moved_on(self, work: Work) -> None:
        """Forget a job whose start was refused: the database has already put it where it belongs."""
        if work.token in self._batches:
            self._account(work.token)

    def give_back(self, jobs: Sequence[Returned]) -> None:
        """Return a whole batch, right after its claim."""
        self._verdicts.returned.extend(jobs)
        self._finisher.close_batch(jobs[0].token)
        self._finisher.wake()

    def close_unused(self, token: int) -> None:
        """Close the batch of a claim of which nothing is kept here."""
        self._finisher.close_batch(token)
        self._finisher.wake()

    def _account(self, token: int) -> None:
        left = self._batches[token] - 1
        if left:
            self._batches[token] = left
        else:
            del self._batches[token]
            self._finisher.close_batch(token)
        self._finisher.wake()

    def forget(self) -> None:
        """Forget all outcomes: this node was declared dead, and they would be refused."""
        self._batches.clear()
        self._finisher.forget()


class FailureLog:
    """Logs each attempt that failed: WARNING when it is tried again, ERROR when it is a dead letter.

    An observer of outcomes. The traceback goes along, as text, because the exception itself may have
    been raised in another process; the log's own formatter takes known secrets out of it. Of jobs whose
    payload is encrypted only the type of the error is logged. When very many fail in one second the
    rest is counted.

    It also calls the app's `on_error` hooks for failures without an exception of the handler: a
    timeout, a missing sign of life, a child process that died. For what a handler raises, the runner
    calls them.
    """

    def __init__(self, hooks: Sequence[ErrorHook]) -> None:
        self._hooks = hooks
        self._since = 0.0
        self._logged = 0
        self._left_out = 0

    def ended(self, work: Work, outcome: Outcome, verdict: Verdict) -> None:
        if isinstance(verdict, TryAgain) and outcome.failure is not None:
            when = f"in {format_duration(verdict.delay)}" if verdict.delay > 0 else "at once"
            self._log(logging.WARNING, work, outcome.failure, f"and is tried again {when}")
        elif isinstance(verdict, End) and verdict.state is State.FAILED:
            failure = verdict.failure or Failure("Unknown", "no error was recorded")
            self._log(logging.ERROR, work, failure, "it is a dead letter now")
        else:
            return
        if self._hooks and outcome.kind is not OutcomeKind.RAISED:
            failure = outcome.failure or Failure("JobError", outcome.kind.label)
            error = named_error(failure.type, failure.message)
            call_hooks(self._hooks, JobInfo.of(work), error)

    def _log(self, level: int, work: Work, failure: Failure, follows: str) -> None:
        if not self._may_log():
            return
        encrypted = work.encryptor is not None
        message = "(encrypted)" if encrypted else failure.message
        traceback = "" if encrypted or not failure.traceback else f"\n{failure.traceback.rstrip()}"
        _failures.log(
            level, "job %s (%s) failed at attempt %d of %d, %s: %s: %s%s",
            work.id, work.task, work.attempt, work.max_attempts, follows, failure.type, message,
            traceback,
        )  # fmt: skip

    def _may_log(self) -> bool:
        now = monotonic()
        if now - self._since >= 1:
            if self._left_out:
                _failures.warning("%d more attempts failed and were not logged", self._left_out)
            self._since, self._logged, self._left_out = now, 0, 0
        self._logged += 1
        if self._logged > _MOST_A_SECOND:
            self._left_out += 1
            return False
        return True
