"""Registers tasks, and looks at stored jobs."""

from __future__ import annotations

from typing import Any

from rota.store.work import WorkStore


async def everything(app) -> list[Any]:
    return await app.jobs.list(limit=1000)


async def register(app, name, *, queue="default", needs="", priority=0, max_attempts=5) -> None:
    store = WorkStore((await app.store()).database)
    values = name, queue, needs, priority, 1, max_attempts, None, None, None, None, False
    values = *values, None, None, None
    columns = [[value] for value in values]
    await store.register_tasks("default", columns)
