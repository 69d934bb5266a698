"""The policies `fifo` and `edf`: which job starts first, also of those that waited when it was set."""

from __future__ import annotations

import pytest

from rota.store.limits import LimitStore
from rota.store.work import LaneClaim, UpkeepStore
from tests.support.fake_node import FakeNode

BASE = "default/default"


@pytest.fixture
def app(sandbox):
    return sandbox.app


@pytest.fixture
def take(hot, node, app):
    """Claim, one by one, all that can be; return the ids in the order in which they came."""
    limits = LimitStore(hot)

    async def take(most=1000, who=node, tasks=("greet", "hurry")):
        ids = []
        while len(ids) < most:
            rows = await limits.claim_shared(who.id, {BASE: 1}, 1, list(tasks))
            ids += [row["id"] for row in rows]
            if not rows and await limits.shared_pause([BASE]) != 0:
                break
        return ids

    return take


async def deadline(app, task, seconds):
    async with (await app.store()).database.connection() as connection:
        await connection.execute(
            f"insert into {app.settings.schema}.task as t (namespace, name, queue, needs, priority,"
            " guarantee, max_attempts, deadline) values ('default', $1, 'default', '{}', 0, 1, 5, $2)"
            " on conflict (namespace, name) do update set deadline = $2",
            task, seconds,
        )  # fmt: skip


async def submitted(greet, sandbox, *priorities, **options):
    """Submit a job of each priority, one a second."""
    ids = []
    for priority in priorities:
        ids.append((await greet.options(priority=priority, **options).submit()).id)
        await sandbox.advance(seconds=1)
    return ids


async def test_fifo_starts_jobs_by_due_time_also_those_that_waited(app, greet, take, sandbox):
    before = await submitted(greet, sandbox, 0, 9, -3, 5)
    await app.queues.set_policy("default", "fifo")
    after = await submitted(greet, sandbox, 7, 0, 9)
    assert await take() == before + after


async def test_edf_starts_the_nearest_deadline(app, greet, take, sandbox):
    hurry = app.task(name="hurry")(_nothing)
    await deadline(app, "greet", 600)
    await deadline(app, "hurry", 10)
    slow = await submitted(greet, sandbox, 9, 9)
    fast = await submitted(hurry, sandbox, 0, 0)
    await app.queues.set_policy("default", "edf")
    assert await take() == fast + slow


async def test_a_policy_that_is_taken_back_orders_by_priority_again(
    app, greet, take, sandbox, hot, node
):
    await app.queues.set_policy("default", "fifo")
    ids = await submitted(greet, sandbox, 0, 9, 5)
    assert await take(1) == ids[:1]
    await app.queues.set_policy("default", "priority")
    assert await take() == []  # the claims move them back, and plain claims take them
    rows = await node.claim(LaneClaim(BASE, 10))
    assert [row["id"] for row in rows] == [ids[1], ids[2]]


async def test_a_policy_orders_jobs_with_keys_and_limits(app, greet, take, sandbox):
    await app.queues.set_limits("default", concurrency_per_key=2)
    keyed = await submitted(greet, sandbox, 0, 9, 5, concurrency_key="a")
    plain = await submitted(greet, sandbox, 3)
    await app.queues.set_policy("default", "fifo")
    assert await take() == [*keyed[:2], *plain]


async def test_a_retry_keeps_the_order_of_its_policy(app, greet, take, sandbox, node, hot):
    await app.queues.set_policy("default", "fifo")
    (first,) = await submitted(greet, sandbox, 9)
    rows = await LimitStore(hot).claim_shared(node.id, {BASE: 1}, 1, ["greet"])
    await node.retry_later(rows[0], 1.0)
    others = await submitted(greet, sandbox, 0, 0)
    await sandbox.advance(seconds=60)  # what is overdue is released without a scheduler
    upkeep = UpkeepStore(hot)
    shards = await upkeep.shards()
    await upkeep.release(list(range(shards)), [None] * shards, 100)
    assert await take() == [others[0], first, others[1]]


async def test_jobs_of_an_order_key_stay_in_their_order(app, greet, take, sandbox):
    await app.queues.set_policy("default", "edf")
    ids = await submitted(greet, sandbox, 0, 9, order_key="k")
    assert await take() == ids[:1]


async def test_two_claims_sort_one_backlog(app, greet, take, sandbox, hot):
    """Many more than one step moves, and each job once."""
    jobs = await greet.submit_many([() for _ in range(12)])
    await app.queues.set_policy("default", "fifo")
    other = FakeNode(hot, app.settings, "other")
    await other.register()
    taken = await take(5) + await take(100, other)
    assert sorted(taken) == sorted(job.id for job in jobs)


async def _nothing() -> None: ...
