"""Rota for Django: a backend for `django.tasks`, a worker, an admin, and helpers for tests.

    INSTALLED_APPS = [..., "rota.integrations.django"]
    TASKS = {"default": {"BACKEND": "rota.integrations.django.RotaBackend"}}

Works with Django 6 and its `django.tasks`, and with Django 5.2 and the package `django-tasks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.app import App
    from rota.integrations.django.backend import ImmediateBackend, RotaBackend, RotaTask
    from rota.integrations.django.project import app_of, cron

    app: App

__all__ = ["ImmediateBackend", "RotaBackend", "RotaTask", "app", "app_of", "cron"]

_PLACES = {
    "ImmediateBackend": "backend", "RotaBackend": "backend", "RotaTask": "backend",
    "app_of": "project", "cron": "project",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    # Not at import: Django imports this package before its settings may be read.
    from importlib import import_module

    if name == "app":
        return import_module("rota.integrations.django.project").app_of()
    if name in _PLACES:
        return getattr(import_module(f"rota.integrations.django.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
