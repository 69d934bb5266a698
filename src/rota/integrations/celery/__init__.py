"""Celery's words for Rota: code that was written for Celery runs after its imports are changed.

    from rota.integrations.celery import Celery, shared_task, crontab

    app = Celery("shop")

    @app.task(bind=True, autoretry_for=(OSError,), retry_backoff=True, max_retries=5)
    def fetch(self, url): ...

    fetch.delay("https://example.com")

It is a way over and no emulation: what means something else here is refused with a sentence that says
what to do, or is listed by ``python -m rota.integrations.celery shop.celery:app``, which reads your
present app. `app` is a `rota.App`: everything else of Rota works with it.
"""

from __future__ import annotations

from rota.errors import JobStopped as SoftTimeLimitExceeded
from rota.integrations.celery.app import Celery, crontab, current_app, shared_task
from rota.integrations.celery.canvas import chain, chord, group
from rota.integrations.celery.report import Finding, report
from rota.integrations.celery.results import AsyncResult
from rota.integrations.celery.tasks import (
    CeleryTask,
    Ignore,
    MaxRetriesExceededError,
    NotMapped,
    Reject,
)

Task = CeleryTask

__all__ = [
    "AsyncResult", "Celery", "CeleryTask", "Finding", "Ignore", "MaxRetriesExceededError", "NotMapped",
    "Reject", "SoftTimeLimitExceeded", "Task", "chain", "chord", "crontab", "current_app", "group",
    "report", "shared_task",
]  # fmt: skip
