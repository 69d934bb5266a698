"""What the commands about access share."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from rota.app import App
from rota.store.changes import Change, changing
from rota.store.identity import IdentityStore


async def identity_store(app: App) -> IdentityStore:
    return IdentityStore((await app.store()).database)


@contextlib.asynccontextmanager
async def change_of(
    app: App, action: str, subject: str, *, namespace: str | None = None, after: Any = None
) -> AsyncIterator[Change]:
    """The transaction of a change, which is recorded with it; see `rota.store.changes`."""
    database = (await app.store()).database
    async with changing(database, action, subject, namespace=namespace, after=after) as change:
        yield change
