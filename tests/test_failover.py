"""A database that fails over: several hosts, dead lines, demoted and dying servers, or none at start."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from proof import failover
from proof.replicas import Replica
from proof.waiting import eventually
from rota import App
from rota.errors import ConfigError, StoreUnavailable
from rota.node import Node
from rota.store.database import Database
from rota.store.hosts import psycopg_arguments, split_hosts, wanted_session
from rota.store.migrate import migrate
from tests.support import fault_tasks
from tests.support.places import ROOT

# -- URLs


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://rota@db/prod", ["postgresql://rota@db/prod"]),
        (
            "postgresql://rota:p%2Cw@a:5433,b,[::1]:5434/prod?sslmode=require",
            [
                "postgresql://rota:p%2Cw@a:5433/prod?sslmode=require",
                "postgresql://rota:p%2Cw@b/prod?sslmode=require",
                "postgresql://rota:p%2Cw@[::1]:5434/prod?sslmode=require",
            ],
        ),
        ("postgresql:///prod?host=/run/pg", ["postgresql:///prod?host=/run/pg"]),
        (
            "postgresql://rota@/prod?host=a,/run/pg&port=1,2",
            ["postgresql://rota@/prod?host=a&port=1", "postgresql://rota@/prod?host=%2Frun%2Fpg&port=2"],
        ),
    ],
)  # fmt: skip
def test_a_url_of_several_hosts_is_one_url_for_each(url: str, hosts: list[str]) -> None:
    assert [host.url for host in split_hosts(url)] == hosts
    assert not any("p%2Cw" in host.name for host in split_hosts(url))


def test_only_among_several_hosts_a_writable_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert wanted_session("postgresql://a/x") is None
    assert wanted_session("postgresql://a,b/x") == "read-write"
    assert wanted_session("postgresql://a,b/x?target_session_attrs=any") is None
    arguments = psycopg_arguments("postgresql://a,b/x?tcp_user_timeout=1", 10.0)
    assert arguments["target_session_attrs"] == "read-write"
    assert arguments["connect_timeout"] == 10
    assert "tcp_user_timeout" not in arguments
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "any")
    assert wanted_session("postgresql://a,b/x") is None


def behind(database_url: str, *hosts: tuple[str, int]) -> str:
    """A URL whose first hosts are these, and whose last is the test's own server."""
    parts = urlsplit(database_url)
    given = parse_qs(parts.query)
    own = given.get("host", [parts.hostname or ""])[0]
    port = given.get("port", [str(parts.port or 5432)])[0]
    names = ",".join([*(host for host, _ in hosts), own])
    ports = ",".join([*(str(port) for _, port in hosts), port])
    user = parts.username or given.get("user", ["postgres"])[0]
    return f"postgresql://{user}@{parts.path}?host={names}&port={ports}"


async def test_a_host_that_keeps_silent_costs_its_own_time_and_only_once(
    app: App, database_url: str
) -> None:
    """It takes connections and never says a word; the one before it refuses them."""
    with socket.create_server(("127.0.0.1", 0)) as mute, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = behind(database_url, closed.getsockname(), mute.getsockname())
        database = Database(url, app.settings.replace(connect_timeout=0.5))
        before = asyncio.get_running_loop().time()
        async with asyncio.timeout(15):  # much more than its time, much less than the kernel's
            await database.open()
        assert asyncio.get_running_loop().time() - before >= 0.5
        # From now on it begins with the host that was good: nothing is left that could be silent.
        mute.close()
        connections = [await database.dedicated() for _ in range(3)]
        assert await connections[0].fetchval("select 1") == 1
        for connection in connections:
            await connection.close()
        await database.close()


async def test_no_host_at_all_says_what_each_of_them_said(app: App) -> None:
    with socket.socket() as one, socket.socket() as two:
        for each in (one, two):
            each.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in (one, two)]
        url = f"postgresql://u:secret@127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/x"
        with pytest.raises(StoreUnavailable) as refused:
            await Database(url, app.settings).open()
    assert all(f"127.0.0.1:{port}: " in str(refused.value) for port in ports)
    assert "secret" not in str(refused.value)


# -- a primary and its standby


@pytest.fixture(scope="module")
def server_folder() -> Iterator[Path]:
    """Not one of pytest's own: root's servers run as another user, who must be able to pass."""
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replicating(folder: Path) -> Iterator[tuple[Replica, Replica]]:
    """(primary, standby), on loopback."""
    folder.mkdir()
    primary, standby = Replica(folder, "primary"), Replica(folder, "standby")

    async def make() -> None:
        await primary.make()
        await standby.follow(primary)

    asyncio.run(make())
    yield primary, standby
    asyncio.run(standby.stop())
    asyncio.run(primary.stop())


@pytest.fixture(scope="module")
def pair(server_folder: Path) -> Iterator[tuple[Replica, Replica]]:
    with replicating(server_folder / "pair") as made:
        yield made


