"""The errors that Rota raises on purpose. Each message says what happened, to what, and what to do next.

Errors of the API are `RotaError`. `JobError` is raised by handlers, or into them. `JobStopped` is raised
inside plain functions that are timed out or cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.model import Failure


class RotaError(Exception):
    """The base of all errors that Rota raises on purpose.

    `code` is a stable name for what went wrong, `subject` the id or name of what it happened to, and
    `fields` says what is wrong with which field. Errors that a client received from a server also have
    `status`, the HTTP status, and `request_id`, which identifies the request in the server's log.
    """

    code: str | None = None
    status: int | None = None
    request_id: str | None = None
    subject: str | None = None
    fields: Mapping[str, str] = {}

    def __init__(
        self, message: str = "", *, code: str | None = None, field: str | None = None,
        subject: object = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        if code is not None:
            self.code = code
        if subject is not None:
            self.subject = str(subject)
        if field is not None:
            self.fields = {field: message}


class ConfigError(RotaError):
    """Raised when a setting, a name or a task definition is not usable."""


class KeyMissing(ConfigError):
    """Raised when something is, or has to be, encrypted with a key that this process doesn't have."""


class NotAuthentic(RotaError):
    """Raised when something encrypted was changed, or moved from where it belongs."""


class SubmitError(RotaError):
    """Raised when a job is refused at submission; nothing was stored."""


class InvalidArguments(SubmitError):
    """Raised when the arguments don't fit the task's signature."""


class PayloadTooNew(InvalidArguments):
    """Raised when a payload was written for a newer version of its task than this code has."""

    def __init__(self, task: str, version: int | None, own: int) -> None:
        said = "a version" if version is None else f"version {version}"
        super().__init__(
            f"task {task!r}: its payload has {said}, and the code here knows versions up to {own}: a "
            "process of a newer release must run it"
        )


class PayloadTooLarge(SubmitError):
    """Raised when the payload is over the size or depth limit."""


class KeyConflict(SubmitError):
    """Raised when the idempotency key already names a job with other content."""

    def __init__(self, key: str, job_id: str) -> None:
        self.key = key
        self.job_id = job_id
        super().__init__(
            f"key {key!r} already names job {job_id}, whose task or payload differs. "
            "Submit the same content to get that job back, or use another key.",
            subject=job_id,
        )


class DuplicateJob(SubmitError):
    """Raised when a unique job is refused, because another one stands for it: `job_id`."""

    code = "duplicate-job"

    def __init__(self, task: str, job_id: str, key: str = "") -> None:
        self.task = task
        self.job_id = job_id
        self.key = key
        by = f"with the unique key {key!r}" if key else "with these arguments"
        super().__init__(
            f"task {task!r} is unique, and job {job_id} {by} exists already. Nothing was "
            'submitted; with unique_conflict="return" that job is returned',
            subject=job_id,
        )


class UnknownTask(SubmitError):
    """Raised when no task of that name is registered."""


class ResultUnavailable(RotaError):
    """Raised when a job succeeded, but its result can't be returned.

    It could not be kept (it has no JSON form, or is too large), or what is stored doesn't fit the type
    that the task's function returns.
    """


class EventLoopRunning(RotaError, RuntimeError):
    """Raised when a synchronous verb is called in the thread of an event loop, which it would block."""


class NotFound(RotaError):
    """Raised when there is no such job, queue, schedule or node."""


class HistoryNotKept(NotFound):
    """Raised when a job is asked for that succeeded in a queue that does not keep such jobs."""


class SchemaMismatch(RotaError):
    """Raised when the database schema is missing, or older or newer than this code understands."""


class DatabaseNotRecovered(RotaError):
    """Raised when a node is to start on a copy or a restored backup, before `rota recover`."""


class StoreUnavailable(RotaError):
    """Raised when the database can't be reached in time, or can't execute a statement at the moment."""

    # The server's process that had the statement; whether it executed it is not known.
    backend: int | None = None
    # The server answered, and refused this statement: out of room, out of time, a conflict.
    answered: bool = False


class TooMuchToRead(StoreUnavailable):
    """Raised when a search over jobs takes longer than searches may: narrow it."""


class ServerUnavailable(RotaError):
    """Raised when a client gets no answer from its server in time.

    `in_doubt`: the request may have been executed nevertheless.
    """

    def __init__(self, message: str, *, in_doubt: bool = False) -> None:
        self.in_doubt = in_doubt
        super().__init__(message)


class RequestRefused(RotaError):
    """Raised when a request is refused. `retry_after`: seconds to wait before the next one."""

    retry_after: float | None = None


class AccessDenied(RequestRefused):
    """Raised when the token is missing or invalid, or doesn't permit the request."""


class Conflict(RequestRefused):
    """Raised when the state of the thing doesn't permit the request, or when it exists already."""


