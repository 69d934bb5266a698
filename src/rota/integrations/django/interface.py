"""Django's interface for tasks: `django.tasks` of Django 6, or else the package `django-tasks`."""

from __future__ import annotations

import django
from django.core.exceptions import ImproperlyConfigured

if django.VERSION >= (6, 0):
    from django.tasks import base, signals, task_backends
    from django.tasks.backends import base as backends
    from django.tasks.backends import immediate
    from django.tasks.exceptions import (
        InvalidTask,
        InvalidTaskBackend,
        TaskResultDoesNotExist,
    )
else:
    try:
        import django_tasks.signals as signals
        from django_tasks import base, task_backends
        from django_tasks.backends import base as backends
        from django_tasks.backends import immediate
        from django_tasks.exceptions import InvalidTaskBackendError as InvalidTaskBackend
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist
    except ImportError:
        raise ImproperlyConfigured(
            f"Django {django.get_version()} has no django.tasks: install the package that has it "
            "(pip install django-tasks), or Django 6"
        ) from None

__all__ = [
    "InvalidTask", "InvalidTaskBackend", "TaskResultDoesNotExist", "backends", "base", "immediate",
    "signals", "task_backends",
]  # fmt: skip
