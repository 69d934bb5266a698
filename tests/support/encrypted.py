"""Encrypted namespaces for tests, and all that their tables hold, as text."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from rota import App
from rota.testing import Sandbox
from tests.support.sandboxes import isolated

OLD, NEW = "old:" + "A" * 43, "new:" + "B" * 42 + "A"
SECRET = "swordfish"


@asynccontextmanager
async def encrypted(database_url: str) -> AsyncIterator[Sandbox]:
    """A sandbox whose namespace is encrypted with the key OLD."""
    async with isolated(App(database_url=database_url, encryption_keys=OLD)) as sandbox:
        await encrypt(sandbox.app)
        yield sandbox


async def encrypt(app: App) -> None:
    database = (await app.store()).database
    await database.fetch("set_encrypted", app.settings.namespace, True)
    database.encryption.learn(True)


async def stored(app: App, tables: Sequence[str]) -> str:
    database = (await app.store()).database
    async with database.connection() as connection:
        query = f"select json_agg(t) from {database.schema}.TABLE as t"
        rows = [await connection.fetchval(query.replace("TABLE", name)) for name in tables]
    return "\n".join(map(str, rows))
