"""Statistics of runs (store/run_stats.py): each run is counted once, whatever dies."""

from __future__ import annotations

import asyncio
import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from rota import App
from rota.config import Settings
from rota.core import histogram
from rota.lib import failpoints
from rota.scheduler.janitor import Janitor
from rota.scheduler.shards import AllShards
from rota.store.run_stats import HOUR, MINUTE, RunStatsStore
from rota.store.work import Ended, Succeeded, UpkeepStore, WorkStore

NODE = uuid4()


async def running(
    app: App, count: int, task: str = "charge", lane: str = "default/money"
) -> list[UUID]:
    """Jobs that this node runs, due 200 ms ago."""
    async with (await app.store()).database.connection() as connection:
        rows = await connection.fetch(
            f"insert into {app.settings.schema}.present (id, rank, token, due_at, claimed_at, "
            "node, state, attempt, namespace, lane, task, payload) select gen_random_uuid(), n, 7, "
            "now() - interval '200 ms', now(), $1, 4, 1, 'default', $2, $3, '{}' "
            "from generate_series(1, $4::int) as n "
            "returning id",
            NODE, lane, task, count,
        )  # fmt: skip
    return [row[0] for row in rows]


async def finish(app: App, ids: list[UUID], ran: float = 0.1, ago: float = 0.0) -> None:
    now = time.monotonic()
    work = WorkStore((await app.store()).database)
    jobs = [Succeeded(id, 7, ran, now - ago) for id in ids]
    assert await work.finish_succeeded(NODE, jobs, now) == len(ids)


async def stats(app: App) -> RunStatsStore:
    return RunStatsStore((await app.store()).database)


async def totals(app: App, span: int = MINUTE) -> dict[tuple[str, str], tuple[int, int]]:
    """Runs and failures by task and queue."""
    schema = app.settings.schema
    async with (await app.store()).database.connection() as connection:
        rows = await connection.fetch(
            f"select task, queue, sum(runs)::int, sum(failed)::int from {schema}.run_stats "
            "where span = $1 group by 1, 2", span,
        )  # fmt: skip
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


async def query(app: App, sql: str, *arguments: Any) -> list[Any]:
    async with (await app.store()).database.connection() as connection:
        return await connection.fetch(sql.replace("{}", app.settings.schema), *arguments)


async def test_runs_are_added_up_by_task_queue_and_namespace(app: App):
    await finish(app, await running(app, 3))
    await finish(app, await running(app, 2, "mail", "default/mail"))
    work = WorkStore((await app.store()).database)
    [failed] = await running(app, 1)
    error = '{"type": "ValueError", "message": "no"}'
    ended = Ended(failed, 7, 6, None, error, 0, 0.5, time.monotonic())
    assert await work.finish_ended(NODE, [ended], time.monotonic()) == 1
    store = await stats(app)
    while await store.fold(1):
        pass
    expected = {("charge", "money"): (4, 1), ("mail", "mail"): (2, 0), ("", "money"): (4, 1),
                ("", "mail"): (2, 0), ("", ""): (6, 1)}  # fmt: skip
    assert await totals(app) == expected
    assert await totals(app, HOUR) == expected
    [row] = await query(app, "select * from {}.run_stats where span = 3600 and task = 'charge'")
    assert sum(row["durations"]) == sum(row["lags"]) == 4
    assert row["seconds"] == pytest.approx(3 * 0.1 + 0.5, abs=0.01)


async def test_runs_that_end_together_are_counted_in_their_own_buckets(app: App):
    ids, now = await running(app, 5), time.monotonic()
    ran = [0.1, 0.1, 0.1, 2.0, 30.0]
    jobs = [Succeeded(id, 7, seconds, now) for id, seconds in zip(ids, ran, strict=True)]
    work = WorkStore((await app.store()).database)
    assert await work.finish_succeeded(NODE, jobs, now) == 5
    # As a node of the release before would leave it: without counts.
    await query(
        app, "insert into {}.tally (minute, namespace, queue, task, failed, seconds, durations, lags) "
        "select minute, namespace, queue, task, failed, 200.0, '{3,3}', '{0,1}' from {}.tally",
    )  # fmt: skip
    await (await stats(app)).fold(100)
    [row] = await query(app, "select * from {}.run_stats where span = 60 and task = 'charge'")
    expected = {histogram.bucket(seconds): ran.count(seconds) for seconds in ran} | {3: 2}
    found = {place: count for place, count in enumerate(row["durations"]) if count}
    assert (found, row["runs"], sum(row["lags"])) == (expected, 7, 7)
    assert row["seconds"] == pytest.approx(sum(ran) + 200.0, abs=0.01)


async def test_a_late_row_is_counted_in_the_minute_of_its_end(app: App):
    await finish(app, await running(app, 2), ago=3 * 3600)
    await (await stats(app)).fold(100)
    [row] = await query(
        app, "select at, runs from {}.run_stats where span = 60 and task = 'charge'"
    )
    age = datetime.now(UTC) - row["at"]
    assert timedelta(hours=2, minutes=59) < age < timedelta(hours=3, minutes=2)


async def test_what_was_never_run_or_was_discarded_is_no_run(app: App):
    waiting = await app.submit("charge", {})
    await app.jobs.cancel(waiting.id)
    [failed] = await running(app, 1)
    work = WorkStore((await app.store()).database)
    error = '{"type": "ValueError", "message": "no"}'
    ended = Ended(failed, 7, 6, None, error, 0, 0.5, time.monotonic())
    await work.finish_ended(NODE, [ended], time.monotonic())
    await app.jobs.discard(failed)
    await (await stats(app)).fold(100)
    assert (await totals(app))["", ""] == (1, 1)


