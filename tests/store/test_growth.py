"""What is stored is never read to its end: counts of queues, look-ups of schedules, lists of jobs, upkeep."""
# ruff: noqa: E501  lines of SQL

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from rota import App
from rota.store.database import Database
from rota.store.queue_counts import QueueCount, QueueCountStore
from rota.store.search import JobFilter
from rota.store.session import pinned_for_one_transaction
from rota.store.work import UpkeepStore
from tests.support.plans import nodes


@pytest.fixture
async def app(make_app: Callable[..., App]) -> App:
    app = make_app()

    @app.task
    async def greet(text: str = "") -> None: ...

    return app


async def store_future(app: App, queues: dict[str, int]) -> None:
    """Store delayed jobs of queues by SQL."""
    database = (await app.store()).database
    schema = database.schema
    async with database.connection() as c:
        for queue, count in queues.items():
            lane = f"default/{queue}"
            await c.execute(
                f"insert into {schema}.queue (namespace, name) values ('default', $1) on conflict do nothing",
                queue,
            )
            await c.execute(
                f"insert into {schema}.lane (lane, namespace, queue, needs) values ($1, 'default', $2, '{{}}') "
                "on conflict do nothing", lane, queue,
            )  # fmt: skip
            await c.execute(
                f"insert into {schema}.future (id, shard, due_at, namespace, lane, task, payload) select "
                "gen_random_uuid(), n % 128, now() + interval '1 day', 'default', $1, 'greet', '{}' "
                "from generate_series(1, $2::int) as n", lane, count,
            )  # fmt: skip
        await c.execute(f"analyze {schema}.future")


async def plan_of(app: App, query: str, *arguments: object) -> list[dict[str, Any]]:
    database = (await app.store()).database
    async with database.connection() as c:
        text = await c.fetchval(f"explain (format json) {database.queries[query]}", *arguments)
    return list(nodes(msgspec.json.decode(text)[0]["Plan"]))


@asynccontextmanager
async def having(database: Database, table: str, option: str, value: str) -> AsyncIterator[None]:
    """Give a table an option, which other tests must not find."""
    async with database.connection() as c:
        await c.execute(f"alter table {database.schema}.{table} set ({option} = {value})")
    try:
        yield
    finally:
        async with database.connection() as c:
            await c.execute(f"alter table {database.schema}.{table} reset ({option})")


async def test_few_jobs_are_counted_exactly(app: App) -> None:
    for queue in ("mail", "mail", "money"):
        await app.submit("greet", queue=queue)
    await app.submit("greet", queue="mail", delay=3600)
    counts = await QueueCountStore((await app.store()).database).read("default")
    assert set(counts) == {("default", "mail"), ("default", "money")}
    mail = counts["default", "mail"]
    assert (mail.ready, mail.scheduled, mail.exact) == (2, 1, True)
    assert mail.lag is not None
    only = await QueueCountStore((await app.store()).database).read("default", ["money"])
    assert [queue for _, queue in only] == ["money"]


async def test_many_jobs_of_a_lane_are_read_up_to_a_limit_and_marked_as_estimates(app: App) -> None:
    await app.tasks["greet"].submit_many([()] * 300)
    database = (await app.store()).database
    async with database.connection() as c:
        await c.execute(f"analyze {database.schema}.present")
    counts = await QueueCountStore(database).read("default", held=100)
    [count] = counts.values()
    assert not count.exact
    assert 270 <= count.ready <= 330


async def test_a_backlog_that_no_statistics_know_is_estimated_by_the_size_of_the_table(
    app: App,
) -> None:
    database = (await app.store()).database
    async with having(database, "present", "autovacuum_enabled", "off"):
        await app.submit("greet", queue="mail")
        await app.tasks["greet"].submit_many([()] * 3_000)
        counts = await QueueCountStore(database).read(held=100)
    assert counts["default", "mail"].ready == 1
    assert counts["default", "mail"].exact
    # What other tests have left in the statistics says how many jobs a page holds.
    assert 500 <= counts["default", "default"].ready <= 15_000
    assert not counts["default", "default"].exact


