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
import psycopg
import pytest

import rota.testing
from rota import App
from rota.store.database import Database
from rota.store.embedded import open_embedded
from rota.store.migrate import migrate
from tests.support.known_facts import remembered, trust
from tests.support.order import LONGEST_FIRST, SLOW
from tests.support.sandboxes import drop_template, isolated

pytest_plugins = [
    "tests.support.server_fixtures", "tests.support.command_line", "tests.support.receiver",
]  # fmt: skip

# A busy machine is no failure, and nothing is written into the working folder.
hypothesis.settings.register_profile("rota", deadline=None, database=None)
hypothesis.settings.load_profile("rota")

_TABLES = (
    "future", "present", "past", "dead", "submit_key", "batch", "node", "signal", "queue", "lane",
    "task", "task_signature", "unknown_task", "declaration",
    "effect", "schedule", "occurrence", "gate", "calendar", "event", "shard_move", "duration_baseline",
    "job_log", "tally", "run_stats", "webhook", "allowed_host", "endpoint", "callback",
    "api_token", "login_link", "session", "user_account", "access_role", "login_failure", "login_place",
    "oidc_login",
    "installation", "inbox_message", "inbox", "trigger", "sink", "outbox", "arrival", "sublane", "meter",
    "place", "allotment", "permit", "reservation",
    "fair_weight", "unique_key", "pool", "flow", "depth", "new_lane", "alert_mark", "maintenance",
    "person", "saved_view", "bulk_change", "share_service", "namespace", "map_member", "map_result",
    "map_chunk",
    "map", "pending_step", "checkpoint", "run_signal", "step", "run", "workflow_step", "workflow",
)  # fmt: skip

TESTS = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what has another mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow files, and begin with the longest: they would be the last to end."""
    slow = {TESTS / f"{name}.py" for name in SLOW}
    for item in items:
        if item.path in slow:
            item.add_marker("slow")
    places = {TESTS / f"{name}.py": place for place, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session", autouse=True)
def _known_facts() -> Iterator[None]:
    with remembered():
        yield


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
        asyncio.run(drop_template(given))
        return
    # Short: a unix socket's path has little room.
    data_dir = Path(tempfile.mkdtemp(prefix="rota-", dir=_memory()))
    data_dir.chmod(0o711)  # root's server runs as another user, who must be able to pass
    embedded = open_embedded(data_dir)
    asyncio.run(_trade_durability_for_speed(embedded.url))
    try:
        yield embedded.url
    finally:
        embedded.close()
        shutil.rmtree(data_dir, ignore_errors=True)


def _memory() -> str | None:
    """A folder in memory, where there is one with room for all that the tests store."""
    place = "/dev/shm"
    return place if Path(place).is_dir() and shutil.disk_usage(place).free > 4 << 30 else None


async def _trade_durability_for_speed(url: str) -> None:
    """Nothing in this server has to survive a power cut."""
    connection = await asyncpg.connect(url)
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        await connection.execute(f"alter system set {name} = off")
    await connection.execute("select pg_reload_conf()")
    await connection.close()


class Schemas:
    """Migrated and empty schemas: emptying one is many times as fast as making one.

    They are emptied by one connection, which knows all tables by then.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._spare: list[str] = []
        self._connection: psycopg.Connection[Any] | None = None

    async def take(self) -> str:
        if self._spare:
            return self._spare.pop()
        schema = f"rota_test_{uuid4().hex[:12]}"
        connection = await asyncpg.connect(self._url)
        await migrate(connection, schema)
        await connection.close()
        trust(schema)
        return schema

    def give_back(self, schema: str) -> None:
        self._execute(
            *(f"delete from {schema}.{table}" for table in _TABLES),
            f"select {schema}.trim_audit('infinity')",
            f"update {schema}.shard set owner = null, expires_at = null, epoch = 0",
            f"update {schema}.setting set value = 0 where name = 'ledger_from'",
            f"delete from {schema}.setting where name = 'history_hours'",
        )
        self._spare.append(schema)

    def drop(self) -> None:
        if self._spare:
            self._execute(*(f"drop schema {schema} cascade" for schema in self._spare))
        if self._connection is not None:
            self._connection.close()

    def _execute(self, *statements: str) -> None:
        if self._connection is None or not self._is_alive():
            self._connection = psycopg.connect(self._url, autocommit=True)
        self._connection.execute(";".join(statements))  # type: ignore[call-overload]

    def _is_alive(self) -> bool:
        """Some tests cut all connections."""
        assert self._connection is not None
        try:
            self._connection.execute("select")
        except psycopg.OperationalError:
            return False
        return True


@pytest.fixture(scope="session")
def schemas(database_url: str) -> Iterator[Schemas]:
    schemas = Schemas(database_url)
    yield schemas
    schemas.drop()


@pytest.fixture
async def make_app(database_url: str, schemas: Schemas) -> AsyncIterator[Callable[..., App]]:
    """Makes apps on one empty, migrated schema, which runs on the database's own time."""
    schema = await schemas.take()
    apps: list[App] = []

    def make(**settings: Any) -> App:
        given = {"database_url": database_url, "schema": schema, "node_name": "test",
                 "connect_timeout": 60, **settings}  # fmt: skip
        apps.append(App(**given))
        return apps[-1]

    yield make
    for app in apps:
        await app.close()
    schemas.give_back(schema)


@pytest.fixture
def app(make_app: Callable[..., App]) -> App:
    return make_app()


@pytest.fixture
async def sandbox(database_url: str) -> AsyncIterator[rota.testing.Sandbox]:
    """An app without tasks on a private schema, with time that the test moves."""
    async with isolated(App(database_url=database_url, node_name="test")) as sandbox:
        yield sandbox


@pytest.fixture
async def hot(sandbox: rota.testing.Sandbox) -> AsyncIterator[Database]:
    """The sandbox's tables as a node sees them: with pinned plans."""
    settings = sandbox.app.settings
    database = Database(settings.database_url or "", settings, hot=True)
    await database.open()
    yield database
    await database.close()
