"""Many runs that are started together."""

from __future__ import annotations

import asyncpg
import psycopg
import pytest

from rota import App, DurableContext
from rota.errors import ConfigError, InvalidArguments, NotFound, SubmitError
from rota.testing import Sandbox


def _pair(app: App):
    @app.task
    async def add(x: int, y: int) -> int:
        return x + y

    flow = app.workflow("adding")
    flow.returns(flow.step(add, flow.input("x"), flow.input("y")))

    @app.durable
    async def double(ctx: DurableContext, number: int, times: int = 2) -> int:
        return number * times

    return flow, double


async def test_each_of_many_runs_has_its_own_input(sandbox: Sandbox) -> None:
    flow, double = _pair(sandbox.app)
    runs = await flow.start_many({"x": x, "y": 1} for x in range(5))
    functions = await double.start_many([1, (2, 3), {"number": 4}])
    await sandbox.run_due()
    assert [await run.result(1) for run in runs] == [1, 2, 3, 4, 5]
    assert [await run.result(1) for run in functions] == [2, 6, 8]
    assert await flow.start_many([]) == []


async def test_many_runs_are_all_or_none(sandbox: Sandbox) -> None:
    flow, double = _pair(sandbox.app)
    with pytest.raises(InvalidArguments, match="'y'"):
        await flow.start_many([{"x": 1, "y": 1}, {"x": 1}])
    with pytest.raises(InvalidArguments, match="number"):
        await double.start_many([1, "not a number"])
    with pytest.raises(InvalidArguments, match="one key to many runs"):
        await flow.options(key="k").start_many([{"x": 1, "y": 1}])
    await flow.start(x=1, y=1)
    await sandbox.app.workflows.retire("adding")
    with pytest.raises((SubmitError, ConfigError), match="'adding' is retired"):
        await flow.start_many([{"x": 1, "y": 1}])
    assert len(await sandbox.app.runs.list()) == 1


async def test_many_runs_start_with_the_callers_transaction(sandbox: Sandbox) -> None:
    flow, double = _pair(sandbox.app)
    connection = await asyncpg.connect(await sandbox.app.database_url())
    try:
        transaction = connection.transaction()
        await transaction.start()
        await flow.options(connection=connection, priority=3).start_many([{"x": 1, "y": 1}])
        await transaction.rollback()
        async with connection.transaction():
            kept = await double.start_options(connection=connection).start_many([1, 2])
    finally:
        await connection.close()
    await sandbox.run_due()
    assert [await run.result(1) for run in kept] == [2, 4]
    assert len(await sandbox.app.runs.list()) == 2


def test_many_runs_from_synchronous_code(app: App) -> None:
    flow, double = _pair(app)
    first = flow.start_many_sync([{"x": 1, "y": 1}])
    with psycopg.connect(app.settings.database_url or "") as connection:
        lost = flow.options(connection=connection).start_many_sync([{"x": 1, "y": 1}])
        connection.rollback()
        kept = double.start_options(connection=connection).start_many_sync([1, 2])
    assert [run.status_sync().state for run in first + kept] == ["running"] * 3
    with pytest.raises(NotFound):
        lost[0].status_sync()


async def test_of_many_runs_with_keys_each_key_names_one(sandbox: Sandbox) -> None:
    flow, _ = _pair(sandbox.app)
    await flow.start(x=0, y=0)
    connection = await asyncpg.connect(await sandbox.app.database_url())
    try:
        rows = await connection.fetch(
            f"select * from {sandbox.app.settings.schema}.start_runs_of($1) order by place",
            '[{"workflow": "adding", "namespace": "default", "input": {"x": 1, "y": 1}, "key": "b"},'
            ' {"workflow": "adding", "namespace": "default", "input": {"x": 1, "y": 1}, "key": "a"},'
            ' {"workflow": "adding", "namespace": "default", "input": {"x": 1, "y": 1}, "key": "b"},'
            ' {"workflow": "adding", "namespace": "default", "input": {"x": 2, "y": 1}, "key": "a"}]',
        )
    finally:
        await connection.close()
    assert [(row["existed"], row["conflict"]) for row in rows] == [
        (False, False), (False, False), (True, False), (True, True),
    ]  # fmt: skip
    assert [row["run_id"] for row in rows[:2]] == [row["run_id"] for row in rows[2:]]
    assert len(await sandbox.app.runs.list()) == 3
