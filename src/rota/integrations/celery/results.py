"""Results with Celery's words: states, `get`, `ready`, `revoke`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from rota.errors import NotFound
from rota.handle import JobFailed, JobHandle
from rota.lib.sync_bridge import sync_bridge
from rota.model import Job

if TYPE_CHECKING:
    from rota.app import App

_STATES = {
    "running": "STARTED", "succeeded": "SUCCESS", "failed": "FAILURE", "cancelled": "REVOKED",
    "skipped": "REVOKED",
}  # fmt: skip
_READY = frozenset({"SUCCESS", "FAILURE", "REVOKED"})


class AsyncResult:
    """The result of a job, now or later."""

    def __init__(
        self, id: str | UUID, app: App | None = None, handle: JobHandle[Any] | None = None
    ) -> None:
        if app is None:
            from rota.integrations.celery.app import current_app

            app = current_app()
        self._app = app
        self._uuid = id if isinstance(id, UUID) else UUID(id)
        self._handle: JobHandle[Any] = handle or JobHandle(app.jobs, self._uuid)

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"

    @property
    def id(self) -> str:
        return str(self._uuid)

    task_id = id

    def _job(self) -> Job | None:
        try:
            return self._handle.status_sync()
        except NotFound:
            return None

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED."""
        job = self._job()
        if job is None:
            return "PENDING"  # as in Celery: it is not known
        waiting = "RETRY" if job.attempt else "PENDING"
        return _STATES.get(job.state, waiting)

    status = state

    def ready(self) -> bool:
        return self.state in _READY

    def successful(self) -> bool:
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        return self.state == "FAILURE"

    def get(self, timeout: float | None = None, propagate: bool = True, **_: Any) -> Any:
        """Wait for the result. A job that failed raises `rota.JobFailed`, which tells the error."""
        try:
            return self._handle.result_sync(timeout)
        except JobFailed as error:
            if propagate:
                raise
            return error

    wait = get

    @property
    def result(self) -> Any:
        """The result if there is one by now; the error of a job that failed; else None."""
        job = self._job()
        if job is None or job.state not in ("succeeded", "failed"):
            return None
        return job.result if job.state == "succeeded" else JobFailed(job)

    @property
    def traceback(self) -> str | None:
        job = self._job()
        return job.error.traceback if job is not None and job.error is not None else None

    def revoke(self, terminate: bool = False, **_: Any) -> None:
        """Cancel the job. One that runs is always asked to stop."""
        sync_bridge.call(lambda: self._app.jobs.cancel(self._uuid), "cancel")

    def forget(self) -> None:
        """Do nothing: results go with their jobs, after `retention_days`."""


class RunResult:
    """The result of a chain, a group or a chord, which runs as a workflow."""

    def __init__(self, run: Any) -> None:
        self.run = run
        self.id = str(run.id)

    def get(self, timeout: float | None = None, **_: Any) -> Any:
        return self.run.result_sync(timeout)

    join = get


class EagerResult:
    """The result of a task that was run at once."""

    id = None

    def __init__(self, value: Any, error: Exception | None) -> None:
        self.result = error if error is not None else value
        self.state = self.status = "FAILURE" if error is not None else "SUCCESS"
        self._error = error

    def get(self, timeout: float | None = None, propagate: bool = True, **_: Any) -> Any:
        if self._error is not None and propagate:
            raise self._error
        return self.result

    def ready(self) -> bool:
        return True

    def successful(self) -> bool:
        return self._error is None

    def failed(self) -> bool:
        return self._error is not None
