"""Connections in production: poolers, passwords that rotate, a hook, and engines that can't work."""

from __future__ import annotations

import asyncio
import functools
import struct
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from proof.replicas import Replica
from proof.waiting import eventually
from rota import App, ConfigError, Settings, StoreUnavailable
from rota.lib.redaction import secrets_of
from rota.node import Node
from rota.store.database import Database
from rota.store.pooler import detect_mode
from tests.support import node_tasks
from tests.support.pgbouncer import NO_PGBOUNCER, pgbouncer

OBSERVED = ("1h", "0", "off", "read committed")


async def mode_of(url: str, **given: Any) -> str:
    database = Database(url, Settings(**given))
    await database.open()
    try:
        assert database.behind_pooler == (database._pooler == "transaction")
        assert await database.fetchval("now") is not None
        return database._pooler
    finally:
        await database.close()


# -- poolers


async def test_without_a_pooler_there_is_none(app: App, database_url: str):
    assert await mode_of(database_url, schema=app.settings.schema) == "none"


@NO_PGBOUNCER
@pytest.mark.parametrize(
    ("mode", "size", "more"),
    [("transaction", 10, ""), ("transaction", 2, "server_round_robin = 1"), ("transaction", 1, ""),
     ("session", 10, "")],
)  # fmt: skip
async def test_a_pooler_is_told_by_whether_connections_keep_their_backend(
    app: App, database_url: str, mode: str, size: int, more: str
):
    async with pgbouncer(database_url, mode, size=size, more=more) as url:
        assert await mode_of(url, schema=app.settings.schema) == mode


@NO_PGBOUNCER
async def test_a_transaction_pooler_is_told_though_others_give_the_old_backend_back(
    app: App, database_url: str
):
    """PgBouncer lends what was given back last: the probe gets its own again if others end just so."""
    async with pgbouncer(database_url, "transaction") as url:
        own = "select pg_backend_pid()"
        bystanders = [await asyncpg.connect(url, statement_cache_size=0) for _ in range(2)]

        class Probe(asyncpg.Connection):
            async def execute(self, query: str, *args: Any, timeout: float | None = None) -> str:
                if query.startswith("BEGIN"):
                    held = {}
                    for one in bystanders:
                        await one.execute("begin")
                        held[await one.fetchval(own)] = one
                    await held.pop(first).execute(
                        "commit"
                    )  # the probe's backend, and then the other
                    await held.popitem()[1].execute("commit")
                return await super().execute(query, *args, timeout=timeout)

            async def fetchval(self, query: str, *args: Any, **more: Any) -> Any:
                nonlocal first
                found = await super().fetchval(query, *args, **more)
                first = first or found
                return found

        first = 0
        connect = functools.partial(asyncpg.connect, url, connection_class=Probe)
        assert await detect_mode(connect) == ("transaction", False)
        for one in bystanders:
            await one.close()


@NO_PGBOUNCER
async def test_the_setting_decides_and_not_the_look(app: App, database_url: str):
    async with pgbouncer(database_url, "session") as url:
        given: dict[str, Any] = {"schema": app.settings.schema, "pooler": "transaction"}
        assert await mode_of(url, **given) == "transaction"
    with pytest.raises(ConfigError, match="pooler"):
        Settings.read({"ROTA_POOLER": "perhaps"})


@NO_PGBOUNCER
async def test_a_node_behind_a_session_pooler_listens_and_keeps_its_settings(
    make_app: Callable[..., App], database_url: str
):
    app = make_app(heartbeat=0.5, processes=1)
    disturb = "set search_path = pg_temp; set statement_timeout = '7s'; set shop.customer = 'Ada'"
    async with pgbouncer(database_url, "session", size=50) as url:
        settings = app.settings.replace(database_url=url, statement_timeout=3600)
        async with node_tasks.app.using(settings), Node(node_tasks.app).running() as node:
            assert node.worker_role is not None
            assert not node.worker_role.worker._store.database.behind_pooler
            for name in ("look_then_disturb", "look_then_disturb_in_child"):
                task = node_tasks.app.tasks[name]
                asked = [await task.submit(disturbance=disturb) for _ in range(6)]
                found = [await handle.result(60) for handle in asked]
                assert {tuple(each[1:5]) for each in found} == {OBSERVED}
            # Its line works: hints arrive.
            nodes = await node_tasks.app.nodes.list()
            assert [each.state for each in nodes] == ["live"]


# -- engines


