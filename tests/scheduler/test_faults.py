"""Schedulers killed while they fire: every occurrence is there exactly once."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from proof.waiting import eventually
from rota import All, App
from tests.support import fault_tasks
from tests.support.cluster import Cluster, all_ended

FAST = {"heartbeat": 0.4, "missed_heartbeats": 3, "kill_grace": 1, "grace": 5}


@pytest.fixture
async def app(make_app: Callable[..., App]) -> AsyncIterator[App]:
    async with fault_tasks.app.using(make_app(**FAST).settings) as app:
        yield app


@pytest.fixture
def cluster(app: App, tmp_path: Path) -> Any:
    settings = app.settings
    cluster = Cluster(tmp_path, settings.database_url or "", settings.schema, **FAST)
    yield cluster
    cluster.stop()


@pytest.mark.proof
async def test_schedulers_killed_over_and_over_miss_nothing_and_double_nothing(
    app: App, cluster: Cluster
) -> None:
    seconds = float(os.environ.get("ROTA_TEST_KILL_SECONDS", "12"))
    store = await app.store()
    await app.schedule(
        "every-second", "at_least", every=1, payload={"number": 1}, overlap="allow", catch_up=All()
    )
    begin = await store.now()
    cluster.start("worker")
    schedulers = [cluster.start("scheduler"), cluster.start("scheduler")]
    end, killed = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        await asyncio.sleep(3)  # the rhythm of the kills
        victim = killed % 2
        schedulers[victim].kill()
        schedulers[victim] = cluster.start("scheduler")
        killed += 1
    finish = await store.now()

    async def accounted() -> bool:
        cursor = (await app.schedules.get("every-second")).next_due
        return cursor is not None and cursor > finish

    await eventually(accounted, what="the firing of everything that was due")
    audit = await app.schedules.audit("every-second", begin, finish)
    assert audit.is_clean, audit
    assert audit.expected >= int(seconds)
    rows = await app.schedules.occurrences("every-second", begin, finish, 10_000)
    assert len({row.job_id for row in rows}) == len(rows) == audit.expected
    assert killed >= 4

    async def all_ran() -> bool:
        rows = await app.schedules.occurrences("every-second", begin, finish, 10_000)
        return all(row.job_state == "succeeded" for row in rows)

    await eventually(all_ran, what="the end of all jobs")
    started = len(cluster.entries("at_least"))
    due = (finish - begin) // timedelta(seconds=1)
    assert started >= due


async def test_what_a_dead_scheduler_owned_is_served_before_anybody_has_taken_it_over(
    app: App, tmp_path: Path
) -> None:
    settings = app.settings
    lease = {**FAST, "shard_lease": 600}
    cluster = Cluster(tmp_path, settings.database_url or "", settings.schema, **lease)
    store = await app.store()

    async def shares() -> list[int]:
        async with store.database.connection() as connection:
            rows = await connection.fetch(
                f"select count(*) from {settings.schema}.shard"
                " where expires_at > now() + interval '1 minute' group by owner"
            )
        return sorted(row[0] for row in rows)

    async def shared() -> bool:
        return await shares() == [64, 64]

    try:
        cluster.start("worker")
        victim, _ = cluster.start("scheduler"), cluster.start("scheduler")
        await eventually(shared, what="an even share")
        victim.kill()
        submitted = await fault_tasks.at_least.options(delay=2).submit_many(
            [{"number": number} for number in range(100)]
        )
        await app.schedule("soon", "at_least", every=1, payload={"number": -1}, overlap="allow")
        jobs = await all_ended(app, [handle.id for handle in submitted])
        assert {job.state for job in jobs.values()} == {"succeeded"}
        assert await shares() == [64, 64]  # still the dead one's, by the database's clock
    finally:
        cluster.stop()
