"""The nemesis itself: its proxy really loses what it says, it leaves nothing behind, and a short run."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import psutil
import pytest

from proof.checker import check
from proof.checker.facts import Facts
from proof.checker.leases import _REAL_PATIENCE
from proof.history import History
from proof.nemesis.clocks import WallClock, find_library
from proof.nemesis.cluster import LEASE_SECONDS
from proof.nemesis.database import Database, set_defaults
from proof.nemesis.network import make_namespaces, missing_for_namespaces
from proof.nemesis.plan import RECIPES, SILENCES, plan_faults
from proof.nemesis.proxy import Kind, Proxy, Trouble
from proof.nemesis.server import Server
from proof.nemesis.tasks import TABLES
from rota.store.migrate import migrate
from tests.support.places import ROOT

WITHOUT_NAMESPACES = missing_for_namespaces()
LOST = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)


# -- the proxy


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[Proxy]:
    """In front of the tests' server, which is at a unix socket or a TCP port."""
    proxy = Proxy(_address(database_url))
    await proxy.open()
    yield proxy
    await proxy.close()


def _address(url: str) -> str | tuple[str, int]:
    parts = urlsplit(url)
    options = parse_qs(parts.query)
    if host := options.get("host"):
        return f"{host[0]}/.s.PGSQL.{options['port'][0]}"
    return parts.hostname or "127.0.0.1", parts.port or 5432


