"""Maps whose workers, schedulers and databases fail, and races between what ends chunks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import App, Context
from rota.errors import Conflict, Fatal, StoreUnavailable
from rota.lib import failpoints
from rota.lib.ids import new_id
from rota.model import Retry, State
from rota.store.work import Ended, LaneClaim, Succeeded, WorkStore
from rota.testing import Sandbox
from tests.support.shop import ended, states


class Line:
    def __init__(self, app: App) -> None:
        self.called: list[Any] = []
        self.stops_at: Any = None

        @app.task(retry=Retry(max_attempts=3, base=0, jitter=0))
        async def load(item: Any) -> Any:
            self.called.append(item)
            if item == self.stops_at:
                raise asyncio.CancelledError  # as if its worker had gone: nothing of it is recorded
            return item

        self.load = load


@pytest.fixture
def line(sandbox: Sandbox) -> Line:
    return Line(sandbox.app)


async def test_a_chunk_that_was_interrupted_repeats_only_what_was_not_recorded(
    sandbox: Sandbox, line: Line
) -> None:
    flow = sandbox.app.workflow("interrupted")
    flow.map(line.load, over=list(range(6)), size=6, tolerate=1, name="parts")
    line.stops_at = 3
    run = await flow.start()
    for _ in range(8):
        await sandbox.run_due()
        await sandbox.advance(minutes=10)
    assert (await ended(sandbox, run)).state == "succeeded"
    # The first attempt had recorded nothing; from then on each member is recorded by itself.
    assert line.called[:4] == [0, 1, 2, 3]
    assert line.called[4:8] == [0, 1, 2, 3]
    assert sorted(line.called[8:]) == [3, 4, 5]
    [failed] = await run.members("parts", state="failed")
    assert (failed.number, failed.error["type"]) == (3, "Interrupted")
    assert [each.result for each in await run.members("parts")] == [0, 1, 2, None, 4, 5]


@pytest.mark.parametrize("point", ["before_commit", "after_commit"])
async def test_expanding_twice_stores_nothing_twice(
    sandbox: Sandbox, line: Line, point: str
) -> None:
    flow = sandbox.app.workflow("twice")
    flow.map(line.load, over=list(range(6)), size=2, name="parts")
    run = await flow.start()
    with failpoints.armed_with(f"advance_run:{point}=error@1"), pytest.raises(StoreUnavailable):
        await sandbox.run_due()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(line.called) == list(range(6))
    assert (await run.steps())[0].progress.chunks == 3  # type: ignore[union-attr]


@pytest.mark.parametrize("point", ["open_chunks", "record_members", "finish_steps"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_answer_counts_no_member_twice(
    sandbox: Sandbox, line: Line, point: str, when: str
) -> None:
    flow = sandbox.app.workflow("lost")
    flow.map(line.load, over=list(range(6)), size=3, at_once=1, name="parts")
    run = await flow.start()
    with failpoints.armed_with(f"{point}:{when}=error@1"):
        for _ in range(3):
            try:
                await sandbox.run_due()
            except StoreUnavailable:
                await sandbox._database.fetch("declare_dead")
    # A finish that was not written leaves its job running: this sandbox's node still holds it.
    if point == "finish_steps" and when == "before":
        return
    assert (await ended(sandbox, run)).state == "succeeded"
    step = (await run.steps())[0]
    assert step.result == {"count": 6, "succeeded": 6, "failed": 0}
    assert set(line.called) == set(range(6))


async def claimed(sandbox: Sandbox, node: Any, count: int) -> list[Any]:
    store = WorkStore(sandbox._database)
    lanes = [row["lane"] for row in await store.lanes("default")]
    rows = []
    for lane in lanes:
        rows += await store.claim(node, [LaneClaim(lane, count)], ["load"])
    return rows


async def test_a_late_finish_after_a_cancel_starts_no_further_chunk(
    sandbox: Sandbox, line: Line
) -> None:
    flow = sandbox.app.workflow("late")
    flow.map(line.load, over=list(range(6)), size=2, at_once=1, name="parts")
    run = await flow.start()
    await sandbox.app.queues.pause("default")
    await sandbox.run_due()
    await sandbox.app.queues.resume("default")
    node = new_id()
    [row] = await claimed(sandbox, node, 5)
    await run.cancel()
    store = WorkStore(sandbox._database)
    assert await store.finish_steps(node, [Succeeded(row["id"], row["token"], 0, 0)], 0) == 1
    assert (await ended(sandbox, run)).state == "cancelled"
    assert await claimed(sandbox, node, 5) == []
    assert line.called == []


async def test_concurrent_ends_of_chunks_are_all_counted(sandbox: Sandbox, line: Line) -> None:
    flow = sandbox.app.workflow("counted")
    flow.map(line.load, over=list(range(60)), each="job", at_once=20, name="parts")
    run = await flow.start()
    await sandbox.app.queues.pause("default")
    await sandbox.run_due()
    await sandbox.app.queues.resume("default")
    node, store = new_id(), WorkStore(sandbox._database)
    finished = 0
    while rows := await claimed(sandbox, node, 20):
        counts = await asyncio.gather(
            *(store.finish_steps(node, [Succeeded(r["id"], r["token"], 0, 0)], 0) for r in rows)
        )
        finished += sum(counts)
    assert finished == 60
    step = (await run.steps())[0]
    assert step.state == "succeeded"
    assert step.result == {"count": 60, "succeeded": 60, "failed": 0}


async def test_a_chunk_ends_though_its_members_are_being_recorded(
    sandbox: Sandbox, line: Line
) -> None:
    """A worker records its last members, slowly, while the cancel of the job is written."""
    flow = sandbox.app.workflow("recorded")
    flow.map(line.load, over=list(range(2)), size=2, name="parts")
    run = await flow.start()
    await sandbox.app.queues.pause("default")
    await sandbox.run_due()
    await sandbox.app.queues.resume("default")
    node, store, database = new_id(), WorkStore(sandbox._database), sandbox._database
    [row] = await claimed(sandbox, node, 1)
    key = [[row["id"]], [row["token"]], [run.id], [0], [0]]
    assert len(await database.fetch("open_chunks", node, *key)) == 1
    async with database.transaction("record") as connection:
        record = (row["id"], row["token"], run.id, 0, 0, 2, None, 0, 0, None, None)
        assert await database.fetchval("record_members", node, *record, on=connection)
        cancelled = Ended(row["id"], row["token"], State.CANCELLED, None, None, 0, 0, 0)
        ending = asyncio.create_task(store.finish_ended(node, [cancelled], 0))
        holder = await connection.fetchval("select pg_backend_pid()")
        waits = "select count(*) from pg_stat_activity where $1 = any(pg_blocking_pids(pid))"
        async with database.connection() as onlooker:
            while not ending.done() and not await onlooker.fetchval(waits, holder):
                await asyncio.sleep(0.01)
        assert not ending.done()
    assert await ending == 1
    assert (await ended(sandbox, run)).state == "succeeded"
    assert (await run.steps())[0].result == {"count": 2, "succeeded": 2, "failed": 0}


async def test_a_stale_attempt_records_nothing(sandbox: Sandbox, line: Line) -> None:
    flow = sandbox.app.workflow("stale")
    flow.map(line.load, over=list(range(4)), size=4, name="parts")
    run = await flow.start()
    await sandbox.app.queues.pause("default")
    await sandbox.run_due()
    await sandbox.app.queues.resume("default")
    node, fetch = new_id(), sandbox._database.fetch
    [row] = await claimed(sandbox, node, 1)
    key = [[row["id"]], [row["token"]], [run.id], [0], [0]]
    assert len(await fetch("open_chunks", node, *key)) == 1
    assert await fetch("open_chunks", new_id(), *key) == []
    record = (row["id"], row["token"] + 1, run.id, 0, 0, 2, None, 0, 0, None, None)
    assert (await fetch("record_members", node, *record))[0][0] is False
    record = (row["id"], row["token"], run.id, 0, 0, 2, None, 0, 0, None, None)
    assert (await fetch("record_members", node, *record))[0][0] is True


async def test_a_failed_member_of_a_chunk_that_runs_can_not_be_retried(
    sandbox: Sandbox, line: Line
) -> None:
    """The attempt that runs does not know of it: the member would be lost."""

    @sandbox.app.task(retry=Retry(max_attempts=2, base=60, jitter=0))
    async def shaky(item: int) -> int:
        if item == 1:
            raise Fatal("never")
        if item == 2 and len(line.called) < 1:
            line.called.append(item)
            raise ValueError("later")
        return item

    flow = sandbox.app.workflow("running")
    flow.map(shaky, over=[0, 1, 2], size=3, name="parts")
    run = await flow.start()
    await sandbox.run_due()  # member 2 waits for its second try, and the chunk with it
    with pytest.raises(Conflict, match="in chunks that have ended"):
        await run.retry_members("parts", [1])
    await sandbox.advance(minutes=2)
    assert (await ended(sandbox, run)).state == "failed"
    assert (await run.steps())[0].result == {"count": 3, "succeeded": 2, "failed": 1}


async def test_a_member_sees_its_own_attempt(sandbox: Sandbox) -> None:
    seen: list[tuple[int, int]] = []

    @sandbox.app.task(retry=Retry(max_attempts=2, base=0, jitter=0))
    async def shaky(ctx: Context, item: int) -> None:
        seen.append((item, ctx.attempt))
        if item == 1 and ctx.attempt == 1:
            raise ValueError

    flow = sandbox.app.workflow("shaky")
    flow.map(shaky, over=[0, 1, 2], size=3)
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert seen == [(0, 1), (1, 1), (2, 1), (1, 2)]
    assert (await states(run)) == {"shaky": "succeeded"}


async def test_plain_functions_are_mapped_too(sandbox: Sandbox) -> None:
    @sandbox.app.task
    def square(number: int) -> int:
        return number * number

    flow = sandbox.app.workflow("plain")
    flow.map(square, over=[1, 2, 3], size=2)
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert [each.result for each in await run.members("square")] == [1, 4, 9]
