"""Sandboxes on copies of one migrated database: making the schema takes several times as long."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

from rota import App
from rota.store.database import Database
from rota.store.migrate import migrate
from rota.testing import Sandbox, open_sandbox
from tests.support.known_facts import trust

_SCHEMA = "rota_test"
_templates: dict[str, str] = {}  # by the URL of their server


@contextlib.asynccontextmanager
async def isolated(
    app: App, *, now: datetime | None = None, **settings: Any
) -> AsyncIterator[Sandbox]:
    """As `rota.testing.isolated`, but in a database of its own."""
    home = app.settings.database_url
    assert home
    name = f"rota_test_{uuid4().hex[:12]}"
    url = _in_database(home, name)
    private = app.settings.replace(**settings, database_url=url, schema=_SCHEMA)
    server = await asyncpg.connect(home)
    try:
        await _copy(server, await _template(home), name)
        database = Database(url, private, hot=True)
        await database.open()
        try:
            async with open_sandbox(app, database, private, now) as sandbox:
                yield sandbox
        finally:
            await database.close()
            await server.execute(f"drop database {name} with (force)")
    finally:
        await server.close()


async def drop_template(home: str) -> None:
    """Leave nothing on a server that isn't ours."""
    if name := _templates.pop(home, None):
        server = await asyncpg.connect(home)
        await server.execute(f"drop database {name} with (force)")
        await server.close()


async def _template(home: str) -> str:
    if home not in _templates:
        name = f"rota_template_{uuid4().hex[:12]}"
        server = await asyncpg.connect(home)
        await server.execute(f"create database {name}")
        await server.close()
        # Copied is what is stored: also the catalog's cache, which the first connection writes.
        connection = await asyncpg.connect(_in_database(home, name))
        await migrate(connection, _SCHEMA)
        await connection.close()
        trust(_SCHEMA)
        _templates[home] = name
    return _templates[home]


async def _copy(server: asyncpg.Connection, template: str, name: str) -> None:
    # The other strategy is for templates much larger than this one.
    files = " strategy file_copy" if server.get_server_version().major >= 15 else ""
    await server.execute(f"create database {name} template {template}{files}")


def _in_database(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()