@asynccontextmanager
async def opened(url: str, settings: Any, **options: Any) -> AsyncIterator[Database]:
    database = Database(url, settings, **options)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


async def test_connections_go_to_the_host_that_takes_writes(pair: Any, app: App) -> None:
    primary, standby = pair
    url = f"postgresql://postgres@{standby.host},{primary.host}/postgres"
    async with opened(url, app.settings) as database, database.connection() as connection:
        assert await connection.fetchval("select pg_is_in_recovery()") is False
    with psycopg.connect(url, **psycopg_arguments(url, 5)) as connection:
        assert connection.execute("select pg_is_in_recovery()").fetchone() == (False,)
    with pytest.raises(StoreUnavailable, match="target attribute"):
        await Database(f"{standby.url}?target_session_attrs=primary", app.settings).open()


async def test_lines_are_watched_by_the_kernel(pair: Any, app: App) -> None:
    async with opened(pair[0].url, app.settings) as database, database.connection() as pooled:
        dedicated = await database.dedicated()
        for connection in (pooled._con, dedicated):
            line = connection._transport.get_extra_info("socket")
            assert line.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
            idle, interval, count = (
                line.getsockopt(socket.IPPROTO_TCP, option)
                for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            )
            assert idle + interval * count == 15
        await dedicated.close()


async def two_backends(database: Database) -> set[int]:
    """The processes behind two connections of the pool that are both idle afterwards."""
    async with database.connection() as one, database.connection() as two:
        return {await each.fetchval("select pg_backend_pid()") for each in (one, two)}


async def test_a_server_that_turns_read_only_is_left_by_the_whole_pool(pair: Any, app: App) -> None:
    async with opened(pair[0].url, app.settings) as database:
        before = await two_backends(database)
        refused = "set transaction read only; create table public.refused ()"
        with pytest.raises(StoreUnavailable, match="read-only"):
            async with database.transaction() as connection:
                await connection.execute(refused)
        assert not before & await two_backends(database)


async def test_a_server_that_says_good_bye_is_left_by_the_whole_pool(pair: Any, app: App) -> None:
    async with opened(pair[0].url, app.settings) as database:
        before = await two_backends(database)
        with pytest.raises(StoreUnavailable):
            async with database.connection() as connection:
                await connection.execute("select pg_terminate_backend(pg_backend_pid())")
        assert not before & await two_backends(database)


async def test_an_error_of_its_own_making_leaves_the_pool_as_it_is(pair: Any, app: App) -> None:
    async with opened(pair[0].url, app.settings) as database:
        before = await two_backends(database)
        with pytest.raises(Exception, match="division by zero"):
            async with database.connection() as connection:
                await connection.execute("select 1 / 0")
        assert await two_backends(database) == before


@pytest.mark.parametrize(("hot", "idle"), [(True, "5s"), (False, "1min")])
async def test_the_engine_s_own_transactions_may_not_be_idle_for_long(
    pair: Any, app: App, hot: bool, idle: str
) -> None:
    async with opened(pair[0].url, app.settings, hot=hot) as database:
        sibling = database.sibling(app.settings.replace(statement_timeout=3600))
        await sibling.open()
        for each, expected in ((database, idle), (sibling, "1h")):
            async with each.connection() as connection:
                shown = await connection.fetchval("show idle_in_transaction_session_timeout")
                assert shown == expected
        await sibling.close()


