"""Pools of workers: their definition, the load they are given, and what autoscalers read."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from rota import ConfigError, NotFound
from rota.scheduler.depths import Depths
from rota.scheduler.pools import Pools
from rota.store.pools import PoolStore
from rota.store.run_stats import RunStatsStore
from rota.store.work import LaneClaim, Succeeded
from tests.support.fake_node import LANE, FakeNode


class FirstShard:
    shard = 0

    def held(self) -> list[Any]:
        return [self]


@pytest.fixture
def app(sandbox):
    return sandbox.app


@pytest.fixture
def greet(app):
    @app.task
    async def greet(name: str = "Ada") -> str:
        return f"hello {name}"

    return greet


@pytest.fixture
def node(hot, sandbox):
    return FakeNode(hot, sandbox.app.settings)


@pytest.fixture
def scheduler(hot) -> Pools:
    return Pools(hot, FirstShard())  # type: ignore[arg-type]


async def loads(
    hot, *queues: str, capabilities: tuple[str, ...] = ()
) -> dict[str, tuple[Any, ...]]:
    found = await PoolStore(hot).load("default", queues, capabilities, 60)
    return {load.queue: (load.runnable, load.running) for load in found}


async def fetchval(app, text: str) -> Any:
    connection = await asyncpg.connect(app.settings.database_url)
    try:
        return await connection.fetchval(text.format(app.settings.schema))
    finally:
        await connection.close()


async def test_a_pool_is_defined_changed_read_and_deleted_with_a_record(app):
    pool = await app.pools.put("gpu", max_slots=8, queues=["images"], capabilities=["gpu"])
    assert (pool.slots, pool.min_slots, pool.drain_target) == (0, 0, 60)
    pool = await app.pools.put("gpu", max_slots=16, min_slots=2)
    assert (pool.slots, pool.max_slots, pool.queues) == (2, 16, ())
    assert [one.name for one in await app.pools.list()] == ["gpu"]
    await app.pools.delete("gpu")
    with pytest.raises(NotFound):
        await app.pools.get("gpu")
    entries = await app.rota.audit.list(namespace="default")
    assert [(e.action, e.subject) for e in entries] == [
        ("delete", "pool gpu"), ("put", "pool gpu"), ("put", "pool gpu"),
    ]  # fmt: skip
    assert entries[1].before["max_slots"] == 8
    assert entries[1].after["max_slots"] == 16


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"max_slots": 0}, "max_slots"),
        ({"max_slots": 5, "min_slots": 6}, "min_slots"),
        ({"max_slots": True}, "max_slots"),
        ({"max_slots": 5, "slots_per_worker": 0}, "slots_per_worker"),
        ({"max_slots": 5, "drain_target": 0}, "drain_target"),
        ({"max_slots": 5, "drain_target": float("nan")}, "drain_target"),
        ({"max_slots": 5, "queues": "images"}, "queues"),
        ({"max_slots": 5, "queues": ["a/b"]}, None),
    ],
)
async def test_what_makes_no_pool_is_refused_by_field(app, given, field):
    with pytest.raises(ConfigError) as caught:
        await app.pools.put("p", **given)
    assert field is None or field in caught.value.fields


async def test_runnable_is_what_could_start_now(app, greet, node, hot, sandbox):
    await greet.submit_many(["x"] * 5)
    await greet.options(delay=3600).submit("later")
    await greet.options(queue="other").submit("there")
    await greet.options(needs=["gpu"]).submit("needy")
    await node.claim(LaneClaim(LANE, 2))
    assert await loads(hot) == {"default": (3, 2), "other": (1, 0)}
    assert await loads(hot, "other") == {"other": (1, 0)}
    assert await loads(hot, "default", capabilities=("gpu",)) == {"default": (4, 2)}


async def test_paused_queues_and_full_limits_need_no_slots(app, greet, node, hot):
    await greet.submit_many(["x"] * 5)
    await node.claim(LaneClaim(LANE, 2))
    await app.queues.set_limits("default", concurrency=3)
    assert await loads(hot) == {"default": (1, 2)}
    await app.queues.set_limits("default", concurrency=1)
    assert await loads(hot) == {"default": (0, 2)}
    await app.queues.set_limits("default", concurrency=None)
    await app.queues.pause("default")
    assert await loads(hot) == {"default": (0, 2)}


async def test_the_depth_stands_for_what_is_not_looked_at(app, greet, hot):
    await greet.submit_many(["x"] * 10_500)
    assert await loads(hot) == {"default": (10_000, 0)}
    await app.queues.set_max_depth("default", 1_000_000)
    assert await loads(hot) == {"default": (10_500, 0)}


async def test_what_ran_says_how_long_runs_take_and_how_many_come(app, greet, node, hot, sandbox):
    await greet.submit_many(["x"] * 30)
    for row in await node.claim(LaneClaim(LANE, 24)):
        done = Succeeded(row["id"], row["token"], 3.0, 0.0, None)
        await node.store.finish_succeeded(node.id, [done], 0.0)
    await RunStatsStore(hot).fold(1000)
    [load] = await PoolStore(hot).load("default", (), (), 60)
    assert load.runnable == 6
    assert 0.1 < load.arrivals <= 0.2  # 24 in two minutes and what there is of the third
    assert load.run_time == pytest.approx(3.0)


async def test_a_scheduler_decides_and_autoscalers_read_it(app, greet, scheduler, sandbox, hot):
    await app.pools.put("all", max_slots=1000, slots_per_worker=8, drain_target=10)
    assert await fetchval(app, "select {0}.pool_slots('all')") == 0
    await greet.submit_many(["x"] * 400)  # a second each, as nothing else is known
    assert await scheduler.tick() == 5
    for _ in range(4):
        await sandbox.advance(seconds=15)
        await scheduler.tick()
    pool = await app.pools.get("all")
    assert (pool.slots, pool.workers, pool.needed) == (40, 5, 40)
    assert pool.runnable == 400
    assert [one.queue for one in pool.loads] == ["default"]
    assert await fetchval(app, "select {0}.pool_slots('all')") == 40
    assert await fetchval(app, "select {0}.pool_workers('all', 'default')") == 5
    assert await fetchval(app, "select {0}.pool_slots('nowhere')") == 0
    assert await fetchval(
        app,
        "select provolatile from pg_proc where oid = '{0}.pool_slots(text, text)'::regprocedure",
    ) in (b"s", "s")


async def test_two_schedulers_at_once_decide_once(app, greet, hot, sandbox):
    await app.pools.put("all", max_slots=10)
    [row] = await PoolStore(hot).list("default")
    await greet.submit()
    from rota.operations.pools import decide_pool

    await sandbox.advance(seconds=20)
    await decide_pool(PoolStore(hot), row)
    first = await app.pools.get("all")
    await decide_pool(PoolStore(hot), row)  # by what was read before
    assert await app.pools.get("all") == first


async def test_a_lane_of_a_callers_transaction_counts_after_a_second(app, greet, hot):
    connection = await asyncpg.connect(app.settings.database_url)
    async with connection.transaction():
        await greet.options(queue="fresh", connection=connection).submit("x")
    await connection.close()
    await Depths(hot, FirstShard()).keep()  # type: ignore[arg-type]
    assert await loads(hot) == {"fresh": (1, 0)}
