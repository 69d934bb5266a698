"""Operations on jobs: find, cancel, retry, discard and explain them, one by one or many at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

from rota.core.explain import Explanation, explain
from rota.errors import ConfigError, Conflict, HistoryNotKept, NotFound
from rota.model import (
    Accepted,
    Cancelled,
    Count,
    Discarded,
    Job,
    JobSummary,
    LogLine,
    ManyChanged,
    OutcomeKind,
    State,
)
from rota.operations.base import Operations
from rota.store.logs import LogStore
from rota.store.search import JobFilter, JobSearch, Looked

MANY = 10_000  # jobs that one call changes or lists at most
_NAMED = 100  # ids of a bulk action, in the audit log
Ids: TypeAlias = list[UUID]  # inside Jobs, `list` is its method
Summaries: TypeAlias = list[JobSummary]
LogLines: TypeAlias = list[LogLine]
Action = Literal["cancel", "retry", "discard"]

_OPEN = tuple(state for state in State if not state.is_final)
# The states in which a job can be acted on; the guarded transitions in SQL decide for each job.
_APPLICABLE: dict[Action, tuple[State, ...]] = {
    "cancel": _OPEN, "retry": (State.FAILED, State.SCHEDULED), "discard": (State.FAILED,),
}  # fmt: skip
# The states that are meant when a filter names none.
_MEANT: dict[Action, tuple[State, ...]] = {**_APPLICABLE, "retry": (State.FAILED,)}
# The code and the reason of a refusal, by action.
_REFUSALS: dict[Action, tuple[str, str]] = {
    "cancel": ("ended", "can't be cancelled: it has already {state}"),
    "retry": ("not-failed", "can't be retried: it is {state}, neither failed nor waiting for a retry"),
    "discard": ("not-failed", "can't be discarded: it is {state}, not failed"),
}  # fmt: skip
# Following a log is reading it again: quickly while lines come, more slowly when none do.
_LOG_PAGE = 1_000
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_LAST_WAIT = 0.3  # for the lines of an exactly_once handler: its own transaction ended its job


def _as_id(id: UUID | str) -> UUID:
    try:
        return id if isinstance(id, UUID) else UUID(id)
    except ValueError:
        raise ConfigError(f"{id!r} is not a job id: give the UUID that a submit printed") from None


class Jobs(Operations):
    """`app.jobs`"""

    async def find(self, id: UUID | str) -> Job | None:
        """Return the job as it is now; None when there is none (any more)."""
        jobs = await (await self._rota.store()).get_jobs(self._namespace, [_as_id(id)])
        return jobs[0] if jobs else None

    async def get(self, id: UUID | str) -> Job:
        """Return the job as it is now; `NotFound` when there is none (any more)."""
        job = await self.find(id)
        if job is None:
            await self.check_kept(id)
            raise NotFound(
                f"there is no job {id} in namespace {self._namespace!r}: it never was, or its "
                f"retention ({self._rota.settings.retention_days} days) is over", subject=id,
            )  # fmt: skip
        return job

    async def check_kept(self, id: UUID | str) -> None:
        """Raise `HistoryNotKept` if this job succeeded in a queue that does not keep such jobs."""
        trace = await (await self._rota.store()).find_trace(self._namespace, _as_id(id))
        if trace is not None:
            raise HistoryNotKept(
                f"job {id} of task {trace.task!r} succeeded at {trace.ended_at:%Y-%m-%d %H:%M:%S} UTC,"
                f" and nothing else of it was kept, nor its result: see the setting history of queue"
                f" {trace.queue!r} (`rota queues set {trace.queue} --history all` for later ones)",
                subject=id,
            )  # fmt: skip

    async def list(
        self,
        *,
        state: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        outcome: str | None = None,
        before: UUID | str | None = None,
        limit: int = 50,
    ) -> list[Job]:
        """List jobs, newest first. For the next page pass the last id as `before`.

        `outcome` is how the last attempt ended: ``timed_out``, ``heartbeat_timeout``, ``raised``,
        ``crashed``, ``lost``, ``cancelled``, ``succeeded``.
        """
        found: list[Job] = []
        after: UUID | str | None = before
        while True:
            page, until = await self.look_whole(
                state=state, task=task, queue=queue, tag=tag, outcome=outcome, before=after,
                limit=limit - len(found),
            )  # fmt: skip
            found += page
            if until is None:
                return found
            after = until

    async def look_whole(
        self,
        *,
        state: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        tag: str | None = None,
        outcome: str | None = None,
        before: UUID | str | None = None,
        limit: int = 50,
    ) -> tuple[Sequence[Job], UUID | None]:
        """List jobs as `list` does, but only among the newest 20,000 (of a state): it takes the same
        time however many jobs there are. Also returns the job up to which it looked if there are older
        ones: pass that as `before` to go on. None: the page is full, or all jobs were looked at."""
        if not 1 <= limit <= MANY:
            raise ConfigError(f"limit must be from 1 to {MANY}, not {limit}")
        return await (await self._rota.store()).list_jobs(
            self._namespace,
            state=State.parse(state) if state else None,
            task=task, queue=queue, tag=tag, before=_as_id(before) if before else None, limit=limit,
            outcome=OutcomeKind.parse(outcome) if outcome else None,
        )  # fmt: skip

    async def count(
        self, *, state: str | None = None, task: str | None = None, queue: str | None = None
    ) -> dict[str, int]:
        """Count the jobs by state. The count is exact, and so slow over a long history."""
        store = await self._rota.store()
        chosen = State.parse(state) if state else None
        return await store.count_jobs(self._namespace, state=chosen, task=task, queue=queue)

    async def search(
        self, wanted: JobFilter, *, before: UUID | None = None, limit: int = 50,
        patience_ms: int | None = None,
    ) -> Summaries:  # fmt: skip
        """Find jobs, the newest first, older than `before`. `TooMuchToRead` when that takes too long."""
        search = JobSearch(await self._database())
        return await search.page(self._namespace, wanted, before, limit, patience_ms=patience_ms)

    async def look(
        self, wanted: JobFilter, *, before: UUID | None = None, limit: int = 50
    ) -> Looked:
        """Find jobs as `search` does, but only among the newest: the answer says how far it looked."""
        return await JobSearch(await self._database()).look(self._namespace, wanted, before, limit)

    async def count_matching(self, wanted: JobFilter, *, quick: bool = False) -> Count:
        """Count the jobs that match: exactly if that takes little time, otherwise an estimate."""
        search = JobSearch(await self._database())
        count = search.quick_count if quick else search.count
        return await count(self._namespace, wanted)

    async def cancel(self, id: UUID | str) -> Cancelled:
        """Cancel a job, or ask it to stop if it runs. Raises `Conflict` if it has ended."""
        job, outcome = await self._change_one("cancel", id)
        return Cancelled(job.id, outcome)  # type: ignore[arg-type]

    async def cancel_many(
        self, ids: Sequence[UUID | str]
    ) -> dict[UUID, Literal["cancelled", "stopping"]]:
        """Cancel jobs; for each that could be cancelled: 'cancelled' or 'stopping'."""
        return await self._change("cancel", ids)  # type: ignore[return-value]

    async def retry(self, id: UUID | str) -> Accepted:
        """Run a failed job, or one that waits for its next retry, now, counting its attempts afresh.

        Raises `Conflict` for a job in another state.
        """
        job, _ = await self._change_one("retry", id)
        return Accepted(job.id, job.task)

    async def retry_many(self, ids: Sequence[UUID | str]) -> Ids:
        """Run failed jobs, and jobs that wait for their next retry, again; the ids of those."""
        return await self.change_many("retry", ids)

    async def discard(self, id: UUID | str) -> Discarded:
        """Take a failed job off the dead-letter list for good. Raises `Conflict` for any other."""
        job, _ = await self._change_one("discard", id)
        return Discarded(job.id)

    async def discard_many(self, ids: Sequence[UUID | str]) -> Ids:
        """Take failed jobs off the dead-letter list for good; the ids that were on it."""
        return await self.change_many("discard", ids)

    async def change_many(self, action: Action, ids: Sequence[UUID | str]) -> Ids:
        """Cancel, retry or discard jobs; the ids of those that were changed."""
        return [*await self._change(action, ids)]

    async def _change_one(self, action: Action, id: UUID | str) -> tuple[Job, str]:
        """Act on one job. Returns the job as it was, and its new state."""
        job_id = _as_id(id)
        async with self._changing(action, f"job {job_id}") as change:
            job = await self.get(job_id)
            if action == "retry" and job.run_id is not None and job.state == State.FAILED.label:
                raise Conflict(
                    f"job {job_id} is a step of run {job.run_id}: retry the step, or resume the run",
                    code="step", subject=job_id,
                )  # fmt: skip
            state = (await self._change(action, [job_id])).get(job_id)
            if state is None:
                code, reason = _REFUSALS[action]
                now = (await self.get(job_id)).state
                raise Conflict(
                    f"job {job_id} {reason.format(state=now)}", code=code, subject=job_id
                )
            change.before, change.after = {"state": job.state}, {"state": state}
        return job, state

    async def _change(self, action: Action, ids: Sequence[UUID | str]) -> dict[UUID, str]:
        """Act on jobs. Returns the new states of those that were changed."""
        store, chosen = await self._rota.store(), [_as_id(id) for id in ids]
        subject = f"job {chosen[0]}" if len(chosen) == 1 else f"{len(chosen)} jobs"
        async with self._changing(action, subject) as change:
            if action == "cancel":
                done = await store.cancel_jobs(self._namespace, chosen)
            elif action == "retry":
                done = dict.fromkeys(await store.retry_jobs(self._namespace, chosen), "ready")
            else:
                done = dict.fromkeys(await store.discard_jobs(self._namespace, chosen), "cancelled")
            change.after = {"count": len(done), "ids": [*done][:_NAMED]}
            if len(chosen) == 1:
                change.after = {"state": done.get(chosen[0])}
            change.happened = bool(done)
        return done

    # -- many, by a filter

    async def applicable(self, action: Action, ids: Sequence[UUID | str]) -> Ids:
        """Return the ids of those jobs to which the action applies in their state."""
        store, chosen = await self._rota.store(), [_as_id(id) for id in ids]
        jobs = await store.get_jobs(self._namespace, chosen)
        return [job.id for job in jobs if State.parse(job.state) in _MEANT[action]]

    async def matching(self, action: Action, wanted: JobFilter, limit: int = MANY) -> Ids:
        """Return the ids, oldest first, of the jobs that match and to which the action applies."""
        states = _MEANT[action]
        if wanted.states:
            states = tuple(state for state in wanted.states if state in _APPLICABLE[action])
        if not states:
            return []
        search = JobSearch(await self._database())
        wanted = msgspec.structs.replace(wanted, states=states)
        return await search.ids(self._namespace, wanted, limit)

    async def change_matching(
        self, action: Action, wanted: JobFilter, *, limit: int = MANY, dry_run: bool = False,
        everything: bool = False,
    ) -> ManyChanged:  # fmt: skip
        """Cancel, retry or discard the jobs that match, the oldest first, all in one transaction.

        An empty filter is refused unless `everything` is set.
        """
        if wanted == JobFilter() and not everything:
            raise ConfigError("no filter is given: say which jobs are meant")
        ids = await self.matching(action, wanted, limit)
        return await self.change_selected(
            action, ids, "jobs by filter", wanted.described, limit=limit, dry_run=dry_run
        )

    async def change_selected(
        self, action: Action, ids: Sequence[UUID], subject: str, before: object = None, *,
        limit: int, dry_run: bool,
    ) -> ManyChanged:  # fmt: skip
        """Act on jobs that were selected by a description, under the name of that description."""
        changed, bulk = 0, None
        if not dry_run:
            async with self._changing(action, subject, before=before) as change:
                begun = await self._rota.bulk.begin(action, ids)
                done = await self.change_many(action, ids)
                changed = len(done)
                if done:
                    bulk = await self._rota.bulk.note(action, done, begun)
                change.after = {"matched": len(ids), "changed": changed, "ids": done[:_NAMED]}
        more = len(ids) == limit
        return ManyChanged(dry_run=dry_run, matched=len(ids), changed=changed, more=more, bulk=bulk)

    async def dead_letters(
        self, *, task: str | None = None, queue: str | None = None, error: str | None = None,
        limit: int = MANY,
    ) -> Ids:  # fmt: skip
        """Return the ids of failed jobs, oldest first."""
        store = await self._rota.store()
        return await store.find_dead(
            self._namespace, task=task, queue=queue, error=error, limit=limit
        )

    async def retry_dead(
        self, *, task: str | None = None, queue: str | None = None, error: str | None = None,
        limit: int = MANY,
    ) -> Ids:  # fmt: skip
        """Run all failed jobs that match again; the ids of those."""
        return await self.retry_many(
            await self.dead_letters(task=task, queue=queue, error=error, limit=limit)
        )

    async def has_ended(self, id: UUID | str) -> bool:
        """Return whether the job is in a final state."""
        return State.parse((await self.get(id)).state).is_final

    async def log_lines(
        self, id: UUID | str, *, attempt: int | None = None, read: dict[int, int], limit: int
    ) -> LogLines:
        """Return the next lines of a job's log. `read`: the last line that was read, by an attempt's
        token."""
        logs = LogStore(await self._database())
        return await logs.read(self._namespace, _as_id(id), attempt, read, limit)

    async def logs(
        self, id: UUID | str, *, attempt: int | None = None, follow: bool = False
    ) -> AsyncIterator[LogLine]:
        """Iterate over what the job printed and logged, line by line.

        Args:
            id: of the job.
            attempt: only of this try, from 1.
            follow: go on until the job has ended, giving out lines as they come.
        """
        job_id = (await self.get(id)).id
        # By token, since the last lines of an attempt may come after the first of the next.
        read: dict[int, int] = {}
        pause, ended = _FIRST_PAUSE, False
        while True:
            lines = await self.log_lines(job_id, attempt=attempt, read=read, limit=_LOG_PAGE)
            for line in lines:
                read[line.token] = line.seq
                yield line
            if len(lines) == _LOG_PAGE:
                continue
            if not follow or ended:
                return
            # A job's lines are written before its end is.
            job = await self.find(job_id)
            ended = job is None or State.parse(job.state).is_final
            pause = _FIRST_PAUSE if lines else min(pause * 1.5, _LONGEST_PAUSE)
            await asyncio.sleep(_LAST_WAIT if ended else pause)

    async def explain(self, id: UUID | str) -> Explanation:
        """Explain why the job isn't running now, or what it does."""
        facts = await (await self._rota.store()).explain_job(self._namespace, _as_id(id))
        if facts is None:
            await self.get(id)  # raises NotFound with its advice
            raise NotFound(f"job {id} has just been removed", subject=id)
        if "#" in facts["lane"] or facts["governed"]:
            facts["limits"] = await (await self._rota.store()).explain_limits(
                self._namespace, facts["id"]
            )
        if facts["state"] == State.RUNNING:
            facts["permits"] = await (await self._rota.store()).explain_permits(
                self._namespace, facts["id"]
            )
        if "=" in facts["lane"]:
            facts |= await (await self._rota.store()).explain_resources(
                self._namespace, facts["lane"]
            )
        return explain(facts, self._rota.settings.max_run_time)
