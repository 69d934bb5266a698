"""The app of Rota in INSTALLED_APPS."""

from __future__ import annotations

import asyncio
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import pre_migrate


class RotaConfig(AppConfig):  # type: ignore[misc]
    name = "rota.integrations.django"
    label = "rota"
    verbose_name = "Rota"

    def ready(self) -> None:
        from rota.integrations.django.checks import check_database, check_tasks

        checks.register(check_tasks)
        checks.register(check_database, checks.Tags.database)
        pre_migrate.connect(migrate_rota, sender=self)


def migrate_rota(*, using: str, verbosity: int = 1, stdout: Any = None, **_: Any) -> None:
    """Migrate Rota's schema in this database, before `manage.py migrate` applies your migrations.

    Before, so that a migration of yours can enqueue tasks.
    """
    from rota.integrations.django.project import app_of, options_of, rota_aliases

    done: set[str] = set()
    for alias in rota_aliases():
        options = options_of(alias)
        if options.database != using or not options.migrate:
            continue
        app = app_of(alias)
        place = f"{app.settings.schema}/{app.settings.namespace}"
        if place in done:
            continue
        done.add(place)
        applied = asyncio.run(app.migrate())
        if verbosity >= 1 and stdout is not None and applied:
            stdout.write(
                f"  Applied {len(applied)} migrations of Rota to {app.settings.schema!r}\n"
            )
