"""Handles of submitted jobs: the job's id, and the ways to follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

import msgspec

from rota.core.codec import ResultReader
from rota.errors import ResultUnavailable, RotaError
from rota.lib import display
from rota.lib.display import Bar, as_html
from rota.lib.sync_bridge import sync_bridge
from rota.model import RESULT_DROPPED, Cancelled, Job, State

_FINAL = frozenset(state.label for state in State if state.is_final)


class JobFailed(RotaError):
    """Raised when the job that was waited for did not succeed."""

    def __init__(self, job: Job) -> None:
        self.job = job
        reason = f": {job.error.type}: {job.error.message}" if job.error else ""
        super().__init__(f"job {job.id} of task {job.task!r} {job.state}{reason}")


R = TypeVar("R", covariant=True)


class JobOperations(Protocol):
    """The operations that a handle uses: `rota.operations.jobs.Jobs`."""

    async def get(self, id: UUID) -> Job: ...

    async def find(self, id: UUID) -> Job | None: ...

    async def check_kept(self, id: UUID) -> None: ...

    async def cancel(self, id: UUID) -> Cancelled: ...


class JobHandle(Generic[R]):
    """A submitted job. `R` is what its task's function returns."""

    # `_seen` is unset until the job is looked at: most handles are made in great numbers and dropped.
    __slots__ = ("_jobs", "_reader", "_seen", "existed", "id", "warnings")
    _seen: Job

    def __init__(
        self, jobs: JobOperations, id: UUID, existed: bool = False, reader: ResultReader | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._jobs = jobs
        self._reader = reader
        self.id = id
        self.existed = existed  # its idempotency key named it before: nothing new was stored
        self.warnings = warnings  # e.g. that nobody has registered its task so far

    def __repr__(self) -> str:
        seen = f": {self._seen.words()}" if hasattr(self, "_seen") else ""
        return f"<JobHandle {self.id}{seen}>"

    def _repr_html_(self) -> str:
        """Show the job in a notebook, as it was seen last. `follow` shows it as it changes."""
        if hasattr(self, "_seen"):
            return self._seen._repr_html_()
        return as_html("job", "submitted", Bar("", 0, None), {"id": str(self.id)})

    async def status(self) -> Job:
        """Return the job as it is now."""
        self._seen = await self._jobs.get(self.id)
        return self._seen

    async def wait(self, timeout: float | None = None) -> Job:
        """Wait until the job has ended, and return it. `TimeoutError` after `timeout` seconds; 0 looks
        once. `HistoryNotKept` if it has succeeded in a queue that does not keep such jobs."""
        job, looked = None, False
        once = timeout is not None and timeout <= 0
        try:
            async with asyncio.timeout(None if once else timeout):
                pause = 0.01
                while True:
                    job, looked = await self._jobs.find(self.id), True
                    if job is not None and job.state in _FINAL:
                        self._seen = job
                        return job
                    if job is None:
                        await self._jobs.check_kept(self.id)
                    if once:
                        raise TimeoutError
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.5, 0.5)
        except TimeoutError:
            raise TimeoutError(_still(self.id, job, looked, timeout)) from None

    async def watch(self, *, every: float = 0.5) -> AsyncIterator[Job]:
        """Yield the job as it is, and again when its state, attempt or progress has changed; at last
        as it has ended.

        It is looked at up to `every` seconds apart, more often in the beginning: what comes and goes
        in between isn't seen.
        """
        seen, pause = None, min(0.02, every)
        while True:
            job = await self.status()
            now = (job.state, job.attempt, job.progress)
            if now != seen:
                seen = now
                yield job
            if job.state in _FINAL:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, every)

    async def follow(self, timeout: float | None = None, *, every: float = 0.5) -> Job:
        """Wait until the job has ended, and show its progress: a bar in a terminal, HTML in a notebook.

        Returns the job. `TimeoutError` after `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                return await display.follow(self.watch(every=every))
        except TimeoutError:
            seen = getattr(self, "_seen", None)
            raise TimeoutError(_still(self.id, seen, seen is not None, timeout)) from None

    async def result(self, timeout: float | None = None) -> R:
        """Return what the function returned.

        Raises `JobFailed` if the job didn't succeed, `ResultUnavailable` if it did but its result
        could not be kept or read, `HistoryNotKept` if its queue does not keep jobs that succeeded, and
        `TimeoutError` if it hasn't ended within `timeout` seconds.
        """
        result: R = self._result_of(await self.wait(timeout))
        return result

    def _result_of(self, job: Job) -> Any:
        if job.state != State.SUCCEEDED.label:
            raise JobFailed(job)
        if job.error is not None and job.error.type == RESULT_DROPPED:
            raise ResultUnavailable(
                f"job {job.id} of task {job.task!r} succeeded, but its result was dropped: "
                f"{job.error.message}. What it did stays done"
            )
        if self._reader is None:
            return job.result
        try:
            return self._reader.read(job.result)
        except (ValueError, msgspec.ValidationError) as error:
            raise ResultUnavailable(
                f"job {job.id} of task {job.task!r} succeeded, but its stored result doesn't fit the "
                f"type that the function returns here: {error}. `status()` has it as it was stored"
            ) from None

    async def cancel(self) -> str:
        """Cancel the job. Returns 'cancelled', or 'stopping' when it runs and has been asked to stop."""
        return (await self._jobs.cancel(self.id)).outcome

    def status_sync(self) -> Job:
        """Return the job as it is now, from synchronous code."""
        return sync_bridge.call(self.status, "status")

    def watch_sync(self, *, every: float = 0.5) -> Iterator[Job]:
        """Yield the job whenever it has changed, from synchronous code. See `watch`."""
        return sync_bridge.iterate(lambda: self.watch(every=every), "watch")

    def follow_sync(self, timeout: float | None = None, *, every: float = 0.5) -> Job:
        """Wait with the progress shown, from synchronous code. See `follow`."""
        return sync_bridge.call(lambda: self.follow(timeout, every=every), "follow")

    def wait_sync(self, timeout: float | None = None) -> Job:
        """Wait until the job has ended, and return it, from synchronous code. See `wait`."""
        return sync_bridge.call(lambda: self.wait(timeout), "wait")

    def cancel_sync(self) -> str:
        """Cancel the job, from synchronous code. See `cancel`."""
        return sync_bridge.call(self.cancel, "cancel")

    def result_sync(self, timeout: float | None = None) -> R:
        """Return what the function returned, from synchronous code. See `result`."""
        return sync_bridge.call(lambda: self.result(timeout), "result")


def _still(id: UUID, job: Job | None, looked: bool, timeout: float | None) -> str:
    if not looked:
        return f"the database did not return job {id} within {timeout:g} s"
    if job is None:
        return f"job {id} was not found within {timeout:g} s: is its transaction committed?"
    return f"job {id} of task {job.task!r} is still {job.state} after {timeout:g} s"
