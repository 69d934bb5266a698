"""Durable functions in encrypted namespaces: what they store, and a new key for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota import App, Retry
from rota.durable.context import DurableContext
from rota.errors import CallFailed, StepFailed, WaitTimedOut
from rota.store.database import Database
from rota.testing import Sandbox
from tests.support.encrypted import NEW, OLD, SECRET, encrypt, encrypted, stored

TABLES = (
    "run", "step", "checkpoint", "run_signal", "past", "dead", "present", "future", "event",
)  # fmt: skip


@pytest.fixture
async def sandbox(database_url: str) -> AsyncIterator[Sandbox]:
    async with encrypted(database_url) as sandbox:
        yield sandbox


def order_of(app: App) -> Any:
    @app.task(retry=Retry(max_attempts=1))
    async def echo(text: str) -> str:
        return text

    @app.task(retry=Retry(max_attempts=1))
    async def refuse(text: str) -> str:
        raise ValueError(text)

    @app.durable
    async def child(ctx: DurableContext, text: str) -> str:
        return await ctx.step(refuse if text == "bad" + SECRET else echo, text)

    @app.durable
    async def order(ctx: DurableContext, lap: int = 1) -> list[Any]:
        if lap == 1:
            await ctx.restart(lap=2)
        results: list[Any] = [await ctx.step(echo, SECRET), await ctx.call(echo, SECRET)]
        results.append(await ctx.call(child, SECRET))
        for work in (ctx.step(refuse, SECRET), ctx.call(refuse, SECRET)):
            try:
                await work
            except (StepFailed, CallFailed) as error:
                results.append(error.failure.message)
        try:
            await ctx.call(child, "bad" + SECRET)
        except CallFailed as error:
            results.append(error.failure.type)
        try:
            await ctx.wait("never", timeout=5)
        except WaitTimedOut:
            results.append("late")
        await ctx.set_status({"secret": SECRET})
        results.append(await ctx.wait("first"))
        return [*results, await ctx.wait("second")]

    return order


async def test_everything_is_encrypted_and_can_be_read_under_a_new_key_alone(
    sandbox: Sandbox,
) -> None:
    app = sandbox.app
    order = order_of(app)
    run = await order.start()
    await sandbox.run_due()
    await sandbox.advance(seconds=6)
    await run.send("first", SECRET)
    await run.send("second", SECRET)
    await sandbox.run_due()
    waiting = await order.start()
    await sandbox.run_due()
    await sandbox.advance(seconds=6)
    await sandbox.run_due()
    await app.send("lonely", key="x", payload=SECRET)
    expected = [SECRET] * 5 + ["StepFailed", "late", SECRET, SECRET]
    assert await run.result(1) == expected
    text = await stored(app, TABLES)
    assert SECRET not in text
    assert "1.old." in text
    assert SECRET in str([each.error for each in await app.runs.history(run.id)])
    for keys in (f"{NEW},{OLD}", NEW):
        async with app.using(app.settings.replace(encryption_keys=keys)):
            await encrypt(app)
            assert (await app.rota.encryption.rotate()).left == 0
            assert {each.key for each in await app.rota.encryption.count()} == {"new"}
            assert "1.old." not in await stored(app, TABLES)
            history = await app.runs.history(run.id)
            assert [each.result for each in history].count(SECRET) == 5
            assert SECRET in str([each.error for each in history])
            assert (await run.status()).status == {"secret": SECRET}
            assert {each.payload for each in await app.signals.list()} == {SECRET}
            await waiting.send("first" if OLD in keys else "second", SECRET)
            database = Database(app.settings.database_url or "", app.settings, hot=True)
            await database.open()
            await Sandbox(app, database, sandbox.now()).run_due()
            await database.close()
            status = await waiting.status()
            assert (status.problem, status.state) == (
                None,
                "running" if OLD in keys else "succeeded",
            )
            if OLD not in keys:
                assert await waiting.result(1) == expected
    assert SECRET not in await stored(app, TABLES)
