"""A job that somebody ends while it is being skipped is not recorded as skipped."""

from __future__ import annotations

import asyncio

import asyncpg

from proof.waiting import eventually
from rota import App
from rota.lib.ids import new_id
from rota.store.database import Database


async def test_a_job_that_is_cancelled_meanwhile_was_not_skipped(app: App) -> None:
    job = await app.submit("late", {}, delay=3600)
    database: Database = (await app.store()).database
    schema, schedule = database.schema, new_id()
    url = app.settings.database_url
    one, two = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        await one.execute(
            f"insert into {schema}.occurrence (schedule_id, due_at, run_at, state, job_id, version)"
            " values ($1, now(), now(), 1, $2, 1)", schedule, job.id,
        )  # fmt: skip
        cancelling = one.transaction()
        await cancelling.start()
        await one.fetch(database.queries["cancel_jobs"], "default", [job.id])
        backend = two.get_server_pid()
        skipping = asyncio.create_task(
            two.execute(f"select {schema}.skip_job($1, 'overlap_queue_full')", job.id)
        )

        async def waits() -> bool:
            asked = "select cardinality(pg_blocking_pids($1)) > 0"
            return bool(await one.fetchval(asked, backend))

        await eventually(waits)
        await cancelling.commit()
        await skipping
        state = await one.fetchval(
            f"select state from {schema}.occurrence where schedule_id = $1", schedule
        )
    finally:
        await one.close()
        await two.close()
    assert state == 1
    assert (await job.status()).state == "cancelled"
