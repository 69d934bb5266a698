"""Sentry: each failed attempt is an event with its job, traces go on in jobs, schedules check in.

::

    import sentry_sdk
    from rota.integrations import sentry

    sentry_sdk.init(dsn="...", traces_sample_rate=0.1)
    sentry.install(app)

Each attempt has an isolation scope of its own, on the event loop, in threads and in child processes. The
program that runs the worker initialises the SDK; so must child processes, which import the app's module.
"""

from __future__ import annotations

from collections.abc import Generator
from time import monotonic
from typing import Any

import sentry_sdk
from sentry_sdk.crons import MonitorStatus, capture_checkin

from rota.app import App
from rota.errors import Fatal, RetryAfter
from rota.submission import Submission

_FIELDS = ("sentry-trace", "baggage")


def install(app: App, *, only_final: bool = False, monitors: bool = False) -> None:
    """Report the failures of an app's tasks to Sentry.

    Args:
        app: your application.
        only_final: report only attempts after which the job is not tried again.
        monitors: let the jobs of schedules check in as Sentry's cron monitors, by the schedule's name.
    """

    @app.on_submit
    def carry_trace(submission: Submission) -> None:
        trace = sentry_sdk.get_traceparent()
        if trace is not None and _FIELDS[0] not in submission.headers:
            submission.headers[_FIELDS[0]] = trace
            if baggage := sentry_sdk.get_baggage():
                submission.headers[_FIELDS[1]] = baggage

    @app.middleware
    def report(context: Any) -> Generator[None]:
        job, began = context.job, monotonic()
        slug = context.occurrence.schedule if monitors and context.occurrence else None
        check_in = slug and capture_checkin(monitor_slug=slug, status=MonitorStatus.IN_PROGRESS)
        status = MonitorStatus.ERROR
        with sentry_sdk.isolation_scope() as scope:
            _describe(scope, job)
            try:
                with _transaction(job):
                    yield
                status = MonitorStatus.OK
            except RetryAfter:
                raise  # asked for by the handler
            except Exception as error:
                final = isinstance(error, Fatal) or job.attempt >= job.max_attempts
                if final or not only_final:
                    scope.set_tag("rota.final", final)
                    sentry_sdk.capture_exception(error)
                raise
            finally:
                if check_in:
                    capture_checkin(
                        monitor_slug=slug, check_in_id=check_in, status=status,
                        duration=monotonic() - began,
                    )  # fmt: skip


def _describe(scope: Any, job: Any) -> None:
    scope.set_tag("rota.task", job.task)
    scope.set_tag("rota.attempt", job.attempt)
    scope.set_context(
        "rota",
        {"job": str(job.id), "task": job.task, "attempt": job.attempt,
         "max_attempts": job.max_attempts, "key": job.key},
    )  # fmt: skip
    scope.set_transaction_name(job.task, source="task")


def _transaction(job: Any) -> Any:
    headers = {name: job.headers[name] for name in _FIELDS if name in job.headers}
    transaction = sentry_sdk.continue_trace(
        headers, op="queue.process", name=job.task, source="task", origin="auto.queue.rota"
    )
    return sentry_sdk.start_transaction(transaction)
