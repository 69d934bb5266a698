"""Order by key where the jobs of a key lie in several sublanes: it is the order of the whole key."""

from __future__ import annotations

import asyncio

import pytest

from proof.waiting import eventually
from rota.store.limits import Ended, LimitStore
from tests.support.fake_node import FakeNode

BASE = "default/default"
ENDED = Ended(1, 0.1)


@pytest.fixture
def app(sandbox):
    return sandbox.app


@pytest.fixture
def claim(hot, node):
    limits = LimitStore(hot)

    async def claim(freed=None, base=BASE, tasks=("greet", "other"), who=node):
        rows = await limits.claim_shared(who.id, {base: 9}, 9, list(tasks), freed)
        return [row["id"] for row in rows], rows

    return claim


async def register(app, **limits):
    """As a node would that has these tasks, with a limit for `greet`."""
    async with (await app.store()).database.connection() as connection:
        await connection.execute(
            f"insert into {app.settings.schema}.task (namespace, name, queue, needs, priority,"
            " guarantee, max_attempts, concurrency) values"
            " ('default', 'greet', 'default', '{}', 0, 1, 5, $1),"
            " ('default', 'other', 'default', '{}', 0, 1, 5, null)",
            limits.get("concurrency"),
        )  # fmt: skip


async def run_all(claim, node, sandbox, count):
    """Run what can be claimed, one after the other; return the ids in the order of their starts."""
    ran, freed = [], None
    for _ in range(4 * count):
        ids, rows = await claim(freed)
        assert len(ids) <= 1, "two jobs of the key run at a time"
        freed = {}
        for row in rows:
            assert (await claim())[0] == [], "another job of the key has started beside it"
            ran.append(row["id"])
            await node.finish_succeeded(row)
            freed = {row["lane"]: ENDED}
        if len(ran) == count:
            return ran
        if not rows:
            await sandbox.advance(seconds=1.1)
    raise AssertionError(f"only {len(ran)} of {count} have run")


async def test_jobs_with_other_keys_beside_it_keep_their_order(greet, claim, node, sandbox):
    ids = []
    for number in range(6):
        mine = greet.options(
            order_key="account", concurrency_key=f"c{number % 2}", fairness_key=f"f{number % 3}"
        )
        ids.append((await mine.submit()).id)
    assert await run_all(claim, node, sandbox, 6) == ids


async def test_a_limited_task_and_another_keep_their_order(app, claim, node, sandbox):
    @app.task(order_key="account")
    async def greet(account: str) -> None: ...

    @app.task(order_key="account", order_failure="hold")
    async def other(account: str) -> None: ...

    await register(app, concurrency=5)
    ids = [(await task.submit("a")).id for task in (greet, other, other, greet, other)]
    assert await run_all(claim, node, sandbox, 5) == ids


async def test_a_retry_holds_those_in_other_sublanes(greet, claim, node, sandbox):
    first = await greet.options(order_key="k", concurrency_key="a").submit()
    await greet.options(order_key="k", concurrency_key="b").submit()
    [id], [row] = await claim()
    assert id == first.id
    await node.retry_later(row, 30)
    for _ in range(5):
        assert (await claim({row["lane"]: ENDED}))[0] == []
        await sandbox.advance(seconds=2)


async def test_a_retry_that_is_released_while_a_claim_looks_for_it_is_not_overtaken(
    app, greet, claim, node, sandbox, hot
):
    """Whoever looks into one table and then into the other may find it in neither."""
    first = await greet.options(order_key="k").submit()
    await greet.options(order_key="k").submit()
    [id], [row] = await claim()
    assert id == first.id
    await node.retry_later(row, 30)
    await sandbox.advance(seconds=31)
    async with hot.transaction("release") as connection:
        # The claim goes on to `future` when what was there has been moved.
        await connection.execute(f"lock {app.settings.schema}.future in access exclusive mode")
        claiming = asyncio.create_task(claim({row["lane"]: ENDED}))
        await eventually(lambda: waits_for(hot, connection))
        shards = list(range(128))
        await connection.fetch(hot.queries["release"], shards, [None] * len(shards), 10)
    assert (await claiming)[0] in ([], [first.id])


