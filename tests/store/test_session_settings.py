"""Rota works under whatever a database's owner has set; handlers don't meet each other's settings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import asyncpg
import pytest

import rota.testing
from proof.waiting import eventually
from rota import App, Context, SyncContext
from rota.node import Node
from rota.scheduler.firer import Firer
from rota.scheduler.shards import AllShards
from rota.store.database import Database
from rota.store.schedules import ScheduleStore
from rota.store.work import LaneClaim, WorkStore
from tests.support import node_tasks
from tests.support.node_tasks import DISTURB

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
DEFAULTS = [
    "default_transaction_isolation = 'repeatable read'",
    "default_transaction_isolation = 'serializable'",
    "default_transaction_read_only = on",
    "default_transaction_deferrable = on",
    "statement_timeout = '200ms'",
    "idle_in_transaction_session_timeout = '200ms'",
    "search_path = ''",
    "datestyle = 'SQL, DMY'",
    "intervalstyle = 'sql_standard'",
    "timezone = 'Asia/Kathmandu'",
    "standard_conforming_strings = off",
    "bytea_output = 'escape'",
    "extra_float_digits = -15",
    "array_nulls = off",
    "row_security = off",
    "enable_indexscan = off",
]


@pytest.fixture
async def owned(database_url: str) -> AsyncIterator[tuple[str, Callable[[str], Any]]]:
    """A database of its own, and a way to set its defaults."""
    name = f"owned_{uuid4().hex[:12]}"
    outside = await asyncpg.connect(database_url)
    await outside.execute(f"create database {name}")

    async def decide(default: str) -> None:
        await outside.execute(f"alter database {name} set {default}")

    yield urlunsplit(urlsplit(database_url)._replace(path=f"/{name}")), decide
    await outside.execute(f"drop database {name} with (force)")
    await outside.close()


def shop(url: str) -> App:
    app = App(database_url=url, node_name="test")

    @app.task
    async def tell(note: str = "") -> str:
        return note

    @app.task(guarantee="exactly_once")
    async def pay(ctx: Context) -> list[str]:
        await asyncio.sleep(0.4)
        await ctx.connection.execute("select pg_sleep(0.4)")
        await ctx.connection.execute("insert into public.paid values ('coroutine', now())")
        return [await ctx.connection.fetchval("show transaction_isolation")]

    @app.task(guarantee="exactly_once")
    def pay_in_thread(ctx: SyncContext) -> list[str]:
        time.sleep(0.4)
        ctx.connection.execute("select pg_sleep(0.4)")
        ctx.connection.execute("insert into public.paid values ('function', now())")
        return list(ctx.connection.execute("show transaction_isolation").fetchone())

    return app


async def make_paid(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("create table public.paid (what text, at timestamptz)")
    await connection.close()


@pytest.mark.parametrize("default", DEFAULTS)
async def test_jobs_schedules_and_transactions_work_whatever_the_database_s_owner_has_set(
    owned: tuple[str, Callable[[str], Any]], default: str
) -> None:
    url, decide = owned
    await make_paid(url)
    await decide(default)
    app = shop(url)
    async with rota.testing.isolated(app, now=START) as sandbox:
        await app.submit("tell", {"note": "it's \\n"})
        await app.submit("pay")
        await app.submit("pay_in_thread")
        ended = {job.task: job for job in await sandbox.run_due()}
        assert {name: job.state for name, job in ended.items()} == dict.fromkeys(
            ("tell", "pay", "pay_in_thread"), "succeeded"
        )
        assert ended["tell"].result == "it's \\n"
        assert ended["pay"].result == ended["pay_in_thread"].result == ["read committed"]
        await app.schedule("s", "tell", every="1m", overlap="skip")
        await sandbox.advance(minutes=1)
        assert [job.state for job in await sandbox.run_due()] == ["succeeded"]


@pytest.mark.parametrize(
    "default",
    [
        "default_transaction_isolation = 'repeatable read'",
        "default_transaction_isolation = 'serializable'",
        "lock_timeout = '20ms'",
    ],
)
async def test_of_two_racing_starts_of_one_schedule_one_is_skipped(
    owned: tuple[str, Callable[[str], Any]], default: str
) -> None:
    url, decide = owned
    await decide(default)
    app = shop(url)
    async with rota.testing.isolated(app, now=START) as sandbox:
        hot = Database(url, app.settings, hot=True)
        await hot.open()
        await app.schedule("s", "tell", every="1m", overlap="skip")
        claims = [await claim_next(sandbox, hot) for _ in range(2)]
        async with hot.transaction() as first:
            question = hot.queries["begin_scheduled"]
            assert [row["verdict"] for row in await first.fetch(question, *claims[0])] == ["start"]
            second = asyncio.create_task(WorkStore(hot).begin_scheduled(*claims[1]))
            await eventually(lambda: somebody_waits(url, second))
        assert list((await second).values()) == ["skip"]
        await hot.close()


async def claim_next(sandbox: Any, hot: Database) -> tuple[Any, list[Any], list[int]]:
    """Of the next occurrence, as a worker would; it never ends."""
    await sandbox.advance(minutes=1)
    while await Firer(ScheduleStore(hot), AllShards(128)).tick() == 0.0:
        pass
    node = uuid4()
    rows = await WorkStore(hot).claim(node, [LaneClaim("default/default", 10)], ["tell"])
    return node, [row["id"] for row in rows], [row["token"] for row in rows]


async def somebody_waits(url: str, who: asyncio.Task[Any]) -> bool:
    if who.done():
        who.result()
    connection = await asyncpg.connect(url)
    waiting = await connection.fetchval(
        "select count(*) from pg_stat_activity"
        " where datname = current_database() and wait_event_type = 'Lock'"
    )
    await connection.close()
    return bool(waiting)


@pytest.mark.parametrize("name", ["look_then_disturb", "look_then_disturb_in_child"])
async def test_what_a_handler_sets_in_its_session_doesn_t_reach_the_next(
    make_app: Callable[..., App], name: str
) -> None:
    settings = make_app(heartbeat=0.5, processes=1).settings
    async with node_tasks.app.using(settings) as app, Node(app).running():
        task = app.require_task(name)
        # The finish of the same job is Rota's own, and comes before the session is cleaned.
        found = [await (await task.submit(disturbance=DISTURB)).result(30) for _ in range(3)]
    assert found[1] == found[0]  # and so on the same connection: its backend is the last of these
    assert found[2] == found[0]
    assert found[0][1:5] == ["1h", "0", "off", "read committed"]
