"""Workflows in encrypted namespaces: what their runs and steps store, and who can read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota import App, Context
from rota.model import Retry
from rota.runtime.advancer import Advancer
from rota.store.database import Database
from rota.store.endpoints import EndpointStore
from rota.testing import Sandbox
from tests.support.encrypted import NEW, OLD, SECRET, encrypt, encrypted, stored
from tests.support.shop import ended

TABLES = ("run", "step", "past", "dead", "present", "future", "submit_key", "event")


@pytest.fixture
async def sandbox(database_url: str) -> AsyncIterator[Sandbox]:
    async with encrypted(database_url) as sandbox:
        yield sandbox


def tasks(app: App) -> tuple[Any, Any]:
    @app.task(retry=Retry(max_attempts=1))
    async def echo(text: str) -> str:
        return text

    @app.task(retry=Retry(max_attempts=1))
    async def refuse(text: str) -> str:
        raise ValueError(text)

    return echo, refuse


async def test_inputs_of_sub_workflows_and_results_by_hand_are_encrypted(sandbox: Sandbox) -> None:
    app = sandbox.app
    echo, refuse = tasks(app)
    inner = app.workflow("inner")
    inner.step(echo, inner.step(refuse), name="last")
    outer = app.workflow("outer")
    outer.step(echo, outer.step(inner, text=outer.step(echo, name="first")), name="end")
    run = await outer.options(key="once").start(text=SECRET)
    status = await ended(sandbox, run)
    assert status.state == "failed"
    assert status.error["cause"]["cause"]["message"] == SECRET
    [child] = await app.runs.list(workflow="inner")
    assert (await app.runs.step(child.id, "refuse")).error["message"] == SECRET
    await app.runs.skip(child.id, "refuse", result=SECRET)
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert await run.result(1) == SECRET
    assert (await app.runs.get(child.id)).input == {"text": SECRET}
    assert SECRET not in await stored(app, TABLES)


async def test_why_a_condition_can_not_be_judged_is_encrypted(sandbox: Sandbox) -> None:
    app = sandbox.app
    echo, _ = tasks(app)
    flow = app.workflow("judged")
    flow.step(echo)
    flow.step(echo, name="after", when="echo - 1 > 0")
    run = await flow.start(text=SECRET)
    assert (await ended(sandbox, run)).state == "failed"
    assert SECRET in (await app.runs.step(run.id, "after")).error["message"]
    assert SECRET not in await stored(app, TABLES)


async def test_what_an_endpoint_reports_of_a_step_is_to_be_encrypted(sandbox: Sandbox) -> None:
    """The step's own payload is that of the definition, and readable."""
    app = sandbox.app

    @app.task
    async def look(ctx: Context) -> list[Any]:
        store = EndpointStore((await app.store()).database)
        return list(await store.attempt_place(ctx.job.id, ctx.token) or ())

    flow = app.workflow("pushed")
    flow.step(look)
    run = await flow.start()
    await sandbox.run_due()
    assert await run.result(1) == ["default", True]


async def test_a_node_without_the_key_leaves_the_decision_to_others(sandbox: Sandbox) -> None:
    app = sandbox.app
    echo, _ = tasks(app)
    flow = app.workflow("keyless")
    flow.step(echo, when="input.text == 'swordfish'")
    run = await flow.start(text=SECRET)
    for settings in (
        app.settings.replace(encryption_keys=None),
        app.settings.replace(encryption_keys=None, namespace="elsewhere"),
    ):
        keyless = Database(app.settings.database_url or "", settings, hot=True)
        await keyless.open()
        await Advancer(keyless, interval=1.0).tick()
        await keyless.close()
        assert [step.state for step in await run.steps()] == ["waiting"]
    assert (await ended(sandbox, run)).state == "succeeded"


async def test_a_scheduler_of_another_namespace_decides_with_the_same_key(sandbox: Sandbox) -> None:
    app = sandbox.app
    echo, _ = tasks(app)
    inner = app.workflow("inner")
    inner.step(echo)
    outer = app.workflow("outer")
    outer.step(inner, text=outer.input("text"), when="input.text == 'swordfish'")
    run = await outer.start(text=SECRET)
    settings = app.settings.replace(namespace="elsewhere")
    other = Database(app.settings.database_url or "", settings, hot=True)
    await other.open()
    await Advancer(other, interval=1.0).tick()
    await other.close()
    assert [step.state for step in await run.steps()] == ["running"]
    assert SECRET not in await stored(app, TABLES)
    assert (await ended(sandbox, run)).state == "succeeded"


async def test_runs_are_encrypted_again_under_a_new_key(sandbox: Sandbox) -> None:
    app = sandbox.app
    echo, refuse = tasks(app)
    inner = app.workflow("inner")
    inner.step(refuse, inner.step(echo))
    outer = app.workflow("outer")
    outer.step(inner, text=outer.input("text"))
    run = await outer.options(key="once").start(text=SECRET)
    await sandbox.run_due()
    for keys in (f"{NEW},{OLD}", NEW):
        async with app.using(app.settings.replace(encryption_keys=keys)):
            await encrypt(app)
            operations = app.rota.encryption
            await operations.rotate()
            assert {each.key for each in await operations.count()} == {"new"}
            assert (await run.status()).error["cause"]["cause"]["message"] == SECRET
            assert (await outer.options(key="once").start(text=SECRET)).id == run.id
            await run.retry("inner")
            database = Database(app.settings.database_url or "", app.settings, hot=True)
            await database.open()
            assert (await ended(Sandbox(app, database, sandbox.now()), run)).state == "failed"
            await database.close()
    assert SECRET not in await stored(app, TABLES)