async def test_a_failover_between_two_jobs_costs_a_child_process_no_attempt(
    make_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FAULT_JOURNAL", str(tmp_path / "journal"))  # the child's
    settings = make_app(processes=1).settings
    async with fault_tasks.app.using(settings) as app:
        store = await app.store()
        async with store.database.connection() as connection:
            await connection.execute("drop table if exists public.fault_effect")
            await connection.execute("create table public.fault_effect (number int not null)")
        task = app.require_task("exactly_in_a_child")
        async with Node(app, roles=["worker"]).running():
            for number in range(3):
                job = await (await task.submit(number)).wait(30)
                assert (job.state, job.attempt) == ("succeeded", 1), job.error
                async with store.database.connection() as connection:
                    ended = await connection.fetch(
                        "select pg_terminate_backend(pid) from pg_stat_activity"
                        " where application_name not like 'rota%' and state = 'idle'"
                        " and query ilike '%commit%' and pid <> pg_backend_pid()"
                    )
                assert len(ended) == 1


# -- a standby by itself


@pytest.fixture
def lone_pair(server_folder: Path) -> Iterator[tuple[Replica, Replica]]:
    """A pair of one test's own, whose standby may be promoted."""
    with replicating(server_folder / "lone") as made:
        yield made


async def test_a_url_of_a_standby_alone_is_told_so_and_serves_after_its_promotion(
    lone_pair: Any, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    primary, standby = lone_pair
    settings = app.settings.replace(connect_timeout=2.0)
    async with opened(primary.url, settings) as database, database.connection() as connection:
        await migrate(connection, settings.schema)
    await primary.wait_for_follower()
    reading = App(settings.replace(database_url=standby.url))

    @reading.task
    async def greet(name: str) -> str:
        return f"Hello, {name}"

    async with reading:
        with pytest.raises(StoreUnavailable, match=r"takes no writes.*host1,host2"):
            await greet.submit("Ada")
        assert await reading.jobs.list() == []  # reading is what a standby is for
        node = Node(reading)
        running = asyncio.create_task(node.run())
        await eventually(lambda: "can't start yet, trying again in" in caplog.text)
        assert "takes no writes" in caplog.text
        primary.kill()
        await standby.promote()
        await eventually(reading.nodes.list, what="the node's start", seconds=60)
        job = await greet.submit("Ada")
        assert await job.result(timeout=60) == "Hello, Ada"
        node.request_stop()
        await running


# -- starting without a database


@asynccontextmanager
async def rota_start(folder: Path, url: str, schema: str) -> AsyncIterator[Any]:
    """`rota start` and what it has said so far."""
    file, root = folder / "start.log", str(ROOT)
    with file.open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", "from rota.cli import main; main()", "start",
             "tests.support.fault_tasks:app", "--role", "scheduler"],
            env={**os.environ, "ROTA_DATABASE_URL": url, "ROTA_SCHEMA": schema,
                 "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])},
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process, file.read_text
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


class Gate:
    """A port at which nobody answers until it is opened towards the test's own server."""

    def __init__(self, database_url: str) -> None:
        parts = urlsplit(database_url)
        folder = parse_qs(parts.query).get("host", [""])[0]
        self._target = f"{folder}/.s.PGSQL.5432" if folder.startswith("/") else None
        self._address = (parts.hostname or "127.0.0.1", parts.port or 5432)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        user = parts.username or parse_qs(parts.query).get("user", ["postgres"])[0]
        self.url = f"postgresql://{user}@127.0.0.1:{self.port}{parts.path}"

    async def open(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = (
            await asyncio.open_unix_connection(self._target)
            if self._target
            else await asyncio.open_connection(*self._address)
        )
        await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def test_a_node_that_finds_no_database_at_its_start_waits_for_it(
    app: App, tmp_path: Path, database_url: str
) -> None:
    gate = Gate(database_url)
    async with rota_start(tmp_path, gate.url, app.settings.schema) as (process, said):
        await eventually(lambda: said().count("can't start yet, trying again in") >= 2)
        assert await app.nodes.list() == []
        server = await gate.open()
        await eventually(lambda: "is up: scheduler" in said(), what="its start")
        assert len(await app.nodes.list()) == 1
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 30) == 0
        server.close()


async def test_a_node_run_from_python_waits_for_its_database_as_well(
    app: App, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(database_url)
    waiting = App(app.settings.replace(database_url=gate.url))
    node = Node(waiting)
    running = asyncio.create_task(node.run())
    await eventually(lambda: "can't start yet, trying again in" in caplog.text)
    server = await gate.open()
    await eventually(app.nodes.list, what="its start")
    node.request_stop()
    await running
    server.close()


async def test_a_node_that_waits_for_a_database_can_be_stopped(
    app: App, tmp_path: Path, database_url: str
) -> None:
    async with rota_start(tmp_path, Gate(database_url).url, "rota") as (process, said):
        await eventually(lambda: "can't start yet" in said())
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 30) == 0


@pytest.mark.parametrize("wrong", ["schema", "database"])
async def test_what_no_waiting_mends_ends_a_node_at_once(
    app: App, tmp_path: Path, database_url: str, wrong: str
) -> None:
    url = (
        database_url.replace("/rota?", "/no_such_database?")
        if wrong == "database"
        else database_url
    )
    if wrong == "database" and url == database_url:
        pytest.skip("the given database's URL has another shape")
    schema = "rota_not_there" if wrong == "schema" else app.settings.schema
    async with rota_start(tmp_path, url, schema) as (process, said):
        assert await asyncio.to_thread(process.wait, 30) != 0
        assert "can't start yet" not in said()


def test_a_url_that_can_t_be_read_is_no_database_that_is_away(app: App) -> None:
    with pytest.raises(ConfigError):
        asyncio.run(Database("postgresql://a:b:c,x:y:z/d", app.settings).open())


# -- the whole of it


@pytest.mark.proof
@pytest.mark.timeout(170)
async def test_a_dead_primary_s_standby_takes_over_and_nothing_promised_is_lost(
    server_folder: Path,
) -> None:
    """The small version of `make failover`: one round."""
    folder = server_folder / "failover"
    folder.mkdir()
    before = failover.workload.app.settings
    try:
        figures, broken = await failover.run(folder, rounds=1, rate=60, jobs=100, away=[1.0])
    finally:
        failover.workload.app.settings = before
    assert broken == []
    assert len(figures) == 1
