"""Effects that happen once for all attempts, and handlers whose writes commit with their success."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from rota import Context, OnceUnknown, Retry, SyncContext
from rota.runtime.attempts import to_work


@pytest.fixture
def app(sandbox):
    return sandbox.app


# -- once


async def test_a_once_effect_happens_once_for_all_attempts(sandbox, app):
    charged = []

    @app.task(retry=Retry(base=0, jitter=0))
    async def pay(ctx: Context) -> str:
        receipt = await ctx.once("charge:42", lambda: charged.append(ctx.attempt) or "receipt")
        if ctx.attempt < 3:
            raise OSError
        return receipt

    @app.task(retry=Retry(base=0, jitter=0))
    def pay_plainly(ctx: SyncContext) -> str:
        receipt = ctx.once("charge:43", lambda: charged.append(ctx.attempt) or "receipt")
        if ctx.attempt < 3:
            raise OSError
        return receipt

    for task in (pay, pay_plainly):
        await task.submit()
        [job] = await sandbox.run_due()
        assert (job.state, job.attempt, job.result) == ("succeeded", 3, "receipt")
    assert charged == [1, 1]


async def test_a_once_effect_that_raised_may_be_tried_again(sandbox, app):
    tried = []

    async def charge() -> str:
        tried.append(1)
        if len(tried) == 1:
            raise OSError("refused")
        return "receipt"

    @app.task(retry=Retry(base=0, jitter=0))
    async def pay(ctx: Context) -> str:
        return await ctx.once("charge:42", charge)

    await pay.submit()
    [job] = await sandbox.run_due()
    assert (job.result, len(tried)) == ("receipt", 2)


class _NoJson:
    """A value such as a payment library's receipt object."""


@pytest.mark.parametrize("kind", ["coroutine", "plain function"])
@pytest.mark.parametrize("value", [_NoJson(), "\ud800"])
async def test_a_once_effect_whose_value_is_no_json_is_never_repeated(sandbox, app, kind, value):
    charged = []

    async def pay(ctx: Context) -> None:
        await ctx.once("charge:42", lambda: charged.append(1) or value)

    def pay_plainly(ctx: SyncContext) -> None:
        ctx.once("charge:42", lambda: charged.append(1) or value)

    handler = pay if kind == "coroutine" else pay_plainly
    task = app.task(name="pay", retry=Retry(base=0, jitter=0))(handler)
    for _ in range(2):  # a second job with the same key isn't given another chance
        await task.submit()
        [job] = await sandbox.run_due()
        assert (job.state, job.attempt) == ("failed", 1)
        assert job.error.type == "rota.errors.OnceNotKept"
        assert "Return JSON" in job.error.message
    assert charged == [1]


async def test_an_attempt_after_one_that_died_inside_once_is_told_so_on_the_same_node(app, node):
    @app.task
    async def pay(ctx: Context) -> None: ...

    await pay.submit()
    row = await node.claim_one(tasks=["pay"])
    begun = await node.effects.begin(to_work(row), "charge:42", False)
    assert not begun.done  # and then its child process dies, and never says how it ended
    assert await node.retry_at_once(row)
    row = await node.claim_one(tasks=["pay"])
    with pytest.raises(OnceUnknown):
        await node.effects.begin(to_work(row), "charge:42", False)


async def test_a_once_effect_that_two_calls_of_an_attempt_ask_for_happens_once(sandbox, app):
    charged = []

    async def charge() -> int:
        charged.append(1)
        await asyncio.sleep(0)
        return len(charged)

    @app.task
    async def pay(ctx: Context) -> list[object]:
        return [
            one if isinstance(one, int) else type(one).__name__
            for one in await asyncio.gather(
                *(ctx.once("charge:42", charge) for _ in range(3)), return_exceptions=True
            )
        ]

    await pay.submit()
    [job] = await sandbox.run_due()
    assert job.result == [1, "InvalidArguments", "InvalidArguments"]
    assert charged == [1]


async def test_a_once_effect_that_its_handler_gave_up_is_unknown_to_the_same_attempt(sandbox, app):
    charged = []

    async def charge() -> None:
        charged.append(1)
        await asyncio.Event().wait()

    @app.task
    async def pay(ctx: Context) -> str:
        first = asyncio.ensure_future(ctx.once("charge:42", charge))
        while not charged:
            await asyncio.sleep(0)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        try:
            await ctx.once("charge:42", lambda: charged.append(2))
        except OnceUnknown:
            return "unknown"
        return "repeated"

    await pay.submit()
    [job] = await sandbox.run_due()
    assert (job.result, charged) == ("unknown", [1])


@pytest.mark.parametrize("answer", ["refuse", "run"])
async def test_a_once_effect_that_an_attempt_died_in_is_not_repeated_unless_allowed(
    sandbox, app, node, answer
):
    ran = []

    class Died(BaseException):
        """What a kill looks like from inside."""

    @app.task
    async def pay(ctx: Context) -> None:
        await ctx.once("charge:42", lambda: ran.append(1), on_unknown=answer)

    def die() -> None:
        raise Died

    await pay.submit()
    row = await node.claim_one(tasks=["pay"])
    with pytest.raises(Died):
        await node.once(row, "charge:42", die)
    assert await node.retry_at_once(row)
    [job] = await sandbox.run_due()
    if answer == "run":
        assert (job.state, ran) == ("succeeded", [1])
    else:
        assert (job.state, ran) == ("failed", [])
        assert job.error.type.endswith(OnceUnknown.__name__)


# -- exactly once


@pytest.mark.parametrize("kind", ["coroutine", "plain function"])
async def test_an_exactly_once_handlers_writes_and_its_success_are_one_commit(sandbox, app, kind):
    schema = app.settings.schema
    options = {"guarantee": "exactly_once", "retry": Retry(base=0, jitter=0)}

    if kind == "coroutine":

        @app.task(**options)
        async def refund(ctx: Context) -> str:
            await ctx.connection.execute(f"insert into {schema}.refunds values ($1)", ctx.attempt)
            return after_the_write(ctx)
    else:

        @app.task(**options)
        def refund(ctx: SyncContext) -> str:
            ctx.connection.execute(f"insert into {schema}.refunds values (%s)", [ctx.attempt])
            return after_the_write(ctx)

    def after_the_write(ctx) -> str:
        if ctx.attempt == 1:
            raise OSError
        return "refunded"

    async with (await app.store()).database.connection() as connection:
        await connection.execute(f"create table {schema}.refunds (attempt int)")
        await refund.submit()
        [job] = await sandbox.run_due()
        rows = await connection.fetch(f"select attempt from {schema}.refunds")
    assert (job.state, job.attempt, job.result) == ("succeeded", 2, "refunded")
    assert [row["attempt"] for row in rows] == [2]


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("kind", ["coroutine", "plain function"])
async def test_an_exactly_once_handler_that_ends_its_transaction_fails_for_good(
    sandbox, app, kind, end
):
    if kind == "coroutine":

        @app.task(guarantee="exactly_once")
        async def refund(ctx: Context) -> None:
            await ctx.connection.execute(end)
    else:

        @app.task(guarantee="exactly_once")
        def refund(ctx: SyncContext) -> None:
            ctx.connection.execute(end)

    await refund.submit()
    [job] = await sandbox.run_due()
    assert (job.state, job.attempt) == ("failed", 1)
    assert "committed or rolled back the transaction" in job.error.message
