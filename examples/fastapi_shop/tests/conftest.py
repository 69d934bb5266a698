"""Each test gets empty tables of the shop's, and Rota on a private schema of the same database."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

import rota.testing

os.environ.setdefault("SHOP_DATABASE_URL", "postgresql+asyncpg://set.by.the.fixture/shop")

from fastapi_shop.database import sessions
from fastapi_shop.tasks import app

TABLES = (Path(__file__).parent.parent / "tables.sql").read_text("utf-8")


@pytest.fixture
async def sandbox() -> AsyncIterator[rota.testing.Sandbox]:
    evening = datetime(2030, 3, 1, 22, tzinfo=ZoneInfo("Europe/Berlin"))
    async with rota.testing.isolated(app, now=evening) as sandbox:
        url = app.settings.database_url
        connection = await asyncpg.connect(url)
        await connection.execute("drop schema if exists shop cascade")
        await connection.execute(TABLES)
        engine = create_async_engine(
            "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(url)
        )
        sessions.configure(bind=engine)
        yield sandbox
        await engine.dispose()
        await connection.execute("drop schema shop cascade")
        await connection.close()