@pytest.fixture
async def direct(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    """Past the proxy, to see what the server has done."""
    connection = await asyncpg.connect(database_url)
    await connection.execute("drop table if exists public.seen; create table public.seen (n int)")
    yield connection
    await connection.execute("drop table public.seen")
    await connection.close()


async def _through(proxy: Proxy, database_url: str) -> asyncpg.Connection:
    return await asyncpg.connect(database_url, host=proxy.host, port=proxy.port, ssl=False)


async def _seen(direct: asyncpg.Connection) -> list[int]:
    return [row["n"] for row in await direct.fetch("select n from public.seen order by n")]


async def _eventually_seen(direct: asyncpg.Connection, expected: list[int]) -> None:
    async with asyncio.timeout(60):
        while await _seen(direct) != expected:
            await asyncio.sleep(0.01)


async def test_a_lost_reply_is_lost_after_the_server_has_committed(
    proxy: Proxy, direct: asyncpg.Connection, database_url: str
) -> None:
    connection = await _through(proxy, database_url)
    await connection.execute("insert into public.seen values (1)")
    trouble = Trouble("lose_reply", 1.0)
    proxy.begin(trouble)
    with pytest.raises(LOST):
        await connection.execute("insert into public.seen values (2)", timeout=30)
    assert await _seen(direct) == [1, 2]
    assert trouble.hits == 1
    # Inside a transaction only the answer to its commit is lost.
    proxy.end(trouble)
    connection = await _through(proxy, database_url)
    proxy.begin(Trouble("lose_reply", 1.0))
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("insert into public.seen values (3)")
    with pytest.raises(LOST):
        await transaction.commit()
    assert await _seen(direct) == [1, 2, 3]


@pytest.mark.parametrize(("kind", "arrives"), [("drop_up", False), ("drop_down", True)])
async def test_one_direction_is_dropped_and_the_other_is_not(
    proxy: Proxy, direct: asyncpg.Connection, database_url: str, kind: Kind, arrives: bool
) -> None:
    connection = await _through(proxy, database_url)
    trouble = Trouble(kind)
    proxy.begin(trouble)
    asked = asyncio.ensure_future(connection.execute("insert into public.seen values (1)"))
    if arrives:
        await _eventually_seen(direct, [1])
    else:
        async with asyncio.timeout(60):
            while not trouble.hits:
                await asyncio.sleep(0.01)
    assert not asked.done()
    proxy.end(trouble)
    with pytest.raises(LOST):
        await asked
    assert await _seen(direct) == ([1] if arrives else [])


@pytest.mark.parametrize("kind", ["hold", "stall"])
async def test_what_was_held_arrives_although_its_sender_has_gone(
    proxy: Proxy, direct: asyncpg.Connection, database_url: str, kind: Kind
) -> None:
    connection = await _through(proxy, database_url)
    trouble = Trouble(kind)
    proxy.begin(trouble)
    asked = asyncio.ensure_future(connection.execute("insert into public.seen values (1)"))
    async with asyncio.timeout(60):
        while not proxy.holding:
            await asyncio.sleep(0.01)
    connection.terminate()
    with pytest.raises(LOST):
        await asked
    assert await _seen(direct) == []
    if kind == "stall":  # a new connection overtakes it
        other = await _through(proxy, database_url)
        await other.execute("insert into public.seen values (0)")
        await other.close()
    proxy.end(trouble)
    await _eventually_seen(direct, [0, 1] if kind == "stall" else [1])


async def test_a_forgotten_connection_is_silent_and_a_new_one_is_fine(
    proxy: Proxy, database_url: str
) -> None:
    connection = await _through(proxy, database_url)
    trouble = Trouble("forget")
    proxy.begin(trouble)
    asked = asyncio.ensure_future(connection.fetchval("select 1"))
    other = await _through(proxy, database_url)
    assert await other.fetchval("select 2") == 2
    assert not asked.done()
    proxy.end(trouble)
    with pytest.raises(LOST):
        await asked
    assert await other.fetchval("select 3") == 3
    await other.close()


async def test_refused_connections_are_reset(proxy: Proxy, database_url: str) -> None:
    connection = await _through(proxy, database_url)
    trouble = Trouble("refuse")
    proxy.begin(trouble)
    with pytest.raises(LOST):
        await connection.fetchval("select 1")
    with pytest.raises(LOST):
        await _through(proxy, database_url)
    proxy.end(trouble)
    connection = await _through(proxy, database_url)
    assert await connection.fetchval("select 1") == 1
    await connection.close()


async def test_an_error_is_told_after_the_server_has_committed(
    proxy: Proxy, direct: asyncpg.Connection, database_url: str
) -> None:
    connection = await _through(proxy, database_url)
    trouble = Trouble("error_reply", 1.0, ("53100",))
    proxy.begin(trouble)
    with pytest.raises(asyncpg.DiskFullError):
        await connection.fetch("insert into public.seen values ($1)", 1)
    assert await _seen(direct) == [1]
    # A statement inside a transaction is what it is; its commit was done, and is said to have failed.
    transaction = connection.transaction()
    await transaction.start()
    await connection.fetch("insert into public.seen values ($1)", 2)
    with pytest.raises(asyncpg.DiskFullError):
        await transaction.commit()
    assert await _seen(direct) == [1, 2]
    assert proxy.told == {"53100": trouble.hits}
    proxy.end(trouble)
    assert await connection.fetchval("select 3") == 3
    await connection.close()


async def test_new_connections_are_told_that_there_are_too_many(
    proxy: Proxy, database_url: str
) -> None:
    trouble = Trouble("too_many", 0.0)
    proxy.begin(trouble)
    with pytest.raises(asyncpg.TooManyConnectionsError):
        await _through(proxy, database_url)
    assert proxy.told == {"53300": 1}
    proxy.end(trouble)
    connection = await _through(proxy, database_url)
    assert await connection.fetchval("select 1") == 1
    await connection.close()


# -- the network


@pytest.mark.skipif(bool(WITHOUT_NAMESPACES), reason=WITHOUT_NAMESPACES)
@pytest.mark.parametrize("cut", ["both", "out", "in", "reset"])
async def test_a_partition_cuts_a_namespace_off_and_healing_joins_it_again(cut: str) -> None:
    namespace = make_namespaces(1)[0]
    try:
        server = await asyncio.start_server(_greet, namespace.gateway, 0)
        port = server.sockets[0].getsockname()[1]
        assert await _says(namespace.prefix, namespace.gateway, port) == "hello"
        namespace.begin(cut)  # type: ignore[arg-type]
        cut_off = await _says(namespace.prefix, namespace.gateway, port)
        assert cut_off == ("ConnectionRefusedError" if cut == "reset" else "TimeoutError")
        namespace.end(cut)  # type: ignore[arg-type]
        assert await _says(namespace.prefix, namespace.gateway, port) == "hello"
        server.close()
    finally:
        namespace.remove()
    assert namespace.name not in _namespaces()


async def _greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello")
    writer.close()


_ASK = """
import socket, sys
try:
    line = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1)
    print(line.recv(5).decode())
except OSError as error:
    print(type(error).__name__)
"""


async def _says(prefix: list[str], host: str, port: int) -> str:
    """What a process inside the namespace hears."""
    asking = await asyncio.create_subprocess_exec(
        *prefix, sys.executable, "-c", _ASK, host, str(port), stdout=subprocess.PIPE
    )
    said, _ = await asking.communicate()
    return said.decode().strip()


def _namespaces() -> list[str]:
    folder = Path("/run/netns")
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


# -- the database


@pytest.fixture
async def server(folder: Path) -> AsyncIterator[Server]:
    """One of a run, with Rota's tables and the application's; its clock can be set."""
    folder.mkdir(mode=0o711)
    library = find_library()
    server = Server(folder, WallClock(library, folder / "clock-server") if library else None)
    await server.start()
    connection = await server.connect()
    await migrate(connection, "rota", include_post=True)
    await connection.execute(TABLES)
    await connection.close()
    yield server
    await server.stop()


async def test_statements_fail_as_told_and_every_failure_is_counted(server: Server) -> None:
    database = Database(server, seed=1)
    await database.prepare()
    connection = await server.connect()
    insert = "insert into rota.app_effect (job, token) values (gen_random_uuid(), 1)"
    async with database.failing(("53100",), 1.0):
        with pytest.raises(asyncpg.DiskFullError):
            await connection.execute(insert)
        with pytest.raises(asyncpg.DiskFullError):
            await connection.execute("update rota.shard set epoch = epoch")
    await connection.execute(insert)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(insert)
    async with database.failing(("40001",), 1.0):
        with pytest.raises(asyncpg.SerializationError):
            await transaction.commit()
    assert await connection.fetchval("select count(*) from rota.app_effect") == 1
    raised = {sqlstate: count for sqlstate, count in (await database.raised()).items() if count}
    assert raised == {"53100": 2, "40001": 1}
    await connection.close()


async def test_rows_are_locked_until_their_holder_goes_or_loses_its_connection(
    server: Server,
) -> None:
    database = Database(server, seed=1)
    async with database.rows_locked() as said:
        assert re.fullmatch(r"\d+ rows of \w+", said)
        await server.restart()
    async with database.rows_locked():
        pass


async def test_days_are_dropped_and_nobody_is_waited_for(server: Server) -> None:
    database = Database(server, seed=1)
    reader = await server.connect()
    async with reader.transaction():
        await reader.execute("lock table rota.past, rota.occurrence in access share mode")
        assert await database.drop_days() == 0
    assert await database.drop_days() > 0
    await reader.close()


async def test_the_database_has_the_settings_and_the_clock_that_it_is_given(server: Server) -> None:
    chosen = await set_defaults(server, seed=40004)
    assert chosen["statement_timeout"] == "3000"
    as_others_see_it = await asyncpg.connect(server.url)
    assert await as_others_see_it.fetchval("show statement_timeout") == "3s"
    await as_others_see_it.close()
    own = await server.connect()
    assert await own.fetchval("show statement_timeout") == "0"
    if server.clock is not None:
        before = await own.fetchval("select clock_timestamp()")
        server.clock.shift(-3600)
        assert await own.fetchval("select clock_timestamp()") < before
    await own.close()


# -- the plan


def test_a_seed_says_everything_and_each_kind_of_fault_comes_up() -> None:
    groups = ("nodes", "workers", "lines", "all_lines", "clocks", "server")
    targets = {group: [group] for group in groups}
    plan = plan_faults(7, 2000, RECIPES, targets)
    assert plan == plan_faults(7, 2000, RECIPES, targets)
    assert plan != plan_faults(8, 2000, RECIPES, targets)
    assert set(Counter(fault.kind for fault in plan)) == set(RECIPES)
    assert 800 < len(plan) < 1200
    assert {fault.kind for fault in plan_faults(7, 100, {"kill"}, targets)} == {"kill"}


def test_in_every_plan_a_worker_is_cut_off_for_longer_than_its_lease() -> None:
    nodes, workers = ["s1", "w1", "w2"], ["w1", "w2"]
    targets = {"nodes": nodes, "workers": workers, "lines": [*nodes, "c1"], "server": ["server"],
               "all_lines": [*nodes, "c1", "o1"], "clocks": nodes}  # fmt: skip
    for seed in range(30):
        plan = plan_faults(seed, 30, RECIPES, targets)
        assert any(
            fault.kind in SILENCES
            and fault.target in workers
            and fault.seconds > LEASE_SECONDS + _REAL_PATIENCE
            for fault in plan
        )


# -- runs


def _nemesis(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ROTA_")}
    return subprocess.Popen(
        [sys.executable, "-m", "proof.nemesis", "--folder", str(folder), *arguments],
        cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        # A shell starts what it runs in the background with Ctrl-C ignored, which is passed on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def _left_behind(run: int, folder: Path) -> list[str]:
    """Processes that know of the run's folder, and namespaces and cables that bear its number."""
    left = [entry for entry in _namespaces() if f"-{run}-" in entry]
    left += [name for name in os.listdir("/sys/class/net") if name.startswith(f"rn{run:x}-")]
    for process in psutil.process_iter():
        try:
            known = [*process.cmdline(), process.environ().get("NEMESIS_FOLDER", "")]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(str(folder) in each for each in known):
            left.append(f"{process.pid} {' '.join(process.cmdline())}")
    return left


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's own, which are closed to the user that runs root's server."""
    place = Path(tempfile.mkdtemp(prefix="rota-"))
    place.chmod(0o711)
    yield place / "history"
    shutil.rmtree(place, ignore_errors=True)


@pytest.mark.proof
@pytest.mark.timeout(450)
def test_a_short_run_breaks_things_and_every_promise_is_kept(folder: Path) -> None:
    # How late a start may be is not for a test to say: the machine may be busy.
    run = _nemesis(
        folder, "--seconds", "12", "--calm", "8", "--seed", "97", "--rate", "300",
        "--max-lag", "120",
    )  # fmt: skip
    said, _ = run.communicate(timeout=400)
    assert run.returncode == 0, said
    injected = re.search(r"faults injected: (\d+)", said)
    assert injected, said
    assert int(injected[1]) >= 4, said
    report = check(folder)
    assert report.ok, report.text()
    history = History(folder)
    assert len(history.rows("job")) > 2000
    assert len({fault.kind for fault in history.faults()}) >= 3
    done = [operation for operation in history.operations() if operation.answer == "done"]
    assert len({operation.kind for operation in done}) >= 4, said
    # Not left to chance, for any run: what can't be seen with so much time to be late is left out.
    assert not report.unseen_of("deleted schedules leave nothing"), said
    assert "stopped" not in report.unseen_of("hung work is stopped"), said
    assert any(not life.last.readable for life in Facts(folder).lives.values()), said
    raised = re.findall(r"^  (?:[0-9X]{2}[0-9P]{3}) +(\d+)", said, re.MULTILINE)
    assert sum(map(int, raised)) > 0, said  # statements failed before their effect
    assert not _left_behind(run.pid, folder)


@pytest.mark.proof
def test_an_interrupted_run_leaves_nothing_behind(folder: Path) -> None:
    run = _nemesis(folder, "--seconds", "60", "--faults", "stop,hold,partition,kill", "--seed", "2")
    try:
        faults = folder / "faults.jsonl"
        _wait_for(lambda: faults.exists() and faults.stat().st_size > 0, run)
        assert _left_behind(run.pid, folder), "nothing was running: the test sees nothing"
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=120)
    finally:
        run.kill()
        run.wait()
        assert run.stdout is not None
        run.stdout.close()
    assert run.returncode != 0
    assert not _left_behind(run.pid, folder), said
    assert not (folder / "postgres").exists()


def _wait_for(ask: Callable[[], bool], run: subprocess.Popen[str], seconds: float = 100) -> None:
    end = time.monotonic() + seconds
    while not ask():
        assert run.poll() is None, run.communicate()[0]
        assert time.monotonic() < end, "no fault was injected"
        time.sleep(0.05)


async def test_a_crash_of_the_server_is_told(tmp_path: Path) -> None:
    log = tmp_path / "postgres.log"
    log.write_text("LOG:  started\nLOG:  client backend (PID 7) was term")
    told: asyncio.Queue[str] = asyncio.Queue()
    watching = asyncio.create_task(Server(tmp_path).watch_crashes(told.put_nowait))
    with log.open("a") as file:
        file.write("inated by signal 6: Aborted\nLOG:  terminating any other\n")
    assert await asyncio.wait_for(told.get(), 30) == "(PID 7) was terminated by signal 6"
    watching.cancel()