async def waits_for(hot, connection):
    """Whether somebody waits for what this connection has locked."""
    async with hot.connection() as other:
        return await other.fetchval(
            "select exists (select from pg_stat_activity where $1 = any(pg_blocking_pids(pid)))",
            connection.get_server_pid(),
        )


async def test_jobs_that_need_other_nodes_do_not_overlap(greet, claim, node, sandbox):
    first = await greet.options(order_key="k").submit()
    second = await greet.options(order_key="k", needs=["gpu"]).submit()
    [id], [row] = await claim()
    assert id == first.id
    assert (await claim(base=f"{BASE}+gpu"))[0] == []
    await node.finish_succeeded(row)
    await sandbox.advance(seconds=1.1)  # nobody told this lane
    assert (await claim(base=f"{BASE}+gpu"))[0] == [second.id]


async def test_claims_at_the_same_time_start_one_job_of_a_key(app, greet, claim, hot):
    for number in range(8):
        await greet.options(order_key="k", concurrency_key=f"c{number}").submit()
    nodes = [await FakeNode(hot, app.settings, f"n{n}").register() for n in range(6)]
    for _ in range(5):
        answers = await asyncio.gather(*(claim(who=each) for each in nodes))
        assert sum(len(ids) for ids, _ in answers) <= 1
    running = [job for job in await app.jobs.list() if job.state == "running"]
    assert len(running) == 1


async def test_a_job_of_a_task_that_this_worker_lacks_is_not_overtaken(app, greet, claim, node):
    @app.task
    async def other() -> None: ...

    await other.options(order_key="k").submit()
    await greet.options(order_key="k").submit()
    assert (await claim(tasks=["greet"]))[0] == []
    assert (await claim(tasks=["greet"]))[0] == []
    assert (await LimitStore(node.database).shared_pause([BASE])) > 0, "nobody asks without pause"


async def test_a_job_of_such_a_task_starts_where_it_is_known(app, greet, claim, sandbox):
    @app.task
    async def other() -> None: ...

    first = await other.options(order_key="k").submit()
    await greet.options(order_key="k").submit()
    assert (await claim(tasks=["greet"]))[0] == []
    await sandbox.advance(seconds=0.3)
    assert (await claim(tasks=["other"]))[0] == [first.id]


@pytest.mark.parametrize("then", ["continue", "hold", "drop"])
async def test_a_failed_job_and_those_behind_it_in_another_sublane(app, claim, node, then, sandbox):
    @app.task(order_key="account", order_failure=then)
    async def greet(account: str) -> None: ...

    @app.task(order_key="account")
    async def other(account: str) -> None: ...

    await greet.submit("x")
    behind = await other.submit("x")
    _, [row] = await claim()
    await node.finish_failed(row)
    ids, _ = await claim({row["lane"]: ENDED})
    if then == "continue":
        assert ids == [behind.id]
        return
    assert ids == []
    if then == "drop":
        assert (await app.jobs.get(behind.id)).state == "cancelled"
        later = await other.submit("x")
        assert (await claim())[0] == [later.id]
    else:
        await sandbox.advance(seconds=60)
        assert (await claim())[0] == []
        await app.jobs.discard(row["id"])
        await sandbox.advance(seconds=3)
        assert (await claim())[0] == [behind.id]


async def test_more_jobs_than_are_dropped_at_once_are_all_dropped(app, claim, node, sandbox):
    @app.task(order_key="account", order_failure="drop")
    async def greet(account: str, number: int) -> None: ...

    await greet.submit_many([("x", number) for number in range(10_020)])
    _, [row] = await claim()
    await node.finish_failed(row)
    freed = {row["lane"]: ENDED}
    for _ in range(3):
        assert (await claim(freed))[0] == [], "a job behind the one that failed was started"
        freed = None
        await sandbox.advance(seconds=0.1)
    assert await app.jobs.list(state="ready", limit=1) == []
    later = await greet.submit("x", 0)
    assert (await claim())[0] == [later.id]


async def test_explain_names_the_job_that_goes_before_it_from_another_sublane(
    app, greet, claim, node
):
    await node.register(tasks=["greet"])
    first = await greet.options(order_key="k", concurrency_key="a").submit()
    second = await greet.options(order_key="k", concurrency_key="b").submit()
    assert (await claim())[0] == [first.id]
    explained = await app.jobs.explain(second.id)
    assert explained.code == "waiting_for_order"
    assert str(first.id) in explained.sentence
