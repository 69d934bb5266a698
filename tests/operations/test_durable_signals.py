"""Signals to durable functions at the worst moments: none is lost, and none is taken twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proof.waiting import eventually
from rota import App
from rota.durable.branches import Interrupted
from rota.durable.context import DurableContext
from rota.errors import InvalidArguments
from rota.node import Node
from rota.testing import Sandbox


def waiter_of(app: App) -> Any:
    @app.durable
    async def order(ctx: DurableContext, key: str = "k") -> Any:
        return await ctx.wait("go", key=key)

    return order


@pytest.mark.parametrize("level", ["repeatable_read", "serializable"])
async def test_a_transaction_with_an_old_snapshot_reaches_a_function_that_waits_since_then(
    sandbox: Sandbox, level: Any
) -> None:
    app = sandbox.app
    order = waiter_of(app)
    database = (await app.store()).database
    async with database.connection() as connection:
        async with connection.transaction(isolation=level):
            await connection.fetch("select 1")  # here it looks at the world
            run = await order.start()
            await sandbox.run_due()
            assert (await app.runs.history(run.id))[0].state == "waiting"
            await app.send("go", key="k", payload=1, connection=connection)
            await app.send("go", key="k", payload=2, connection=connection)
        undone = connection.transaction(isolation=level)
        await undone.start()
        await app.send("go", key="k", payload=3, connection=connection)
        await undone.rollback()
    await sandbox.run_due()
    assert await run.result(1) == 1
    second = await order.start()
    await sandbox.run_due()
    assert await second.result(1) == 2
    third = await order.start()
    await sandbox.run_due()
    assert (await third.status()).state == "running"
    async with database.connection() as connection:
        pending = f"select count(*) from {app.settings.schema}.pending_step"
        assert await connection.fetchval(pending) == 0


@pytest.mark.parametrize("end", ["commit", "rollback"])
async def test_a_signal_that_is_being_sent_while_its_function_is_suspended_wakes_it_once(
    app: App, end: str
) -> None:
    """The sender has found the wait, and holds it open while the function asks to be suspended."""
    began: list[int] = []

    @app.durable
    async def slow(ctx: DurableContext) -> Any:
        began.append(1)

        async def send() -> None:
            # By itself it is offered at once; with other things in a transaction only after its commit.
            plain = f"select {app.settings.schema}.send_signal('go', $1, '1')"
            await connection.execute(plain, end)
            sent.set()

        return await ctx.gather(ctx.wait("go", key=end), ctx.options(name="send").step(send))

    sent = asyncio.Event()
    async with app:
        database = (await app.store()).database
        async with Node(app).running(), database.connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            run = await slow.start()
            async with asyncio.timeout(30):
                await sent.wait()
            async with database.connection() as other:
                blocked = (
                    "select count(*) from pg_locks where not granted and locktype <> 'relation'"
                )

                async def suspends() -> bool:
                    return bool(await other.fetchval(blocked))

                await eventually(suspends, what="the suspension waits for the sender")
            await (transaction.commit() if end == "commit" else transaction.rollback())
            if end == "rollback":
                await app.send("go", key=end, payload=2)
            assert await run.result(30) == [1 if end == "commit" else 2, None]
        assert [each.taken_at is not None for each in await app.signals.list(key=end)] == [True]
    assert len(began) <= 2


async def test_a_function_may_begin_anew_more_often_than_a_small_number_counts(
    sandbox: Sandbox,
) -> None:
    app = sandbox.app

    @app.durable
    async def lap(ctx: DurableContext, laps: int) -> int:
        await ctx.sleep(60)
        if laps:
            await ctx.restart(laps=laps - 1)
        return laps

    run = await lap.start(2)
    await sandbox.run_due()
    async with (await app.store()).database.connection() as connection:
        await connection.execute(f"update {app.settings.schema}.run set round = 32767")
    for _ in range(3):
        await sandbox.advance(seconds=61)
        await sandbox.run_due()
    assert await run.result(1) == 0
    assert (await run.status()).round == 32769


@pytest.mark.parametrize("key", ["", "k" * 256, "a\0b", 17])
async def test_a_key_that_nobody_can_send_is_refused_by_the_wait(
    sandbox: Sandbox, key: Any
) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> str:
        try:
            await ctx.wait("go", key=key)
        except InvalidArguments as error:
            return str(error)
        return "waited"

    run = await order.start()
    await sandbox.run_due()
    assert "1 to 255 characters" in await run.result(1)


async def test_a_status_that_is_too_large_is_refused(sandbox: Sandbox) -> None:
    @sandbox.app.durable
    async def order(ctx: DurableContext) -> str:
        try:
            await ctx.set_status("x" * 2_000_000)
        except InvalidArguments as error:
            return str(error)
        return "set"

    run = await order.start()
    await sandbox.run_due()
    assert "max_result_bytes" in await run.result(1)


async def test_a_context_that_is_kept_does_nothing_after_its_function(sandbox: Sandbox) -> None:
    kept: list[DurableContext] = []
    ran: list[str] = []

    @sandbox.app.durable
    async def order(ctx: DurableContext) -> None:
        kept.append(ctx)

    run = await order.start()
    await sandbox.run_due()
    await run.result(1)
    with pytest.raises(Interrupted, match="has ended"):
        await kept[0].step(ran.append, "late")
    assert ran == []


async def test_a_resume_waits_for_the_job_before_it_locks_the_run_as_a_sender_does(
    sandbox: Sandbox,
) -> None:
    """The other way around the two could wait for each other."""
    app = sandbox.app
    run = await waiter_of(app).start()
    await sandbox.run_due()
    await run.pause()
    database, schema = (await app.store()).database, app.settings.schema
    async with database.connection() as sender, database.connection() as other:
        async with sender.transaction():
            await sender.fetch(f"select from {schema}.future for update")
            me = await sender.fetchval("select pg_backend_pid()")
            resumed = asyncio.create_task(run.resume())

            async def waits() -> bool:
                return bool(
                    await other.fetchval(
                        "select count(*) from pg_stat_activity where $1 = any(pg_blocking_pids(pid))",
                        me,
                    )
                )

            await eventually(waits, what="the resume waits for the sender")
            await sender.fetch(f"select from {schema}.run for update nowait")
        await resumed
    await app.send("go", key="k", payload=1)
    await sandbox.run_due()
    assert await run.result(1) == 1


async def test_a_signal_in_a_callers_transaction_locks_nothing_that_others_need(
    sandbox: Sandbox,
) -> None:
    """Two senders in opposite order, each in a transaction of its own, beside whoever ends a run."""
    app = sandbox.app
    order = waiter_of(app)
    run = await order.start()
    await sandbox.run_due()
    database = (await app.store()).database
    locked = f"select from {app.settings.schema}.run where id = $1 for update nowait"
    async with (
        database.connection() as one,
        database.connection() as two,
        database.connection() as three,
        one.transaction(),
        two.transaction(),
    ):
        await app.send("go", key="k", payload=1, connection=one)
        await app.send("go", key="other", payload=2, connection=two)
        await app.send("go", key="other", payload=3, connection=one)
        await app.send("go", key="k", payload=4, connection=two)
        async with three.transaction():
            await three.fetch(locked, run.id)
    await sandbox.run_due()
    assert await run.result(1) in (1, 4)
    assert len([signal for signal in await app.signals.list() if signal.taken_at is None]) == 3


async def test_a_signal_that_two_transactions_send_once_is_sent_once(sandbox: Sandbox) -> None:
    app = sandbox.app
    database = (await app.store()).database
    async with database.connection() as one, database.connection() as two:
        first, second = one.transaction(), two.transaction()
        await first.start()
        await second.start()
        sent = await app.send("go", key="k", once="request-9", connection=one)
        again = asyncio.create_task(app.send("go", key="k", once="request-9", connection=two))
        await first.commit()
        answer = await again
        await second.commit()
    assert (answer.existed, answer.id) == (True, sent.id)
    assert len(await app.signals.list()) == 1
