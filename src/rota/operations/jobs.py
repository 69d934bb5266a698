"""Operations on jobs: look at, cancel, retry, discard and explain them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from rota.core.explain import Explanation, explain
from rota.errors import ConfigError, NotFound
from rota.model import Job, OutcomeKind, State
from rota.operations.job_logs import read_logs
from rota.store.changes import changing
from rota.store.logs import LogLine

if TYPE_CHECKING:
    from rota.operations.rota import Rota

_MANY = 10_000
_NAMED = 100  # ids of a bulk action, in the audit log
Ids: TypeAlias = list[UUID]  # inside Jobs, `list` is its method


def _as_id(id: UUID | str) -> UUID:
    try:
        return id if isinstance(id, UUID) else UUID(id)
    except ValueError:
        raise ConfigError(f"{id!r} is not a job id: give the UUID that a submit printed") from None


def _subject(ids: Sequence[UUID]) -> str:
    """What the audit log calls these jobs."""
    return f"job {ids[0]}" if len(ids) == 1 else f"{len(ids)} jobs"


def _outcome(state: str | None, done: Sequence[UUID]) -> dict[str, object]:
    """What the audit log tells of them: the state of one job, or how many were changed, and which."""
    if state is not None:
        return {"state": state}
    return {"count": len(done), "ids": done[:_NAMED]}


class Jobs:
    """`app.jobs`"""

    def __init__(self, rota: Rota) -> None:
        self._rota = rota

    @property
    def _namespace(self) -> str:
        return self._rota.namespace

    async def find(self, id: UUID | str) -> Job | None:
        jobs = await (await self._rota.store()).get_jobs(self._namespace, [_as_id(id)])
        return jobs[0] if jobs else None

    async def get(self, id: UUID | str) -> Job:
        """The job as it is now; `NotFound` when there is none (any more)."""
        job = await self.find(id)
        if job is None:
            raise NotFound(
                f"there is no job {id} in namespace {self._namespace!r}: it never was, or its "
                f"retention ({self._rota.settings.retention_days} days) is over"
            )
        return job

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
        """The newest first. For the next page pass the last id as `before`.

        `outcome` is how the last attempt ended: ``timed_out``, ``heartbeat_timeout``, ``raised``,
        ``crashed``, ``lost``, ``cancelled``, ``succeeded``.
        """
        if not 1 <= limit <= _MANY:
            raise ConfigError(f"limit must be from 1 to {_MANY}, not {limit}")
        return await (await self._rota.store()).list_jobs(
            self._namespace,
            state=State.parse(state) if state else None,
            task=task, queue=queue, tag=tag, before=_as_id(before) if before else None, limit=limit,
            outcome=OutcomeKind.parse(outcome) if outcome else None,
        )  # fmt: skip

    async def count(
        self, *, state: str | None = None, task: str | None = None, queue: str | None = None
    ) -> dict[str, int]:
        """How many jobs there are, by state. Exact, and so slow over a long history."""
        store = await self._rota.store()
        chosen = State.parse(state) if state else None
        return await store.count_jobs(self._namespace, state=chosen, task=task, queue=queue)

    async def cancel(self, id: UUID | str) -> str:
        """'cancelled', or 'stopping' when it runs and has been asked to stop."""
        job_id = _as_id(id)
        done = await self.cancel_many([job_id])
        if job_id not in done:
            job = await self.get(job_id)
            raise ConfigError(f"job {id} can't be cancelled: it has already {job.state}")
        return done[job_id]

    async def cancel_many(self, ids: Sequence[UUID | str]) -> dict[UUID, str]:
        """For each job that could be cancelled: 'cancelled' or 'stopping'."""
        store, chosen = await self._rota.store(), [_as_id(id) for id in ids]
        async with changing(store.database, "cancel", _subject(chosen)) as change:
            done = await store.cancel_jobs(self._namespace, chosen)
            change.after = _outcome(done.get(chosen[0]) if len(chosen) == 1 else None, [*done])
            change.happened = bool(done)
        return done

    async def retry(self, id: UUID | str) -> None:
        """Run a failed job again, or one that waits for its next retry: now, counting afresh."""
        job_id = _as_id(id)
        if not await self.retry_many([job_id]):
            job = await self.get(job_id)
            raise ConfigError(
                f"job {id} can't be retried: it is {job.state}. Only failed jobs, and jobs that "
                "wait for their next retry, can"
            )

    async def retry_many(self, ids: Sequence[UUID | str]) -> Ids:
        """Run failed jobs, and jobs that wait for their next retry, again; the ids of those."""
        store, chosen = await self._rota.store(), [_as_id(id) for id in ids]
        async with changing(store.database, "retry", _subject(chosen)) as change:
            done = await store.retry_jobs(self._namespace, chosen)
            change.after = _outcome("ready" if len(chosen) == 1 else None, done)
            change.happened = bool(done)
        return done

    async def dead_letters(
        self, *, task: str | None = None, queue: str | None = None, error: str | None = None,
        limit: int = _MANY,
    ) -> Ids:  # fmt: skip
        """The ids of failed jobs, oldest first."""
        store = await self._rota.store()
        return await store.find_dead(
            self._namespace, task=task, queue=queue, error=error, limit=limit
        )

    async def retry_dead(
        self, *, task: str | None = None, queue: str | None = None, error: str | None = None,
        limit: int = _MANY,
    ) -> Ids:  # fmt: skip
        """Run all failed jobs that match again; the ids of those."""
        return await self.retry_many(
            await self.dead_letters(task=task, queue=queue, error=error, limit=limit)
        )

    async def discard(self, ids: Sequence[UUID | str]) -> Ids:
        """Take failed jobs off the dead-letter list for good; the ids that were on it."""
        store, chosen = await self._rota.store(), [_as_id(id) for id in ids]
        async with changing(store.database, "discard", _subject(chosen)) as change:
            done = await store.discard_jobs(self._namespace, chosen)
            change.after = _outcome(None, done)
            change.happened = bool(done)
        return done

    def logs(
        self, id: UUID | str, *, attempt: int | None = None, follow: bool = False
    ) -> AsyncIterator[LogLine]:
        """What the job printed and logged, line by line.

        Args:
            id: of the job.
            attempt: only of this try, from 1.
            follow: go on until the job has ended, giving out lines as they come.
        """
        return read_logs(self._rota.store, self._namespace, _as_id(id), attempt, follow)

    async def explain(self, id: UUID | str) -> Explanation:
        """Why the job isn't running now, or what it does."""
        facts = await (await self._rota.store()).explain_job(self._namespace, _as_id(id))
        if facts is None:
            await self.get(id)  # raises NotFound with its advice
            raise NotFound(f"job {id} has just been removed")
        return explain(facts, self._rota.settings.max_run_time)
