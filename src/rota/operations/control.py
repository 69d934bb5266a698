"""What people and programs ask about jobs, queues and nodes, and do to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from rota.config import check_name
from rota.core.explain import Explanation, explain
from rota.errors import ConfigError, NotFound
from rota.model import Job, NodeStatus, OutcomeKind, QueueStatus, ShardStatus, State, Takeover
from rota.operations.job_logs import read_logs
from rota.store.changes import changing
from rota.store.events import Event, EventStore
from rota.store.logs import LogLine

if TYPE_CHECKING:
    from rota.app import App

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

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def _namespace(self) -> str:
        return self._app.settings.namespace

    async def find(self, id: UUID | str) -> Job | None:
        jobs = await (await self._app.store()).get_jobs(self._namespace, [_as_id(id)])
        return jobs[0] if jobs else None

    async def get(self, id: UUID | str) -> Job:
        """The job as it is now; `NotFound` when there is none (any more)."""
        job = await self.find(id)
        if job is None:
            raise NotFound(
                f"there is no job {id} in namespace {self._namespace!r}: it never was, or its "
                f"retention ({self._app.settings.retention_days} days) is over"
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
        return await (await self._app.store()).list_jobs(
            self._namespace,
            state=State.parse(state) if state else None,
            task=task, queue=queue, tag=tag, before=_as_id(before) if before else None, limit=limit,
            outcome=OutcomeKind.parse(outcome) if outcome else None,
        )  # fmt: skip

    async def count(
        self, *, state: str | None = None, task: str | None = None, queue: str | None = None
    ) -> dict[str, int]:
        """How many jobs there are, by state. Exact, and so slow over a long history."""
        store = await self._app.store()
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
        store, chosen = await self._app.store(), [_as_id(id) for id in ids]
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
        store, chosen = await self._app.store(), [_as_id(id) for id in ids]
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
        store = await self._app.store()
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
        store, chosen = await self._app.store(), [_as_id(id) for id in ids]
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
        return read_logs(self._app.store, self._namespace, _as_id(id), attempt, follow)

    async def explain(self, id: UUID | str) -> Explanation:
        """Why the job isn't running now, or what it does."""
        facts = await (await self._app.store()).explain_job(self._namespace, _as_id(id))
        if facts is None:
            await self.get(id)  # raises NotFound with its advice
            raise NotFound(f"job {id} has just been removed")
        return explain(facts, self._app.settings.max_run_time)


class Queues:
    """`app.queues`"""

    def __init__(self, app: App) -> None:
        self._app = app

    async def list(self) -> list[QueueStatus]:
        return await (await self._app.store()).list_queues(self._app.settings.namespace)

    async def check_known(self, name: str) -> None:
        """Refuse a name that no queue has, with the one that may be meant."""
        store = await self._app.store()
        known = await store.known_queues(self._app.settings.namespace)
        if name not in known:
            near = get_close_matches(name, known, 1)
            meant = f"; do you mean {near[0]!r}?" if near else "; `rota queues` lists them"
            raise NotFound(f"there is no queue {name!r}{meant}")

    async def pause(self, name: str, *, must_exist: bool = False) -> None:
        """No job of this queue is started until it is resumed. What runs goes on.

        With `must_exist`, a queue that has had no job and that no task declares is refused.
        """
        check_name("queue", name)
        if must_exist:
            await self.check_known(name)
        store = await self._app.store()
        async with changing(store.database, "pause", f"queue {name}") as change:
            paused_at = await store.pause_queue(self._app.settings.namespace, name)
            change.after = {"paused_at": paused_at}

    async def resume(self, name: str) -> None:
        check_name("queue", name)
        store = await self._app.store()
        async with changing(store.database, "resume", f"queue {name}"):
            if not await store.resume_queue(self._app.settings.namespace, name):
                raise NotFound(f"there is no queue {name!r}; `rota queues` lists them")

    async def set_max_run_time(self, name: str, seconds: float | None) -> None:
        """Set how long an attempt of this queue's jobs may run when the job has no timeout.

        What runs longer is stopped as after a timeout. None: the installation's `max_run_time` counts.
        """
        check_name("queue", name)
        if seconds is not None and not 1 <= seconds < 1e9:
            raise ConfigError(f"max_run_time must be 1 second or more, or None, not {seconds!r}")
        store = await self._app.store()
        async with changing(store.database, "set", f"queue {name}") as change:
            await store.set_max_run_time(self._app.settings.namespace, name, seconds)
            change.after = {"max_run_time": seconds}


class Nodes:
    """`app.nodes`"""

    def __init__(self, app: App) -> None:
        self._app = app

    async def list(self, *, ended: bool = False) -> list[NodeStatus]:
        """The live nodes; with `ended`, also those that stopped or died within the last day."""
        store = await self._app.store()
        return await store.list_nodes(self._app.settings.namespace, ended=ended)

    async def shards(self) -> Sequence[ShardStatus]:
        """Which scheduler looks after which shard."""
        return await (await self._app.store()).shard_map()

    async def takeovers(self, within: float = 86_400) -> Sequence[Takeover]:
        """Who took shards from whom in the last seconds, newest first. They are kept for a week."""
        return await (await self._app.store()).recent_takeovers(within)


class Events:
    """`app.events`: what people should hear of."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def list(
        self, *, kind: str | None = None, since: datetime | None = None, limit: int = 100
    ) -> list[Event]:
        """The newest first. Kinds: ``failed``, ``dead_lettered``, ``timed_out``, ``slow``, ``slower``,
        ``late``, ``deadline_missed``, ``queue_lag``, ``missed``, ``overran``, ``set_aside``,
        ``node_dead``."""
        store = EventStore((await self._app.store()).database)
        return await store.list(self._app.settings.namespace, kind, since, limit)