class PreconditionFailed(Conflict):
    """Raised when the thing has changed since it was read, or doesn't exist. `tag`: its entity tag."""

    code = "precondition-failed"
    tag: str | None = None


class TooManyRequests(RequestRefused):
    """Raised when a quota or a limit is reached."""

    def __init__(
        self, message: str = "", *, code: str | None = None, field: str | None = None,
        retry_after: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message, code=code, field=field)
        self.retry_after = retry_after


class QueueFull(SubmitError, TooManyRequests):
    """Raised when a queue or its namespace holds as many jobs as its `max_depth` allows. Nothing was
    stored.

    `retry_after`: seconds after which there may be room, by how fast jobs have ended lately; None: there
    never will be, because so many jobs at once are more than `max_depth`. `quota` says whether the limit
    is that of the ``queue`` or of the ``namespace``, and `depth` how many jobs it had that have not
    ended. With `block=True` a submit waits instead.
    """

    code = "queue-full"

    def __init__(
        self, message: str = "", *, queue: str = "", namespace: str = "", quota: str = "queue",
        depth: int | None = None, max_depth: int | None = None, retry_after: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.queue = queue
        self.namespace = namespace
        self.quota = quota
        self.depth = depth
        self.max_depth = max_depth
        self.retry_after = retry_after
        self.subject = queue or namespace or None
        if message:
            self.fields = {"max_depth": message}


class EmbeddedPostgresError(RotaError):
    """Raised when the embedded PostgreSQL can't be started, found or stopped."""


class JobError(Exception):
    """The base of the errors that handlers raise, or that are raised into them."""


class Fatal(JobError):
    """Raise it from a handler: the job must not be retried. It goes to the dead-letter list."""


class UnfitArguments(InvalidArguments, Fatal):
    """Raised when the arguments of a stored job don't fit its task's function. The job isn't retried."""


class RetryAfter(JobError):
    """Raise it from a handler to be tried again after a delay. Made by ``Retry.after(seconds)``."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        if not seconds >= 0:
            raise ValueError(f"Retry.after() takes a number of seconds >= 0, not {seconds!r}")
        self.seconds = float(seconds)  # what is longer than a year is cut to a year
        super().__init__(reason or f"asked to be retried after {seconds:g} s")


class LeaseLost(JobError):
    """Raised when the job's lease is lost: this node was declared dead, or the job was cancelled.

    Whatever this attempt still writes through Rota is refused.
    """


class PersonErased(RotaError, Fatal):
    """Raised when a value was sealed for a person whose key is destroyed: nobody can read it again.

    A job that meets it isn't retried. Catch it where the job has something left to do without the value.
    """


class OnceUnknown(Fatal):
    """Raised when an earlier attempt began this ``once`` effect and never reported how it ended.

    Running it again could double it, so it isn't run. Find out whether it happened, then call
    ``once(key, fn, on_unknown="run")``, or retry the job after settling it by hand.
    """


class OnceNotKept(Fatal):
    """Raised when a ``once`` effect has happened, but its value can't be kept, as it isn't JSON.

    The effect isn't repeated, by this job or any other that uses its key. Let the function that you
    give to ``once`` return JSON, or None.
    """

    def __init__(self, key: str, why: str = "") -> None:
        because = f" ({why})" if why else ""
        super().__init__(
            f"once({key!r}) has happened and will not be repeated, but its value could not be kept"
            f"{because}. Return JSON or None from the function that once() calls; finish what this "
            "job had left to do by hand, and discard it"
        )


class StepFailed(Fatal):
    """Raised in a durable function when a step has failed for good. `failure`: the error of its last
    try."""

    _word = "step"

    def __init__(self, name: str, failure: Failure) -> None:
        self.name = name
        self.failure = failure
        super().__init__(f"{self._word} {name!r} failed: {failure.type}: {failure.message}")


class CallFailed(StepFailed):
    """Raised in a durable function when a job or a run that it called has failed or was cancelled."""

    _word = "call"


class WaitTimedOut(Fatal, TimeoutError):
    """Raised in a durable function when a signal did not come in time."""


class RunCancelled(JobError):
    """Raised in a durable function, once, when its run is cancelled or past its deadline.

    It is raised in place of what the function does next, or waits for. The function may still clean up.
    """


class TimedOut(JobError):
    """Raised when an attempt ran longer than its timeout or the maximum run time, and was stopped."""


class HeartbeatTimeout(TimedOut):
    """Raised when an attempt gave no sign of life for longer than its task's `heartbeat_timeout`."""


class ProcessDied(JobError):
    """Raised when the child process of an attempt died while its handler ran."""


class OutOfMemory(JobError, MemoryError):
    """A job used more memory than it asked for by its `resources`."""


class JobStopped(BaseException):
    """Raised inside a plain function that timed out or was cancelled, so that it can clean up.

    It is not an `Exception`, so that ``except Exception`` doesn't swallow it.
    """
