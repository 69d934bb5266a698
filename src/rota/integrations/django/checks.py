"""System checks: `manage.py check` says what would keep jobs from being stored or run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's name
from django.db import connections

from rota.errors import RotaError
from rota.integrations.django.options import Options, left_out
from rota.integrations.django.project import (
    app_of,
    is_discovered,
    options_of,
    rota_aliases,
    tasks_by_name,
)


def check_backend(options: Options) -> list[CheckMessage]:
    """Check the database of a backend, without connecting to it."""
    found: list[CheckMessage] = []
    described = connections[options.database].settings_dict
    where = f"TASKS[{options.alias!r}]"
    if connections[options.database].vendor != "postgresql":
        found.append(
            Error(
                f"{where}: database {options.database!r} is not PostgreSQL, which Rota needs.",
                hint="Name another of DATABASES: OPTIONS={'database': ...}.",
                id="rota.E001",
            )
        )
    if (missing := left_out(described)) and not options.given.get("database_url"):
        found.append(
            Warning(
                f"{where}: workers connect without {', '.join(missing)}, which DATABASES"
                f"[{options.database!r}]['OPTIONS'] has.",
                hint="Give workers their own address: OPTIONS={'database_url': 'postgresql://...'}.",
                id="rota.W002",
            )
        )
    return found


def check_tasks(app_configs: Any = None, **_: Any) -> list[CheckMessage]:
    """Check that workers import every module that has tasks."""
    if not rota_aliases():
        return []
    found: list[CheckMessage] = []
    for name, task in sorted(tasks_by_name.items()):
        if not is_discovered(task.func.__module__):
            found.append(
                Warning(
                    f"Task {name!r} is in {task.func.__module__!r}, which workers don't import: its "
                    "jobs would wait for ever.",
                    hint="Move it to the tasks module of an installed app, or name the module: "
                    "OPTIONS={'modules': [...]}.",
                    id="rota.W003",
                )
            )
    return found


def check_database(
    app_configs: Any = None, databases: Sequence[str] | None = None, **_: Any
) -> list[CheckMessage]:
    """Check that the database has Rota's schema: `manage.py check --database default`.

    A warning: `manage.py migrate` runs these checks first, and is what repairs it.
    """
    found: list[CheckMessage] = []
    for alias in rota_aliases():
        options = options_of(alias)
        if options.database not in (databases or ()):
            continue
        if connections[options.database].vendor != "postgresql":
            continue  # rota.E001 says so; another server than the project's could be asked here
        try:
            pending = asyncio.run(app_of(alias).connector.pending_migrations())
        except RotaError as error:
            pending = [str(error)]
        if pending:
            found.append(
                Warning(
                    f"TASKS[{alias!r}]: the schema of Rota in database {options.database!r} is missing "
                    f"or not of this release ({pending[0]}).",
                    hint="Run `manage.py migrate`.",
                    id="rota.W004",
                )
            )
    return found
