"""Calls the app's `on_error` hooks. Whatever a hook raises is logged, and changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rota.context import ErrorHook, JobInfo

log = logging.getLogger("rota.jobs")


def call_hooks(hooks: Sequence[ErrorHook], job: JobInfo, error: BaseException) -> None:
    for hook in hooks:
        try:
            hook(job, error)
        except BaseException:  # a hook must never break the worker
            log.exception("an on_error hook failed for job %s (%s)", job.id, job.task)