async def test_rotas_own_tasks_are_not_part_of_the_whole(app: App):
    await finish(app, await running(app, 2, "rota.webhook", "default/webhooks"))
    await (await stats(app)).fold(100)
    assert await totals(app) == {("rota.webhook", "webhooks"): (2, 0)}


async def test_a_finish_that_is_rolled_back_is_not_counted(app: App, database_url: str):
    ids = await running(app, 2)
    work = WorkStore((await app.store()).database)
    connection = await asyncpg.connect(database_url)
    transaction = connection.transaction()
    await transaction.start()
    now = time.monotonic()
    done = [Succeeded(id, 7, 0.1, now) for id in ids]
    assert await work.finish_succeeded(NODE, done, now, connection) == 2
    await transaction.rollback()
    await connection.close()
    await (await stats(app)).fold(100)
    assert await totals(app) == {}


async def test_a_fold_that_dies_counts_nothing_twice_and_loses_nothing(app: App, database_url: str):
    """Its statement is cancelled in the middle of it, or its answer is lost; then it is repeated."""
    for _ in range(20):
        await finish(app, await running(app, 5))
    store = await stats(app)
    failpoints.arm("fold_tallies:after=error@1")
    try:
        with pytest.raises(Exception, match="failpoint"):
            await store.fold(7)
    finally:
        failpoints.disarm()
    schema = app.settings.schema
    connection = await asyncpg.connect(database_url)
    transaction = connection.transaction()
    await transaction.start()
    text = store.database.queries["fold_tallies"]
    assert await connection.fetchval(text, 5) == 5
    # While it is open, another takes others, and doesn't wait.
    assert await connection.fetchval(f"select count(*) from {schema}.tally") == 8
    await connection.close()  # killed
    while await store.fold(3):
        pass
    assert await totals(app) == {
        ("charge", "money"): (100, 0),
        ("", "money"): (100, 0),
        ("", ""): (100, 0),
    }


async def test_two_janitors_count_nothing_twice(app: App):
    for _ in range(30):
        await finish(app, await running(app, 2))
    store = await stats(app)

    async def fold() -> None:
        while await store.fold(2):
            pass

    await asyncio.gather(fold(), fold(), fold())
    assert (await totals(app))["", ""] == (60, 0)


async def test_what_is_counted_stays_when_days_of_the_history_are_dropped(app: App):
    await finish(app, await running(app, 4))
    await (await stats(app)).fold(100)
    before = await totals(app)
    await query(app, "truncate {}.past")
    await (await stats(app)).fold(100)
    assert await totals(app) == before


async def test_old_minutes_are_forgotten_and_their_hours_stay(app: App):
    await finish(app, await running(app, 1), ago=3 * 86_400)
    await finish(app, await running(app, 1))
    store = await stats(app)
    await store.fold(100)
    assert await store.forget(31, 1000) == 3  # a minute: of the task, its queue, and the namespace
    assert (await totals(app))["", ""] == (1, 0)
    assert (await totals(app, HOUR))["", ""] == (2, 0)
    await query(app, "update {}.run_stats set at = at - interval '31 days' where span = 3600")
    await store.forget(31, 1000)
    assert await totals(app, HOUR) == {}


async def test_another_namespace_sees_none_of_it(server: Any):
    app = server.app
    await finish(app, await running(app, 2))
    await (await stats(app)).fold(100)
    seen = {}
    for namespace in ("default", "acme"):
        database = (await server.context.tenant(namespace).store()).database
        async with database.connection() as connection:
            rows = await connection.fetch(f"select * from {app.settings.schema}.run_stats")
        seen[namespace] = len(rows)
    assert seen == {"default": 6, "acme": 0}


async def test_a_janitor_folds_samples_and_forgets(app: App):
    await finish(app, await running(app, 3))
    await app.submit("charge", {}, queue="money")
    janitor = Janitor(UpkeepStore((await app.store()).database), Settings(), AllShards(1))
    await janitor.tick()
    assert (await totals(app))["", ""] == (3, 0)
    rows = await query(app, "select queue, ready from {}.run_stats where ready > 0 and span = 60")
    assert [tuple(row) for row in rows] == [("money", 1)]


async def test_buckets_are_the_same_in_sql_and_in_python(app: App):
    values = [0.0, -1.0, 0.001, 0.001001, 0.0014, 0.5, 1.0, 59.9, 86_400.0, 1e9]
    # As PostgreSQL has them, in whole microseconds: also those next to each bound, and those on it.
    near = [int(round(bound * 1e6, 3)) + step for bound in histogram.BOUNDS for step in (0, 1)]
    values += [microseconds / 1e6 for microseconds in near]
    given = [timedelta(seconds=value) for value in values]
    rows = await query(app, "select {}.bucket(v) from unnest($1::interval[]) as v", given)
    assert [row[0] for row in rows] == [histogram.bucket(value) for value in values]


def test_quantiles_are_near():
    counts = [0] * (histogram.LAST + 1)
    values = [0.010 * 1.01**n for n in range(500)]
    for value in values:
        counts[histogram.bucket(value)] += 1
    for share in (0.5, 0.95, 0.99):
        exact = values[math.ceil(share * len(values)) - 1]
        assert histogram.quantile(counts, share) == pytest.approx(exact, rel=0.2)
    assert histogram.quantile([], 0.5) is None
    assert histogram.add([[1], [1, 2]]) == [2, 2]
