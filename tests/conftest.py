"""A real PostgreSQL for all tests: that of ROTA_TEST_DATABASE_URL, or an embedded one."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import hypothesis
import pytest

import rota.testing
from rota import App
from rota.store.database import Database
from rota.store.embedded import open_embedded

pytest_plugins = ["tests.server_fixtures"]

# A busy machine is no failure, and nothing is written into the working folder.
hypothesis.settings.register_profile("rota", deadline=None, database=None)
hypothesis.settings.load_profile("rota")

_TABLES = (
    "future", "present", "past", "dead", "submit_key", "batch", "node", "signal", "queue", "lane",
    "task", "task_signature", "unknown_task", "declaration",
    "effect", "schedule", "occurrence", "gate", "calendar", "event", "shard_move", "pace",
    "job_log", "webhook", "allowed_host", "endpoint", "callback",
    "api_token", "login_link", "session", "person", "login_failure", "login_place", "oidc_login",
    "namespace",
)  # fmt: skip


_LONG = (
    "test_failpoints", "test_nemesis", "test_docs", "test_cli_schedules", "test_api_tenants",
    "test_server_limits", "test_cli", "test_client", "test_endpoints", "test_dashboard",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: side by side with others, they would be the last to end."""
    items.sort(key=lambda item: item.path.stem not in _LONG)


@pytest.fixture(autouse=True)
def _levels_of_our_loggers() -> Iterator[None]:
    """Commands that are run in the tests' own process set levels as if it were theirs."""
    loggers = logging.Logger.manager.loggerDict
    before = {name: logging.getLogger(name).level for name in loggers if name.startswith("rota")}
    yield
    for name in [name for name in loggers if name.startswith("rota")]:
        logging.getLogger(name).setLevel(before.get(name, logging.NOTSET))


@pytest.fixture(scope="session")
def database_url() -> Iterator[str]:
    given = os.environ.get("ROTA_TEST_DATABASE_URL")
    if given:
        yield given
        return
    # Short: a unix socket's path has little room.
    data_dir = Path(tempfile.mkdtemp(prefix="rota-"))
    data_dir.chmod(0o711)  # root's server runs as another user, who must be able to pass
    embedded = open_embedded(data_dir)
    asyncio.run(_trade_durability_for_speed(embedded.url))
    try:
        yield embedded.url
    finally:
        embedded.close()
        shutil.rmtree(data_dir, ignore_errors=True)


async def _trade_durability_for_speed(url: str) -> None:
    """Nothing in this server has to survive a power cut."""
    connection = await asyncpg.connect(url)
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        await connection.execute(f"alter system set {name} = off")
    await connection.execute("select pg_reload_conf()")
    await connection.close()


@pytest.fixture(scope="session")
def spare_schemas(database_url: str) -> Iterator[list[str]]:
    """Migrated and empty: emptying one is several times as fast as making one."""
    spare: list[str] = []
    yield spare
    asyncio.run(_execute(database_url, *(f"drop schema {schema} cascade" for schema in spare)))


async def _execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    for statement in statements:
        await connection.execute(statement)
    await connection.close()


@pytest.fixture
async def make_app(
    database_url: str, spare_schemas: list[str]
) -> AsyncIterator[Callable[..., App]]:
    """Makes apps on one empty, migrated schema, which runs on the database's own time."""
    schema = spare_schemas.pop() if spare_schemas else f"rota_test_{uuid4().hex[:12]}"
    apps: list[App] = []

    def make(**settings: Any) -> App:
        given = {"database_url": database_url, "schema": schema, "node_name": "test", **settings}
        apps.append(App(**given))
        return apps[-1]

    await make().migrate()
    yield make
    for app in apps:
        await app.close()
    emptied = [f"delete from {schema}.{table}" for table in _TABLES]
    emptied.append(f"select {schema}.trim_audit('infinity')")
    free = f"update {schema}.shard set owner = null, expires_at = null, epoch = 0"
    fresh = f"update {schema}.setting set value = 0 where name = 'ledger_from'"
    await _execute(database_url, ";".join([*emptied, free, fresh]))
    spare_schemas.append(schema)


@pytest.fixture
def app(make_app: Callable[..., App]) -> App:
    return make_app()


@pytest.fixture
async def sandbox(database_url: str) -> AsyncIterator[rota.testing.Sandbox]:
    """An app without tasks on a private schema, with time that the test moves."""
    async with rota.testing.isolated(App(database_url=database_url, node_name="test")) as sandbox:
        yield sandbox


@pytest.fixture
async def hot(sandbox: rota.testing.Sandbox) -> AsyncIterator[Database]:
    """The sandbox's tables as a node sees them: with pinned plans."""
    settings = sandbox.app.settings
    database = Database(settings.database_url or "", settings, hot=True)
    await database.open()
    yield database
    await database.close()