async def test_a_large_future_is_estimated_queue_by_queue(app: App) -> None:
    """Also where the planner would rather read it in several processes at once."""
    given = {"mail": 60_000, "money": 30_000, "slow": 10_000}
    await store_future(app, given)
    database = (await app.store()).database
    async with having(database, "future", "parallel_workers", "4"):
        async with database.connection() as c:
            for setting in (
                "parallel_setup_cost",
                "parallel_tuple_cost",
                "min_parallel_table_scan_size",
            ):
                await c.execute(f"set {setting} = 0")
        counts: dict[Any, QueueCount] = await QueueCountStore(database).read("default")
    for queue, number in given.items():
        count = counts["default", queue]
        assert not count.exact
        assert number * 0.8 <= count.scheduled <= number * 1.2, queue
    listed = {queue.name: queue for queue in await app.queues.list()}
    assert not listed["mail"].exact


async def test_the_metrics_read_a_backlog_no_further_than_its_limit(app: App) -> None:
    """Also where the planner knows the table as it was when nothing was in it."""
    database = (await app.store()).database
    async with database.connection() as c:
        await c.execute(f"vacuum analyze {database.schema}.present")
    await app.tasks["greet"].submit_many([()] * 2_000)
    plans: list[Any] = []
    async with database.transaction("estimate") as c:
        await c.execute(pinned_for_one_transaction())
        text = await c.fetchval(
            f"explain (format json) {database.queries['present_by_lane']}", "default", None, 100
        )
        plans = list(nodes(msgspec.json.decode(text)[0]["Plan"]))
    reads = [node for node in plans if node.get("Relation Name") == "present"]
    assert {node.get("Index Name") for node in reads} == {"present_claim"}
    assert all("lane" in node["Index Cond"] for node in reads)


async def store_schedules(app: App, count: int) -> None:
    """Copy a schedule."""
    await app.schedule("s0", "greet", cron="0 9 * * *")
    database = (await app.store()).database
    schema = database.schema
    async with database.connection() as c:
        await c.execute(
            f"insert into {schema}.schedule (id, namespace, name, shard, cursor, priority, guarantee, max_attempts, "
            f"lane, task, payload, spec, next_due) select gen_random_uuid(), namespace, 'many-' || n, shard, cursor, "
            f"priority, guarantee, max_attempts, lane, task, payload, spec, next_due from {schema}.schedule, "
            f"generate_series(1, {count}) as n where name = 's0'"
        )
        await c.execute(f"analyze {schema}.schedule")


async def test_one_schedule_is_a_look_up_by_its_key(app: App) -> None:
    await store_schedules(app, 5_000)
    for query, arguments in (
        ("get_schedule", ("default", "many-77")),
        ("latest_occurrences", ("default", ["many-77"], 1)),
    ):
        reads = [
            node for node in await plan_of(app, query, *arguments)
            if node.get("Relation Name") == "schedule" and "Scan" in node["Node Type"]
        ]  # fmt: skip
        assert [read.get("Index Name") for read in reads] == ["schedule_namespace_name_key"], query


async def test_ended_backfills_are_found_among_many_schedules_by_an_index(app: App) -> None:
    await store_schedules(app, 5_000)
    reads = {
        node.get("Index Name") for node in await plan_of(app, "close_backfills")
        if node.get("Relation Name") == "schedule" and "Scan" in node["Node Type"]
    }  # fmt: skip
    assert "schedule_backfill" in reads
    database = (await app.store()).database
    async with database.connection() as c:
        await c.execute(
            f"update {database.schema}.schedule set source = 'backfill', created_at = now() - interval '2 hours' "
            "where name = 'many-1'"
        )
    await UpkeepStore(database).drop_old_days(7, 30, 30)
    assert "many-1" not in {one.name for one in await app.schedules.list()}


async def test_lists_of_schedules_go_on_from_page_to_page(app: App) -> None:
    await store_schedules(app, 1_203)
    pages = [page async for page in app.schedules.pages()]
    assert [len(page) for page in pages] == [500, 500, 204]
    names = [one.name for page in pages for one in page]
    assert names == sorted(set(names))
    assert [one.name for one in await app.schedules.list()] == names
    found, until = await app.schedules.look(tag="nothing")
    assert (found, until) == ([], None)


async def test_jobs_are_looked_for_among_the_newest_and_the_look_says_where_to_go_on(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.store.jobs._LOOKED", 10)
    first = await app.submit("greet", tags=["rare"], delay=60)
    others = await app.tasks["greet"].submit_many([()] * 25)
    found, until = await app.jobs.look_whole(tag="rare")
    assert not found
    assert until == sorted((handle.id for handle in others), reverse=True)[9]
    assert [job.id for job in await app.jobs.list(tag="rare")] == [first.id]
    assert await app.jobs.list(tag="nothing") == []
    page = await app.jobs.look(JobFilter(tag="rare"))
    assert [job.id for job in page.jobs] == [first.id]
