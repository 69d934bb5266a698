"""What a submit gives back: the job's id, and the ways to follow it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from uuid import UUID

from rota.errors import RotaError
from rota.model import Job, State
from rota.portal import portal

if TYPE_CHECKING:
    from rota.app import App

_FINAL = frozenset(state.label for state in State if state.is_final)


class JobFailed(RotaError):
    """The job that was waited for ended otherwise than in success."""

    def __init__(self, job: Job) -> None:
        self.job = job
        reason = f": {job.error.type}: {job.error.message}" if job.error else ""
        super().__init__(f"job {job.id} of task {job.task!r} {job.state}{reason}")


class JobHandle:
    """A submitted job."""

    __slots__ = ("_app", "existed", "id")

    def __init__(self, app: App, id: UUID, existed: bool = False) -> None:
        self._app = app
        self.id = id
        self.existed = existed  # its idempotency key named it before: nothing new was stored

    def __repr__(self) -> str:
        return f"<Job {self.id}>"

    async def status(self) -> Job:
        """The job as it is now."""
        return await self._app.jobs.get(self.id)

    async def wait(self, timeout: float | None = None) -> Job:
        """The job once it has ended, however it did."""
        async with asyncio.timeout(timeout):
            pause = 0.01
            while True:
                job = await self._app.jobs.find(self.id)
                if job is not None and job.state in _FINAL:
                    return job
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, 0.5)

    async def result(self, timeout: float | None = None) -> Any:
        """What the function returned; `JobFailed` if it didn't succeed."""
        job = await self.wait(timeout)
        if job.state != State.SUCCEEDED.label:
            raise JobFailed(job)
        return job.result

    async def cancel(self) -> str:
        """'cancelled', or 'stopping' when it runs and has been asked to stop."""
        return await self._app.jobs.cancel(self.id)

    def status_sync(self) -> Job:
        return portal.call(self.status())

    def result_sync(self, timeout: float | None = None) -> Any:
        return portal.call(self.result(timeout))
