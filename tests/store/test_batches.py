"""What a node holds is found among any number of others' jobs, a bounded number of rows at a time."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec
import pytest

from rota.scheduler.reaper import Reaper
from rota.store import batches, work
from rota.store.batches import BatchPart, BatchStore
from rota.store.rows import columns_of
from rota.store.work import NIL, LaneClaim, UpkeepStore
from tests.support.fake_node import LANE, FakeNode


@pytest.fixture
def settings(sandbox):
    return sandbox.app.settings


@pytest.fixture
def reaper(hot, settings):
    return Reaper(UpkeepStore(hot), settings)


@pytest.fixture
async def node(hot, settings):
    return await FakeNode(hot, settings, "doomed").register()


@pytest.fixture
def crowd(hot):
    """Others' jobs of one lane and one moment, in front of and behind what is there."""

    async def crowd(count: int) -> None:
        async with hot.connection() as connection:
            await connection.execute(
                f"insert into {hot.schema}.present"
                " (id, rank, due_at, namespace, lane, task, payload)"
                f" select gen_random_uuid(), (select rank from {hot.schema}.present limit 1), now(),"
                f" 'default', '{LANE}', 'unknown', '{{}}' from generate_series(1, {count})"
            )

    return crowd


async def ranks_of(hot: Any) -> list[Any]:
    async with hot.connection() as connection:
        return await connection.fetch(
            f"select low, low_id, high, high_id, ids from {hot.schema}.batch order by token"
        )


async def widen(hot: Any) -> None:
    """As a claim of a release before the ids noted them."""
    async with hot.connection() as connection:
        await connection.execute(
            f"update {hot.schema}.batch set low_id = default, high_id = default, ids = null"
        )


async def test_a_batch_is_noted_by_its_first_and_last_row(sandbox, hot, node):
    async with hot.connection() as connection:
        ids = sorted(uuid4() for _ in range(9))
        for id in ids:
            await connection.execute(
                f"insert into {hot.schema}.present (id, rank, due_at, namespace, lane, task, payload)"
                f" values ($1, 7, now(), 'default', '{LANE}', 'greet', '{{}}')", id,
            )  # fmt: skip
    await node.claim(LaneClaim(LANE, 3, 7, ids[1]))
    [batch] = await ranks_of(hot)
    assert tuple(batch) == (7, ids[2], 7, ids[4], None)


async def test_the_reaper_goes_through_a_crowded_batch_in_parts(
    sandbox, hot, node, crowd, reaper, settings, monkeypatch
):
    ids = [(await sandbox.app.submit("greet", {"name": "Ada"})).id for _ in range(3)]
    async with hot.connection() as connection:
        await connection.execute(f"update {hot.schema}.present set rank = 7")
    await node.claim(LaneClaim(LANE, 3))
    await widen(hot)
    await crowd(450)
    monkeypatch.setattr(batches, "_LOOKED_AT", 100)
    await sandbox.advance(seconds=settings.lease_seconds + 0.001)
    begins, ticks = [], 0
    while rows := await ranks_of(hot):
        begins.append((rows[0]["low"], rows[0]["low_id"]))
        assert await reaper.tick() == 0.0 or not await ranks_of(hot)
        ticks += 1
    assert ticks == 5  # 453 rows, about a hundred in each transaction
    assert begins == sorted(set(begins))
    states = [(await sandbox.app.jobs.get(id)).state for id in ids]
    assert states == ["ready"] * 3


async def test_a_part_with_a_locked_job_is_looked_at_again(
    sandbox, hot, node, reaper, settings, monkeypatch, crowd
):
    job = await sandbox.app.submit("greet", {"name": "Ada"})
    await node.claim_one()
    await widen(hot)
    await crowd(450)
    monkeypatch.setattr(batches, "_LOOKED_AT", 100)
    await sandbox.advance(seconds=settings.lease_seconds + 0.001)
    async with hot.connection() as connection, connection.transaction():
        await connection.execute(
            f"select from {hot.schema}.present where id = $1 for update", job.id
        )
        for _ in range(10):
            await reaper.tick()
        assert len(await ranks_of(hot)) == 1
    while await ranks_of(hot):
        await reaper.tick()
    assert (await sandbox.app.jobs.get(job.id)).state == "ready"


