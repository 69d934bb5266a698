"""Endpoints that are stored, not declared: running nodes serve them as they come, change and go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from proof.waiting import eventually
from rota import App, ConfigError, NotFound
from rota.cli import cli
from rota.core.administration import RetryNumbers
from rota.errors import Conflict
from rota.node import Node
from rota.signing import verify_push
from rota.store.endpoints import EndpointStore
from tests.support.endpoints import pushing_app
from tests.support.receiver import Receiver


@pytest.fixture
async def app(make_app: Callable[..., App]) -> App:
    return await pushing_app(make_app)


async def test_a_stored_endpoint_is_served_by_running_nodes_as_it_comes_changes_and_goes(
    make_app: Callable[..., App], app: App, receiver: Receiver
) -> None:
    client = make_app()
    async with Node(app).running():
        handle = await client.submit("hello", {"n": 1})  # nobody knows it yet
        new = await client.endpoints.add("hello", receiver.url, queue="default")
        assert (await handle.wait(60)).state == "succeeded"
        got = receiver.received[0]
        assert verify_push(new.secret, got.headers, got.body, time.time()) is not None
        (node,) = await app.nodes.list()
        explained = await client.jobs.explain(handle.id)
        assert explained.code == "succeeded"
        # Another place, another secret.
        other = "another secret of some length"
        shown = await client.endpoints.change("hello", url=f"{receiver.url}/2", secret=other)
        assert shown.url == f"{receiver.url}/2"

        async def is_followed() -> bool:
            await (await client.submit("hello")).wait(60)
            return receiver.received[-1].path == "/hook/2"

        await eventually(is_followed)
        got = receiver.received[-1]
        assert verify_push(other, got.headers, got.body, time.time()) is not None
        # Gone: its jobs stay where they are, and it is said why.
        await client.endpoints.remove("hello")
        await eventually(lambda: _knows(app, "hello", False))
        pushes = len(receiver.received)
        left = await client.submit("hello")
        explained = await client.jobs.explain(left.id)
        assert (explained.code, len(receiver.received)) == ("task_unknown", pushes)
        assert (await client.jobs.get(left.id)).state == "ready"
        # And back.
        await client.endpoints.add("hello", receiver.url)
        assert (await left.wait(60)).state == "succeeded"
        await eventually(lambda: _knows(app, "hello", True))
    assert node.id


async def _knows(app: App, task: str, known: bool) -> bool:
    schema = app.settings.schema
    async with (await app.store()).database.connection() as connection:
        tasks = await connection.fetchval(
            f"select tasks from {schema}.node where state = 'live' and 'worker' = any(roles)"
        )
    return (task in tasks) is known


async def test_a_stored_endpoint_says_how_its_jobs_are(app: App, receiver: Receiver) -> None:
    """Also to who submits in SQL, before any node has heard of it."""
    await app.endpoints.add(
        "hello", receiver.url, queue="mail", needs=["dmz"], priority=7, guarantee="at_most_once",
        retry=RetryNumbers(max_attempts=9),
    )  # fmt: skip
    async with (await app.store()).database.connection() as connection:
        id = await connection.fetchval(f"select {app.settings.schema}.submit('hello')")
    job = await app.jobs.get(id)
    assert (job.queue, job.needs, job.priority, job.guarantee, job.max_attempts) == (
        "mail", ("dmz",), 7, "at_most_once", 9,
    )  # fmt: skip
    await app.endpoints.change("hello", queue="post", needs=[], retry=RetryNumbers(max_attempts=2))
    job = await app.jobs.get((await app.submit("hello")).id)
    assert (job.queue, job.needs, job.max_attempts) == ("post", (), 2)


async def test_a_stored_endpoint_is_served_where_it_is_wanted(
    make_app: Callable[..., App], app: App, receiver: Receiver
) -> None:
    await app.endpoints.add("hello", receiver.url)
    async with Node(make_app(serve_endpoints=False)).running():
        handle = await app.submit("hello")
        explained = await app.jobs.explain(handle.id)
        assert explained.code == "task_unknown"
        elsewhere = make_app(namespace="other")
        async with Node(elsewhere).running():
            away = await elsewhere.submit("hello")
            assert (await elsewhere.jobs.explain(away.id)).code == "task_unknown"
        assert receiver.received == []
        async with Node(make_app(heartbeat=0.5, missed_heartbeats=20)).running():
            assert (await handle.wait(60)).state == "succeeded"


async def test_a_name_that_code_has_is_the_codes(app: App, receiver: Receiver) -> None:
    @app.task
    async def hello() -> str:
        return "from code"

    await app.endpoints.add("hello", receiver.url)
    async with Node(app).running():
        assert await (await hello.submit()).result(60) == "from code"
    assert receiver.received == []


async def test_another_namespace_has_its_own(make_app: Callable[..., App], app: App) -> None:
    other = make_app(namespace="other")
    await app.endpoints.add("hello", "https://example.com/a")
    await other.endpoints.add("hello", "https://example.com/b")
    with pytest.raises(Conflict, match="already"):
        await app.endpoints.add("hello", "https://example.com/a")
    (shown,) = await app.endpoints.list()
    assert shown.url == "https://example.com/a"
    assert not hasattr(shown, "secret")
    await other.endpoints.remove("hello")
    for question in (other.endpoints.get, other.endpoints.remove):
        with pytest.raises(NotFound):
            await question("hello")
    with pytest.raises(NotFound):
        await other.endpoints.change("hello", queue="slow")
    assert (await app.endpoints.get("hello")).guarantee == "at_least_once"
    with pytest.raises(ConfigError, match="exactly_once"):
        await app.endpoints.change("hello", guarantee="exactly_once")
    with pytest.raises(ConfigError, match="no field 'colour'"):
        await app.endpoints.change("hello", colour="x")


# -- the command line


async def test_the_command_line_adds_shows_changes_and_removes(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", app.settings.database_url or "")
    monkeypatch.setenv("ROTA_SCHEMA", app.settings.schema)

    async def rota(*arguments: str) -> Any:
        words = ["endpoints", *arguments, "--json"]
        ran = await asyncio.to_thread(CliRunner().invoke, cli, words)
        return msgspec.json.decode(ran.stdout) if ran.exit_code == 0 else ran.stderr

    new = await rota("add", "greet", "https://example.com/", "--max-attempts", "3", "--need", "dmz")
    assert new["endpoint"]["name"] == "greet"
    (shown,) = await rota("list")
    assert (shown["retry"]["max_attempts"], shown["needs"]) == (3, ["dmz"])
    assert "secret" not in shown
    file = tmp_path / "secret"
    file.write_text("a new secret of some length\n")
    changed = await rota("change", "greet", "--timeout", "5", "--secret-file", str(file))
    assert changed == {**shown, "timeout": 5.0, "updated_at": changed["updated_at"]}
    (row,) = await EndpointStore((await app.store()).database).list("default")
    assert row.secret == "a new secret of some length"
    assert await rota("show", "greet") == changed
    assert "exactly_once" in await rota("change", "greet", "--guarantee", "exactly_once")
    assert "give at least one option to change" in await rota("change", "greet")
    assert await rota("remove", "greet", "--yes") == {"removed": "greet"}
    assert "there is no endpoint" in await rota("remove", "greet", "--yes")
    changes = await app.rota.audit.list("default")
    told = [(each.action, each.subject) for each in reversed(changes)]
    assert [each for each in told if each[1] == "endpoint greet"] == [
        ("create", "endpoint greet"), ("change", "endpoint greet"), ("remove", "endpoint greet"),
    ]  # fmt: skip
