"""The table of docs/guide/arguments.md: each type of argument, by each way to submit, in each runner.

``ROTA_WRITE_TABLE=1`` writes it anew.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest

import rota.testing
from rota import App, JobHandle, chain
from rota.client import AsyncClient
from rota.node import Node
from rota.workflow import Workflow
from tests.support import argument_tasks
from tests.support.argument_tasks import RUNNERS, TYPES, check, durable_of, task_of
from tests.support.command_line import run
from tests.support.places import ROOT
from tests.support.server_fixtures import serving

PAGE = ROOT / "docs" / "guide" / "arguments.md"
MARK = re.compile(
    r"(?<=<!-- measured: arguments -->\n\n).*?(?=\n\n<!-- end of measured -->)", re.DOTALL
)
SECONDS = 60


class World:
    """What the ways to submit need besides the task and the value."""

    def __init__(self, app: App, elsewhere: App, client: AsyncClient) -> None:
        self.app = app
        self.elsewhere = elsewhere  # an app that has no code of the tasks
        self.client = client

    async def ended(self, task: Any, id: UUID) -> Any:
        job: JobHandle[Any] = JobHandle(self.app.jobs, id, reader=task.result_reader)
        return await job.result(SECONDS)


Way = Callable[[World, Any, Any], Awaitable[Any]]


async def submit(world: World, task: Any, value: Any) -> Any:
    return await (await task.submit(value)).result(SECONDS)


async def submit_sync(world: World, task: Any, value: Any) -> Any:
    return await asyncio.to_thread(lambda: task.submit_sync(given=value).result_sync(SECONDS))


async def submit_many(world: World, task: Any, value: Any) -> Any:
    [job] = await task.submit_many([{"given": value}])
    return await job.result(SECONDS)


async def in_transaction(world: World, task: Any, value: Any) -> Any:
    connection = await asyncpg.connect(world.app.settings.database_url)
    try:
        async with connection.transaction():
            job = await task.options(connection=connection).submit(value)
    finally:
        await connection.close()
    return await job.result(SECONDS)


async def in_sync_transaction(world: World, task: Any, value: Any) -> Any:
    def use() -> Any:
        with psycopg.connect(world.app.settings.database_url or "") as connection:
            return task.options(connection=connection).submit_sync(value)

    return await (await asyncio.to_thread(use)).result(SECONDS)


async def by_name(world: World, task: Any, value: Any) -> Any:
    return await (await world.app.submit(task.name, {"given": value})).result(SECONDS)


async def by_schedule(world: World, task: Any, value: Any) -> Any:
    await world.app.schedule(task.name, task, cron="0 0 29 2 *", payload={"given": value})
    return await world.ended(task, (await world.app.schedules.trigger(task.name)).job_id)


def as_json(task: Any, value: Any) -> str:
    return task.arguments.encode((value,), {}, argument_tasks.app.rota.limits).decode()


async def by_client(world: World, task: Any, value: Any) -> Any:
    accepted = await world.client.jobs.submit(task.name, {"given": value})
    return await world.ended(task, accepted.id)


async def by_rest(world: World, task: Any, value: Any) -> Any:
    response = await world.client._connection.http.post(
        "/v1/jobs", content=f'{{"task": "{task.name}", "payload": {as_json(task, value)}}}',
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    assert response.status_code == 201, response.text
    return await world.ended(task, UUID(response.json()["id"]))


async def by_command(world: World, task: Any, value: Any) -> Any:
    answer = await asyncio.to_thread(
        run, "jobs", "submit", task.name, as_json(task, value), "--json"
    )
    assert answer.code == 0, answer.err
    return await world.ended(task, UUID(answer.json["id"]))


async def by_sql(world: World, task: Any, value: Any) -> Any:
    settings = world.app.settings
    connection = await asyncpg.connect(settings.database_url)
    try:
        id = await connection.fetchval(
            f"select {settings.schema}.submit($1, $2)", task.name, as_json(task, value)
        )
    finally:
        await connection.close()
    return await world.ended(task, id)


async def by_step(world: World, task: Any, value: Any) -> Any:
    flow = Workflow(world.app.rota.runs, f"flow_{task.name}")
    flow.step(task, flow.step(task, value, name="first"))
    return task.result_reader.read(await (await flow.start()).result(SECONDS))


async def by_chain(world: World, task: Any, value: Any) -> Any:
    run_ = await chain(task.s(value), task.s()).start()
    return task.result_reader.read(await run_.result(SECONDS))


async def by_map(world: World, task: Any, value: Any) -> Any:
    run_ = await world.app.map(task, over=[value])
    await run_.result(SECONDS)
    [member] = await run_.members("members")
    return task.result_reader.read(member.result)


WAYS: dict[str, Way] = {
    "`submit`": submit, "`submit_sync`": submit_sync, "`submit_many`": submit_many,
    "`connection=` (asyncpg)": in_transaction, "`connection=` (psycopg)": in_sync_transaction,
    "`app.submit` by name": by_name, "schedule": by_schedule, "client": by_client, "REST": by_rest,
    "`rota jobs submit`": by_command, "SQL": by_sql, "workflow step": by_step, "`chain`": by_chain,
    "`app.map`": by_map,
}  # fmt: skip


@pytest.fixture
async def world(
    make_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    elsewhere = make_app(port=0, processes=1, heartbeat=0.5, concurrency=50)
    settings = elsewhere.settings
    monkeypatch.setenv("ROTA_DATABASE_URL", settings.database_url or "")
    monkeypatch.setenv("ROTA_SCHEMA", settings.schema)
    async with (
        argument_tasks.app.using(settings) as app,
        Node(app).running(),
        serving(elsewhere) as live,
        AsyncClient(live.url, await live.token("admin")) as client,
    ):
        yield World(app, elsewhere, client)


async def outcome(way: Way, world: World, number: int, runner: str) -> str | None:
    """What went wrong; None: nothing."""
    _, _, value = TYPES[number]
    try:
        check(await way(world, task_of(number, runner), value), value)
    except Exception as error:  # noqa: BLE001 - it is part of the table
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.proof
async def test_each_type_comes_through_each_way_to_submit_in_each_runner(world: World) -> None:
    problems: dict[tuple[int, str, str], str] = {}
    for words, way in WAYS.items():
        cells = [(number, runner) for number in range(len(TYPES)) for runner in RUNNERS]
        at_once = 1 if way in (by_command, by_schedule) else 20
        for first in range(0, len(cells), at_once):
            part = cells[first : first + at_once]
            found = await asyncio.gather(*(outcome(way, world, *cell) for cell in part))
            for (number, runner), problem in zip(part, found, strict=True):
                if problem is not None:
                    problems[number, words, runner] = problem
    table = written(problems)
    if os.environ.get("ROTA_WRITE_TABLE"):
        PAGE.write_text(MARK.sub(lambda _: table, PAGE.read_text()))
    told = [
        f"{TYPES[n][0]} by {way} in {runner}: {words}"
        for (n, way, runner), words in problems.items()
    ]
    assert not told, "\n".join(told[:20])
    assert MARK.search(PAGE.read_text())[0] == table, "run it with ROTA_WRITE_TABLE=1"  # type: ignore[index]


def written(problems: dict[tuple[int, str, str], str]) -> str:
    """One line for each type; a cell names the runners in which a value arrived as it was."""
    lines = ["| | " + " | ".join(WAYS) + " |", "| --- |" + " --- |" * len(WAYS)]
    for number, (words, _, _) in enumerate(TYPES):
        cells = []
        for way in WAYS:
            good = [runner for runner in RUNNERS if (number, way, runner) not in problems]
            cells.append("✓" if len(good) == len(RUNNERS) else ", ".join(good) or "no")
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


@pytest.mark.parametrize("kind", ["durable", "durable_sync"])
async def test_each_type_comes_through_a_durable_function_and_its_steps(
    world: World, kind: str
) -> None:
    async def one(number: int) -> None:
        value = TYPES[number][2]
        run_ = await durable_of(number, kind).start(value)
        check(await run_.result(SECONDS), value)

    await asyncio.gather(*(one(number) for number in range(len(TYPES))))


async def test_each_type_comes_through_a_sandbox(database_url: str) -> None:
    app = argument_tasks.app
    settings = app.settings.replace(database_url=database_url)
    async with app.using(settings), rota.testing.isolated(app) as sandbox:
        jobs = [
            (value, await task_of(number, runner).submit(value))
            for number, (_, _, value) in enumerate(TYPES)
            for runner in RUNNERS
        ]
        await sandbox.run_due(raise_errors=True)
        for value, job in jobs:
            check(await job.result(SECONDS), value)