class FakeEngine(asyncio.Protocol):
    """The log-in of a database that speaks PostgreSQL's protocol."""

    parameters: tuple[tuple[str, str], ...] = ()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if struct.unpack("!i", data[4:8])[0] == 80877103:  # asks for TLS
            self._transport.write(b"N")
            return
        answer = b"R" + struct.pack("!ii", 8, 0)
        for name, value in (*self.parameters, ("client_encoding", "UTF8")):
            text = f"{name}\0{value}\0".encode()
            answer += b"S" + struct.pack("!i", 4 + len(text)) + text
        answer += b"K" + struct.pack("!iii", 12, 1, 1) + b"Z" + struct.pack("!i", 5) + b"I"
        self._transport.write(answer)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("CockroachDB", (("server_version", "13.0.0"), ("crdb_version", "CockroachDB CCL v25.3"))),
        ("YugabyteDB", (("server_version", "15.2-YB-2.25.2.0-b0"),)),
        ("PostgreSQL 13.4", (("server_version", "13.4"),)),
    ],
)
async def test_an_engine_that_cannot_work_is_refused_by_name(
    name: str, parameters: tuple[tuple[str, str], ...]
):
    class Engine(FakeEngine):
        pass

    Engine.parameters = parameters
    server = await asyncio.get_running_loop().create_server(Engine, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        database = Database(f"postgresql://x@127.0.0.1:{port}/x", Settings())
        with pytest.raises(ConfigError, match=name) as refused:
            await database.open()
        assert "14 or newer" in str(refused.value)
    finally:
        server.close()


# -- passwords


@pytest.fixture
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Replica]:
    """A server that asks everybody but its superuser for a password."""
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    replica = Replica(folder, "guarded")
    await replica.make()
    rules = replica.data / "pg_hba.conf"
    rules.write_text(
        "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
    )
    connection = await replica.connect()
    await connection.execute("select pg_reload_conf()")
    await connection.execute("create role shop login superuser password 'first'")
    await connection.close()
    yield replica
    await replica.stop()


def url_of(server: Replica) -> str:
    return f"postgresql://shop@{server.host}/postgres"


async def rotate(server: Replica, password: str) -> None:
    """Change the password, and end the sessions that know the old one."""
    connection = await server.connect()
    await connection.execute(f"alter role shop password '{password}'")
    await connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'shop'"
    )
    await connection.close()


async def test_a_node_survives_a_password_that_rotates_in_a_file(guarded: Replica, tmp_path: Path):
    file = tmp_path / "password"
    file.write_text("first\n")
    settings = Settings(
        database_url=url_of(guarded), database_password_file=file, heartbeat=0.5, processes=1,
        missed_heartbeats=60,
    )  # fmt: skip
    async with node_tasks.app.using(settings) as app:
        await app.migrate()
        async with Node(app).running():
            child = app.tasks["look_then_disturb_in_child"]
            assert await (await child.submit(disturbance="select 1")).result(60)
            await rotate(guarded, "second")
            # The file is behind the server for a while: submits fail as if it were away.
            with pytest.raises(StoreUnavailable, match="is read again"):
                await app.tasks["remember"].submit("refused")
            file.write_text("second\n")

            async def submitted() -> Any:
                try:
                    return await app.tasks["remember"].submit("again")
                except StoreUnavailable:
                    return None

            assert await (await eventually(submitted)).result(60) == "again"
            assert await (await child.submit(disturbance="select 1")).result(60)


@pytest.mark.parametrize("kind", ["function", "coroutine", "text"])
async def test_the_password_may_be_a_text_or_a_function(guarded: Replica, kind: str):
    asked: list[int] = []

    def read() -> str:
        asked.append(1)
        return "first"

    async def fetch() -> str:
        return read()

    password: Any = {"function": read, "coroutine": fetch, "text": "first"}[kind]
    app = App(database_url=url_of(guarded), database_password=password)
    await app.migrate()
    await app.submit("greet", {})
    assert bool(asked) == (kind != "text")
    assert "first" not in repr(app.settings)
    await app.close()


async def test_a_wrong_password_is_named_for_what_it_is(guarded: Replica, tmp_path: Path):
    for given, error, words in (
        ({"database_password": "wrong"}, ConfigError, "password authentication failed"),
        ({"database_password": lambda: "wrong"}, StoreUnavailable, "is read again"),
        ({"database_password": lambda: 7}, ConfigError, "must return a str"),
        ({"database_password_file": tmp_path / "none"}, ConfigError, "doesn't exist"),
    ):
        app = App(database_url=url_of(guarded), **given)
        with pytest.raises(error, match=words):
            await app.submit("greet", {})
        await app.close()
    (tmp_path / "empty").touch()
    app = App(database_url=url_of(guarded), database_password_file=tmp_path / "empty")
    with pytest.raises(StoreUnavailable, match="is empty"):
        await app.submit("greet", {})
    with pytest.raises(ConfigError, match="not both"):
        Settings(database_password="a", database_password_file=tmp_path)


def test_passwords_are_kept_out_of_logs():
    settings = Settings(
        database_password="s3cretpassword1", read_url="postgresql://a:0therpassword@b/c"
    )
    assert secrets_of(settings) == {"s3cretpassword1", "0therpassword"}
    assert "s3cret" not in repr(settings)
    assert "0ther" not in repr(settings)


# -- the hook


async def test_a_hook_makes_every_connection(make_app: Callable[..., App], database_url: str):
    made: list[dict[str, Any]] = []

    async def connect(**arguments: Any) -> Any:
        made.append(arguments)
        return await asyncpg.connect(**{**arguments, "dsn": database_url})

    app = make_app()
    # Where it leads is the hook's affair.
    settings = app.settings.replace(
        database_url="postgresql://project:region:instance/shop", connect=connect, heartbeat=0.5
    )
    async with node_tasks.app.using(settings), Node(node_tasks.app).running():
        assert (
            await (await node_tasks.app.tasks["remember"].submit("hooked")).result(60) == "hooked"
        )
        child = await node_tasks.app.tasks["look_then_disturb_in_child"].submit(disturbance="x")
        with pytest.raises(Exception, match="make this exactly_once task a coroutine"):
            await child.result(60)
    assert made
    with pytest.raises(ConfigError, match="only be given in code"):
        Settings.read({"ROTA_CONNECT": "shop:connect"})
