"""From what a runner reports to what the finisher writes, keeping count of each claimed batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any
from uuid import UUID

from rota.config import Settings
from rota.core.lifecycle import End, GiveBack, Succeed, Tried, TryAgain, Verdict, judge
from rota.lib import tracing
from rota.lib.capture.lines import storable
from rota.lib.ids import unit
from rota.model import Failure, Guarantee, Outcome, OutcomeKind, Retry, State
from rota.runtime.entries import attempt_entry, encode_failure
from rota.store.encrypted import encrypted_outcome
from rota.store.work import Ended, Retried, Returned, Succeeded
from rota.task import Task
from rota.worker.effects import succeeded
from rota.worker.finisher import Finisher
from rota.worker.runners.base import Work

log = logging.getLogger("rota.outcomes")

# Told of each attempt that ended here, and what becomes of its job. Must be quick, and not raise.
Observer = Callable[[Work, Outcome, Verdict], None]

_SUCCEED = Succeed()
_SUCCEEDED = OutcomeKind.SUCCEEDED


class Outcomes:
    def __init__(
        self, tasks: Mapping[str, Task[..., Any]], settings: Settings, finisher: Finisher,
        node: Callable[[], UUID],
    ) -> None:  # fmt: skip
        self._tasks = tasks
        self._settings = settings
        self._finisher = finisher
        self._node = node
        self._batches: dict[int, int] = {}  # token -> jobs that are not accounted for
        self.ended: Callable[[Work], None] = lambda work: None
        self.wake: Callable[[], None] = lambda: None
        self.observers: list[Observer] = []
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
        """How every attempt ends, whichever runner it was in. Whatever happens, its slot comes free."""
        try:
            if work.recorder is not None:
                work.recorder.close()
            if work.span is not None:
                failure = outcome.failure
                problem = f"{failure.type}: {failure.message}" if failure is not None else None
                tracing.end(work, outcome.kind.label, problem)
        except Exception:
            log.exception("the log or the trace of job %s could not be closed", work.id)
        try:
            if work.token in self._batches:
                self._note(work, outcome)
        finally:
            self.ended(work)

    def _note(self, work: Work, outcome: Outcome) -> None:
        verdict: Verdict = _SUCCEED
        try:
            if outcome.kind is not _SUCCEEDED:
                verdict = self._note_other(work, outcome)
            elif work.guarantee is not Guarantee.EXACTLY_ONCE and not outcome.settled:
                # What ran exactly once was finished by its own transaction.
                self._note_success(work, outcome)
        except Exception as error:
            log.exception("the outcome of job %s can't be judged, so it fails", work.id)
            verdict = self._note_failure(work, error)
        self._account(work.token)
        if work.encryptor is not None:
            self._finisher.encryptors.pop(work.id, None)
        for observe in self.observers:
            try:
                observe(work, outcome, verdict)
            except Exception:
                log.exception("an observer of job %s failed", work.id)

    def _note_failure(self, work: Work, error: Exception) -> Verdict:
        """A job must not stay running because its outcome was too odd for us."""
        why = f"{type(error).__name__}: {error}" if work.encryptor is None else type(error).__name__
        failure = Failure("OutcomeNotStored", storable(why))
        self._end_failed(work.id, work.token, work.crashes, failure)
        return End(State.FAILED, work.crashes, failure)

    def fail_claimed(self, id: UUID, token: int, crashes: int, error: Exception) -> None:
        """It was claimed, and is too odd for this node to even become a work."""
        if token in self._batches:
            failure = Failure("NotAccepted", storable(f"{type(error).__name__}: {error}"))
            self._end_failed(id, token, crashes, failure)
            self._account(token)

    def _end_failed(self, id: UUID, token: int, crashes: int, failure: Failure) -> None:
        text = encode_failure(failure)
        ended = Ended(id, token, State.FAILED, None, text, crashes, 0.0, monotonic())
        self._finisher.ended.append(ended)

    def _note_success(self, work: Work, outcome: Outcome) -> None:
        now = monotonic()
        if outcome.result is None and outcome.failure is None:
            done = Succeeded(work.id, work.token, now - work.started, now)
        else:
            done = succeeded(work, outcome, now)
        self._finisher.succeeded.append(done)

    def _note_other(self, work: Work, outcome: Outcome) -> Verdict:
        if work.encryptor is not None:
            outcome = encrypted_outcome(work.encryptor, outcome)
        tried = Tried(work.attempt, work.max_attempts, work.guarantee, work.crashes)
        task = self._tasks.get(work.task)  # a stored endpoint may be gone by now
        retry = task.options_.retry if task is not None else Retry()
        verdict = judge(tried, outcome, retry, self._settings.max_crashes, unit())
        now = monotonic()
        ran = now - work.started if work.started else 0.0
        failure = outcome.failure
        entry = attempt_entry(work.attempt, outcome.kind, work.token, self._node(), failure)
        finisher = self._finisher
        match verdict:
            case GiveBack():
                finisher.returned.append(Returned(work.id, work.token))
            case TryAgain():
                finisher.retried.append(
                    Retried(work.id, work.token, verdict.delay, entry, verdict.crashes, ran, now)
                )
            case End():
                error = encode_failure(verdict.failure)
                finisher.ended.append(
                    Ended(
                        work.id, work.token, verdict.state, entry, error, verdict.crashes, ran, now
                    )
                )
            case Succeed():
                self._note_success(work, outcome)
        return verdict

    def keep_encryptor(self, work: Work) -> None:
        """For what it says while it runs. Forgotten when it has ended."""
        if work.encryptor is not None:
            self._finisher.encryptors[work.id] = work.encryptor

    def refuse(self, work: Work, failure: Failure) -> None:
        """It can never begin: to the dead letters."""
        if work.token in self._batches:
            outcome = Outcome(OutcomeKind.RAISED, failure=failure, fatal=True)
            self._note_other(work, outcome)
            self._account(work.token)

    def return_unstarted(self, work: Work) -> None:
        """It never began: back to the queue as if it had not been claimed."""
        if work.token in self._batches:
            self._finisher.returned.append(Returned(work.id, work.token))
            self._finisher.encryptors.pop(work.id, None)
            self._account(work.token)

    def moved_on(self, work: Work) -> None:
        """Its start was refused, and the database has already put it where it belongs."""
        if work.token in self._batches:
            self._finisher.encryptors.pop(work.id, None)
            self._account(work.token)

    def give_back(self, jobs: Sequence[Returned]) -> None:
        """A whole batch, right after its claim."""
        self._finisher.returned.extend(jobs)
        self._finisher.close_batch(jobs[0].token)
        self.wake()

    def _account(self, token: int) -> None:
        left = self._batches[token] - 1
        if left:
            self._batches[token] = left
        else:
            del self._batches[token]
            self._finisher.close_batch(token)
        self.wake()

    def forget(self) -> None:
        """This node was declared dead: its outcomes would be refused, so they aren't even sent."""
        self._batches.clear()
        self._finisher.forget()