async def test_running_jobs_without_a_batch_are_noted_in_steps(
    sandbox, hot, node, reaper, settings, monkeypatch
):
    ids = [(await sandbox.app.submit("greet", {"name": "Ada"})).id for _ in range(7)]
    await node.claim(LaneClaim(LANE, 7))
    async with hot.connection() as connection:
        await connection.execute(f"delete from {hot.schema}.batch")
        for rank, id in enumerate(sorted(ids)):
            await connection.execute(
                f"update {hot.schema}.present set rank = $1 where id = $2", rank, id
            )
    monkeypatch.setattr(work, "_STRAYS_LOOKED_AT", 3)
    store, after, noted = UpkeepStore(hot), NIL, []
    for _ in range(3):
        count, after = await store.note_strays(after)
        noted.append(count)
    assert (noted, after) == ([1, 1, 1], NIL)
    assert await store.note_strays() == (0, sorted(ids)[2])  # they are known now
    await sandbox.advance(seconds=settings.lease_seconds + 0.001)
    await reaper.tick()
    assert await ranks_of(hot) == []
    states = {(await sandbox.app.jobs.get(id)).state for id in ids}
    assert states == {"ready"}


async def test_a_remote_worker_s_batch_without_ids_gets_them(sandbox, hot, node):
    """One that was claimed while the schema was migrated."""
    job = await sandbox.app.submit("greet", {"name": "Ada"})
    await node.claim_one()
    await widen(hot)
    async with hot.connection() as connection:
        await connection.execute(f"update {hot.schema}.batch set request = 'r', request_try = 1")
    count, _ = await UpkeepStore(hot).note_strays()
    [batch] = await ranks_of(hot)
    assert (count, batch["ids"]) == (1, [job.id])


async def rows_read(connection: Any, query: str, *arguments: Any) -> int:
    """How many rows of the present a statement looks at."""
    text = await connection.fetchval(f"explain (analyze, format json) {query}", *arguments)

    def count(plan: Any) -> int:
        own = 0
        if plan.get("Relation Name") == "present" and "Scan" in plan["Node Type"]:
            removed = plan.get("Rows Removed by Filter", 0)
            own = (plan["Actual Rows"] + removed) * plan["Actual Loops"]
        return int(own) + sum(count(child) for child in plan.get("Plans", ()))

    return count(msgspec.json.decode(text)[0]["Plan"])


@pytest.mark.parametrize("crowded", [10_000, 100_000])
async def test_looks_at_what_is_held_read_no_more_than_their_bound(
    sandbox, hot, node, crowd, crowded
):
    await sandbox.app.submit("greet", {"name": "Ada"})
    row = await node.claim_one()
    await widen(hot)
    async with hot.connection() as connection:
        await connection.execute(f"update {hot.schema}.batch set ids = array[$1::uuid]", row["id"])
        await connection.execute(f"update {hot.schema}.node set remote = true")
    await crowd(crowded)
    parts = await BatchStore(hot).parts(node.id, await BatchStore(hot).open_ones(node.id))
    columns = columns_of(parts, *BatchPart.__struct_fields__)
    token = row["token"]
    wanted: dict[str, tuple[int, tuple[Any, ...]]] = {
        "batch_parts": (5_001, (node.id, [token], [LANE], 5_000)),
        "held_jobs": (20_001, (node.id, *columns[:-1])),
        "close_parts": (20_001, (node.id, *columns)),
        "note_strays": (5_000, (NIL, 5_000)),
        "renew_worker": (1, (node.id, "default", 15.0, False)),
        "count_suspects": (1, (node.id, 0, 0)),
        "has_overruns": (1, (1.0, 0.0)),
        "take_overruns": (1, (1.0, 200, 0.0)),
        "held_of_worker": (2, (node.id, None, [], [], None)),
        "close_finished": (1, (node.id, [token])),
    }
    async with hot.connection() as connection:
        for name, (most, arguments) in wanted.items():
            read = await rows_read(connection, hot.queries[name], *arguments)
            assert 0 < read <= most, name
