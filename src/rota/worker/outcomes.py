"""Takes the outcomes that runners report to the verdicts, and keeps count of each claimed batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any
from uuid import UUID

from rota.core.lifecycle import End, Succeed, Verdict
from rota.lib import tracing
from rota.lib.capture.lines import storable
from rota.model import Failure, Guarantee, Outcome, OutcomeKind, State
from rota.runtime.attempts import retry_of
from rota.runtime.work import Work
from rota.store.work import Returned
from rota.task import Task
from rota.worker.finisher import Finisher

log = logging.getLogger("rota.outcomes")

# Called with each attempt that ended here and the verdict on it. Must be quick, and not raise.
Observer = Callable[[Work, Outcome, Verdict], None]

_SUCCEED = Succeed()
_SUCCEEDED = OutcomeKind.SUCCEEDED


class Outcomes:
    def __init__(self, tasks: Mapping[str, Task[..., Any]], finisher: Finisher) -> None:
        self._tasks = tasks
        self._finisher = finisher
        self._verdicts = finisher.verdicts
        self._batches: dict[int, int] = {}  # token -> jobs that are not accounted for
        self.ended: Callable[[Work], None] = lambda work: None
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
        """End an attempt, whichever runner it was in. Whatever happens, its slot becomes free."""
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
                verdict = self._judge(work, outcome)
            elif work.guarantee is not Guarantee.EXACTLY_ONCE and not outcome.settled:
                # An exactly_once job was finished by its own transaction.
                self._verdicts.succeed(work, outcome, monotonic())
        except Exception as error:
            log.exception("the outcome of job %s can't be judged, so it fails", work.id)
            verdict = self._fail(work, error)
        self._account(work.token)
        if work.encryptor is not None:
            self._finisher.encryptors.pop(work.id, None)
        for observe in self.observers:
            try:
                observe(work, outcome, verdict)
            except Exception:
                log.exception("an observer of job %s failed", work.id)

    def _judge(self, work: Work, outcome: Outcome) -> Verdict:
        now = monotonic()
        ran = now - work.started if work.started else 0.0
        return self._verdicts.judge(work, outcome, retry_of(self._tasks, work.task), ran, now)

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

    def keep_encryptor(self, work: Work) -> None:
        """Keep what encrypts its progress while it runs. Forgotten when it has ended."""
        if work.encryptor is not None:
            self._finisher.encryptors[work.id] = work.encryptor

    def refuse(self, work: Work, failure: Failure) -> None:
        """Move a job that can never begin to the dead letters."""
        if work.token in self._batches:
            self._judge(work, Outcome(OutcomeKind.RAISED, failure=failure, fatal=True))
            self._account(work.token)

    def return_unstarted(self, work: Work) -> None:
        """Return a job that never began to its queue, as if it had not been claimed."""
        if work.token in self._batches:
            self._verdicts.give_back(work)
            self._finisher.encryptors.pop(work.id, None)
            self._account(work.token)

    def moved_on(self, work: Work) -> None:
        """Forget a job whose start was refused: the database has already put it where it belongs."""
        if work.token in self._batches:
            self._finisher.encryptors.pop(work.id, None)
            self._account(work.token)

    def give_back(self, jobs: Sequence[Returned]) -> None:
        """Return a whole batch, right after its claim."""
        self._verdicts.returned.extend(jobs)
        self._finisher.close_batch(jobs[0].token)
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
