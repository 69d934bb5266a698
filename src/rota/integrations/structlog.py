"""structlog: each line that a handler logs says its job, its task and its attempt.

::

    from rota.integrations import structlog

    structlog.install(app)

The application configures structlog with `structlog.contextvars.merge_contextvars` as a processor.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from structlog.contextvars import bound_contextvars

from rota.app import App


def install(app: App, *, prefix: str = "") -> None:
    """Bind the job of each attempt to the context variables of structlog.

    Args:
        app: your application.
        prefix: goes before the names ``job_id``, ``task`` and ``attempt``.
    """
    job_id, task, attempt = (f"{prefix}{name}" for name in ("job_id", "task", "attempt"))

    @app.middleware
    def bind(context: Any) -> Generator[None]:
        job = context.job
        with bound_contextvars(**{job_id: str(job.id), task: job.task, attempt: job.attempt}):
            yield
