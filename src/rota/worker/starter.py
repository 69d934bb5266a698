"""Takes claimed jobs to their runners: decrypts them, marks what must be marked, and starts them.

Protocol. See `rota.runtime.attempts`, steps 2 to 5. Jobs that must be marked are marked together, in
the background; each starts only if the database accepted its mark and the node still trusts its lease.
Without that trust every start asks the database, which decides. What doesn't start is given back, and
its slot becomes free; if it was cancelled, giving it back is what writes the cancellation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any
from uuid import UUID

from rota.errors import KeyMissing, StoreUnavailable
from rota.lib.encryption import ENVELOPE_BYTES
from rota.model import Failure, Outcome, OutcomeKind
from rota.runtime.attempts import decrypt, mark, must_mark, to_work
from rota.runtime.heartbeat import Lease
from rota.runtime.step_arguments import StepArguments, has_default_options, is_chunk
from rota.runtime.work import Work
from rota.store.work import WorkStore
from rota.task import (
    Task,
    heartbeat_timeouts,
    own_heartbeat_timeout,
    stricter_guarantees,
)
from rota.worker.outcomes import Outcomes
from rota.worker.runners.base import Runner

log = logging.getLogger("rota.worker")

_KEYLESS_SECONDS = 30.0


class Starter:
    def __init__(
        self, store: WorkStore, tasks: Mapping[str, Task[..., Any]], lease: Lease,
        outcomes: Outcomes,
    ) -> None:  # fmt: skip
        self._store = store
        self._lease = lease
        self._outcomes = outcomes
        self._heartbeat_timeouts = heartbeat_timeouts(tasks)
        self._guarantees = stricter_guarantees(tasks)
        self._tasks = tasks
        self.may_start: Callable[[], bool] = lambda: True  # not while the worker drains
        # Why the last job that was returned for want of a key can't be read.
        self.missing_key: KeyMissing | None = None
        self._keyless_until = 0.0  # monotonic
        self._loop = asyncio.get_running_loop()
        self._arguments = StepArguments(store.database, tasks)
        self._to_mark: list[tuple[Runner, Work]] = []
        self.unmarked: set[Work] = set()  # works that wait for their mark: no runner has them yet
        self._marking: asyncio.Task[None] | None = None

    @property
    def keyless(self) -> bool:
        """True while nothing is to be claimed, for want of an encryption key."""
        return monotonic() < self._keyless_until

    def accept(self, row: Any) -> Work | None:
        """Make a work of a claimed row. None if it can't be read here: then it is accounted for."""
        work = to_work(row)
        if work.payload.startswith(ENVELOPE_BYTES) and not self._decrypt(work):
            return None
        if self._heartbeat_timeouts or work.headers is not None:
            own = own_heartbeat_timeout(work.headers)
            work.heartbeat_timeout = own or self._heartbeat_timeouts.get(work.task)
        # The job may have been stored by somebody who did not know its task yet.
        if self._guarantees and work.guarantee is not self._guarantees.get(
            work.task, work.guarantee
        ):
            work.guarantee = self._guarantees[work.task]
            work.adopts = self._tasks[work.task].options_
        if work.run is not None and work.task in self._tasks:
            options = self._tasks[work.task].options_
            if has_default_options(work, options):
                work.adopts = options
        return work

    def _decrypt(self, work: Work) -> bool:
        try:
            failure = decrypt(self._store.database.encryption, work)
        except KeyMissing as error:
            log.error("claiming no jobs for %g s: %s", _KEYLESS_SECONDS, error)
            self.missing_key = error
            self._keyless_until = monotonic() + _KEYLESS_SECONDS
            self._outcomes.return_unstarted(work)
            return False
        if failure is not None:
            self._outcomes.refuse(work, failure)
        return failure is None

    def begin(self, runner: Runner, work: Work) -> None:
        """Start a work that has got its slot, now or when its mark was accepted."""
        if work.stopping is not None:
            self._loop.call_soon(self._end_unstarted, work)
            return
        if (
            monotonic() < self._lease.trusted_until
            and not must_mark(work)
            and not self._arguments.are_needed(work)
        ):
            self._run(runner, work)
            return
        self._to_mark.append((runner, work))
        self.unmarked.add(work)
        if self._marking is None or self._marking.done():
            self._marking = asyncio.create_task(self._mark_and_start())

    def _run(self, runner: Runner, work: Work) -> None:
        try:
            runner.run(work)
        except Exception as error:
            # Such as no more threads. Its slot must not be lost with it, nor the job.
            log.exception("job %s could not be started", work.id)
            failure = Failure("NotStarted", f"{type(error).__name__}: {error}")
            outcome = Outcome(OutcomeKind.RAISED, failure=failure)
            self._loop.call_soon(self._outcomes.done, work, outcome)

    async def _mark_and_start(self) -> None:
        while self._to_mark:
            marking, self._to_mark = self._to_mark, []
            node = self._lease.node_id
            works = [work for _, work in marking]
            failures, answers = await self._prepare(node, works)
            for runner, work in marking:
                self.unmarked.discard(work)
                if work.id in failures:
                    self._outcomes.refuse(work, failures[work.id])
                    self._outcomes.ended(work)
                    continue
                fresh = node == self._lease.node_id and self._lease.trusted
                answer = answers.get(work.id)
                if answer == "start" and fresh and self.may_start() and work.stopping is None:
                    self._run(runner, work)
                elif answer in ("skip", "wait"):
                    self._outcomes.moved_on(work)
                    self._outcomes.ended(work)
                else:
                    self._end_unstarted(work)

    async def _prepare(
        self, node: UUID, works: list[Work]
    ) -> tuple[dict[UUID, Failure], dict[UUID, str]]:
        """Complete the arguments of steps, and mark what must be marked."""
        # Before its arguments are read: a chunk of which a member was blamed has no crashes any more.
        to_mark = [work for work in works if must_mark(work) or is_chunk(work)]
        answers = dict.fromkeys([work.id for work in works], "start")
        for work in to_mark:
            del answers[work.id]
        try:
            failures = await self._arguments.complete(works, node)
            if able := [work for work in to_mark if work.id not in failures]:
                answers.update(await mark(self._store, node, able))
            return failures, answers
        except Exception as error:
            # Whatever it is: a job that isn't surely marked doesn't start, and frees its slot.
            expected = isinstance(error, StoreUnavailable)
            log.warning(
                "could not mark %d jobs as started, giving them back: %s",
                len(works), error, exc_info=not expected,
            )  # fmt: skip
            return {}, {}

    def _end_unstarted(self, work: Work) -> None:
        self._outcomes.return_unstarted(work)
        self._outcomes.ended(work)
