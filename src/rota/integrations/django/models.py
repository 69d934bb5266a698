"""Rota's tables as models, to read: for the admin, and for queries of your own.

They are changed through Rota's operations alone, so that guarantees and the audit log hold.
"""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import models

from rota.errors import ConfigError
from rota.integrations.django.project import app_of, options_of
from rota.model import State


def _schema() -> str:
    try:
        schema = options_of().given.get("schema", "rota")
    except (ConfigError, ImproperlyConfigured):
        schema = "rota"  # without a backend of Rota nothing is read
    return str(schema)


class Json(models.TextField):  # type: ignore[misc]
    """JSON as text. What is encrypted is shown as it is stored."""

    def from_db_value(self, value: Any, *_: Any) -> str | None:
        if value is None or isinstance(value, str):
            return value
        return json.dumps(value, ensure_ascii=False)


class _InNamespace(models.Manager):  # type: ignore[misc]
    """The rows of the backend's namespace, from its database."""

    def get_queryset(self) -> Any:
        found = super().get_queryset().using(options_of().database)
        return found.filter(namespace=app_of().settings.namespace)


class ReadOnly(models.Model):  # type: ignore[misc]
    """A table that only Rota writes."""

    objects = _InNamespace()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(
            f"{type(self).__name__} is read-only: change it through rota.integrations.django.app"
        )

    def delete(self, *args: Any, **kwargs: Any) -> Any:
        self.save()


class Job(ReadOnly):
    """A job, wherever it is in its life."""

    id = models.UUIDField(primary_key=True)
    namespace = models.TextField()
    task = models.TextField()
    lane = models.TextField()
    state = models.SmallIntegerField(choices=[(int(each), each.label) for each in State])
    priority = models.SmallIntegerField()
    due_at = models.DateTimeField()
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    attempt = models.SmallIntegerField()
    max_attempts = models.SmallIntegerField()
    key = models.TextField(null=True)
    node = models.UUIDField(null=True)
    payload = Json()
    result = Json(null=True)
    error = Json(null=True)
    attempts = Json(null=True)
    headers = Json(null=True)

    class Meta:
        managed = False
        db_table = f'"{_schema()}"."job"'
        ordering = ("-id",)
        default_permissions = ("view",)
        permissions = (("operate_job", "Can retry and cancel jobs"),)

    def __str__(self) -> str:
        return f"{self.task} {self.id}"

    @property
    def queue(self) -> str:
        return str(self.lane).split("/")[1].split("+")[0]


class Schedule(ReadOnly):
    """A schedule."""

    id = models.UUIDField(primary_key=True)
    namespace = models.TextField()
    name = models.TextField()
    task = models.TextField()
    next_due = models.DateTimeField(null=True)
    paused_at = models.DateTimeField(null=True)
    fired = models.BigIntegerField()
    source = models.TextField()
    spec = Json()
    updated_at = models.DateTimeField()

    class Meta:
        managed = False
        db_table = f'"{_schema()}"."schedule"'
        ordering = ("name",)
        default_permissions = ("view",)
        permissions = (("operate_schedule", "Can pause, resume and trigger schedules"),)

    def __str__(self) -> str:
        return str(self.name)


class Node(ReadOnly):
    """A process of the cluster."""

    id = models.UUIDField(primary_key=True)
    namespace = models.TextField()
    name = models.TextField()
    state = models.TextField()
    version = models.TextField()
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    slots = models.IntegerField()
    running = models.IntegerField()

    class Meta:
        managed = False
        db_table = f'"{_schema()}"."node"'
        ordering = ("-started_at",)
        default_permissions = ("view",)

    def __str__(self) -> str:
        return str(self.name)
