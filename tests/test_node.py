"""A node in the test's own process, on a real database: what a job meets from start to end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from proof.waiting import eventually
from rota import App, StoreUnavailable
from rota.node import Node
from rota.runtime.ticker import Ticker
from rota.store.database import Database
from rota.store.work import WorkStore
from rota.worker.claim_loop import Worker
from tests.support import node_tasks
from tests.support.pgbouncer import NO_PGBOUNCER, pgbouncer

Task = Any


@pytest.fixture
async def app(make_app: Callable[..., App]) -> AsyncIterator[App]:
    node_tasks.seen.clear()
    settings = make_app(heartbeat=0.5, kill_grace=1, processes=1).settings
    async with node_tasks.app.using(settings) as app:
        yield app


@pytest.fixture
async def node(app: App) -> AsyncIterator[Node]:
    async with Node(app).running() as node:
        yield node


def worker_of(node: Node) -> Worker:
    assert node.worker_role is not None
    return node.worker_role.worker


def task(name: str) -> Any:
    return node_tasks.app.require_task(name)


async def test_a_job_submitted_to_an_idle_worker_is_started_by_its_hint(node: Node) -> None:
    """The poll is minutes away: only the hint can be what starts it."""
    worker = worker_of(node)
    await eventually(lambda: worker.hints_work)
    worker._settings = node.settings.replace(poll=600.0)
    await (await task("remember").submit("first")).result(60)  # its pause is now the long one
    for number in range(5):
        assert await (await task("remember").submit(number)).result(60) == number


async def test_without_hints_workers_find_jobs_by_looking(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(self: Any) -> float:
        return 3600.0

    monkeypatch.setattr("rota.runtime.listener.Listener.tick", deaf)
    async with Node(app).running():
        assert await (await task("remember").submit("found")).result(60) == "found"


async def test_a_job_never_starts_before_it_is_due(node: Node) -> None:
    bound = [task("remember").options(delay=0.05 * n) for n in range(1, 40)]
    handles = await asyncio.gather(*(one.submit(n) for n, one in enumerate(bound)))
    jobs = [await handle.wait(60) for handle in handles]
    assert all(job.started_at >= job.due_at for job in jobs)


async def test_cancelling_stops_a_running_coroutine(node: Node) -> None:
    handle = await task("sleep_long").submit()
    await eventually(lambda: "sleeping" in node_tasks.seen)
    assert await handle.cancel() == "stopping"
    job = await handle.wait(60)
    assert job.state == "cancelled"
    assert ("woken", True) in node_tasks.seen


@pytest.mark.parametrize("name", ["touch_and_sleep", "touch_and_spin"])
async def test_cancelling_stops_a_running_function(node: Node, tmp_path: Path, name: str) -> None:
    mark = tmp_path / "mark"
    handle = await task(name).submit(str(mark))
    await eventually(mark.exists)
    assert await handle.cancel() == "stopping"
    job = await handle.wait(60)
    assert job.state == "cancelled"


async def test_a_coroutine_over_its_timeout_is_stopped_retried_and_ends_as_a_dead_letter(
    node: Node, app: App
) -> None:
    handle = await task("too_slow").submit()
    job = await handle.wait(60)
    assert job.state == "failed"
    assert [attempt.outcome for attempt in job.attempts] == ["timed_out", "timed_out"]
    assert await app.jobs.dead_letters() == [handle.id]


async def test_once_and_progress_work_in_every_runner(node: Node) -> None:
    child = await (await task("in_child").submit(4)).wait(60)
    loop = await (await task("in_loop").submit(4)).wait(60)
    thread = await (await task("in_thread").submit(4)).wait(60)
    assert child.result[:3] == [8, 8, 1]
    assert loop.result == [8, 8, 1, loop.token]
    assert thread.result == 8


async def test_progress_can_be_seen_while_a_job_runs(node: Node) -> None:
    handle = await task("reports_and_waits").submit()
    job = await eventually(lambda: _with_progress(handle))
    assert job.progress == {"done": 3, "total": 10, "message": "going"}
    await handle.cancel()
    await handle.wait(60)


async def _with_progress(handle: Any) -> Any:
    job = await handle.status()
    return job if job.progress else None


async def test_an_effect_whose_end_is_unknown_is_not_repeated(node: Node) -> None:
    job = await (await task("dies_inside_once").submit()).wait(60)
    assert job.state == "failed"
    assert job.error is not None
    assert job.error.type.endswith("OnceUnknown")
    assert node_tasks.seen == ["effect"]


async def test_an_effect_that_failed_is_tried_again(node: Node) -> None:
    assert await (await task("fails_inside_once").submit()).result(60) == "done"
    assert node_tasks.seen == ["effect", "effect"]


async def test_handlers_say_when_to_try_again_or_never(node: Node) -> None:
    fatal = await (await task("fatal").submit()).wait(60)
    assert (fatal.state, fatal.attempt) == ("failed", 1)
    assert await (await task("later").submit()).result(60) == 2


async def test_a_result_that_is_too_large_is_dropped_and_the_job_stays_done(node: Node) -> None:
    job = await (await task("huge").submit()).wait(60)
    assert (job.state, job.result, job.attempt) == ("succeeded", None, 1)
    assert job.error is not None
    assert "2,000,002 bytes" in job.error.message


async def test_what_a_failed_attempt_wrote_in_its_transaction_is_gone(node: Node, app: App) -> None:
    database = (await app.store()).database
    async with database.connection() as connection:
        await connection.execute("drop table if exists public.node_effect")
        await connection.execute("create table public.node_effect (number int)")
        assert await (await task("insert_then_fail").submit(7)).result(60) is None
        rows = await connection.fetch("select number from public.node_effect")
    assert [row[0] for row in rows] == [7]


async def test_at_most_once_is_not_retried_even_when_it_fails(node: Node) -> None:
    job = await (await task("once_at_most").submit()).wait(60)
    assert (job.state, job.attempt) == ("failed", 1)
    assert node_tasks.seen == ["began"]


async def test_only_a_worker_with_the_capability_takes_a_job(app: App) -> None:
    handle = await task("needs_gpu").submit()
    async with Node(app).running():
        await (await task("remember").submit(1)).result(60)
        assert (await handle.status()).state == "ready"
        assert (await app.jobs.explain(handle.id)).code == "no_worker_for_lane"
    async with Node(app, queues=["heavy"], capabilities=["gpu"]).running():
        assert await handle.result(60) == "on a gpu"


async def test_a_worker_keeps_to_its_limit_for_a_queue(app: App) -> None:
    node_tasks.concurrent.update(now=0, most=0)
    async with Node(app, queues={"narrow": 3, "default": None}).running():
        handles = await task("count_concurrent").submit_many([()] * 60)
        others = await task("remember").submit_many([(n,) for n in range(60)])
        for handle in (*handles, *others):
            await handle.result(30)
    assert node_tasks.concurrent["most"] == 3


async def test_a_claim_whose_answer_was_lost_is_given_back(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = WorkStore.claim
    lost: list[int] = []

    async def lose_one_answer(self: Any, *arguments: Any) -> Any:
        rows = await real(self, *arguments)
        if rows and not lost:
            lost.append(len(rows))
            raise StoreUnavailable("the answer was lost")
        return rows

    monkeypatch.setattr(WorkStore, "claim", lose_one_answer)
    job = await (await task("remember").submit("kept")).wait(60)
    assert lost == [1]
    assert (job.state, job.attempt, node_tasks.seen) == ("succeeded", 1, ["kept"])


async def test_a_finish_whose_answer_was_lost_is_repeated_without_harm(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = WorkStore.finish_succeeded
    lost: list[int] = []

    async def lose_one_answer(self: Any, *arguments: Any) -> Any:
        count = await real(self, *arguments)
        if not lost:
            lost.append(count)
            raise StoreUnavailable("the answer was lost")
        return count

    monkeypatch.setattr(WorkStore, "finish_succeeded", lose_one_answer)
    for number in range(3):
        assert await (await task("remember").submit(number)).result(60) == number
    assert lost == [1]
    assert node_tasks.seen == [0, 1, 2]


async def test_a_stopped_node_leaves_no_task_no_thread_and_no_process(app: App) -> None:
    before = set(asyncio.all_tasks())
    async with Node(app).running():
        await (await task("in_child").submit(1)).result(60)
    left = {t for t in asyncio.all_tasks() - before if not t.done()}
    assert left == set()
    assert await app.nodes.list() == []


# -- behind PgBouncer


@pytest.fixture
async def pooled_url(database_url: str) -> AsyncIterator[str]:
    async with pgbouncer(database_url) as url:
        yield url


@NO_PGBOUNCER
async def test_everything_works_behind_pgbouncer_in_transaction_mode(
    app: App, pooled_url: str
) -> None:
    pooled = node_tasks.app.using(app.settings.replace(database_url=pooled_url))
    async with pooled, Node(node_tasks.app).running() as node:
        assert worker_of(node)._store.database.behind_pooler
        assert await (await task("remember").submit("pooled")).result(60) == "pooled"
        handles = await task("remember").submit_many([(n,) for n in range(500)])
        for number, handle in enumerate(handles):
            assert await handle.result(60) == number
        assert (await (await task("in_child").submit(4)).result(60))[:2] == [8, 8]
        delayed = await task("remember").options(delay=1.5).submit("later")
        assert await delayed.result(60) == "later"


@pytest.fixture
async def repeatable_reads(database_url: str) -> AsyncIterator[None]:
    """As the database's owner may have decided, for everybody who connects from now on."""
    connection = await asyncpg.connect(database_url)
    name = await connection.fetchval("select current_database()")
    setting = f"alter database {name} %s default_transaction_isolation"
    await connection.execute(setting % "set" + " = 'repeatable read'")
    yield
    await connection.execute(setting % "reset")
    await connection.close()


@NO_PGBOUNCER
async def test_behind_pgbouncer_transactions_read_what_is_committed_and_settings_don_t_leak(
    app: App, repeatable_reads: None, pooled_url: str
) -> None:
    disturb = "set search_path = pg_temp; set statement_timeout = '7s'; set shop.customer = 'Ada'"
    pooled = node_tasks.app.using(app.settings.replace(database_url=pooled_url))
    async with pooled, Node(node_tasks.app).running():
        for name in ("look_then_disturb", "look_then_disturb_in_child"):
            asked = [await task(name).submit(disturbance=disturb) for _ in range(12)]
            found = [await handle.result(30) for handle in asked]
            assert {tuple(each[1:5]) for each in found} == {("1h", "0", "off", "read committed")}
            assert {(each[0], each[6]) for each in found} == {('"$user", public', "")}
        database = (await node_tasks.app.store()).database
        async with database._scope() as connection:  # as every single statement
            assert await connection.fetchval("show transaction_isolation") == "read committed"


async def test_the_start_of_a_node_s_own_server_is_no_blocked_loop(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    """Importing and preparing it takes seconds on a busy machine."""

    class SlowServer:
        async def start(self) -> None:
            time.sleep(3)  # noqa: ASYNC251 - this is the point

        async def stop(self) -> None: ...

    async with Node(app, ("scheduler", "worker", "server"), server=SlowServer()).running():
        assert await (await task("remember").submit("after")).result(60) == "after"
    assert "has been blocked" not in caplog.text


# -- while the database is away


class _Watchful:
    """A service that has nothing to ask of the database while it is away, as a worker without trust."""

    name = "watchful"

    def __init__(self, database: Database) -> None:
        self._database = database
        self.mode = "fail"
        self.ticks = asyncio.Semaphore(0)

    async def tick(self) -> float:
        self.ticks.release()
        if self.mode == "fail":
            raise StoreUnavailable("gone")
        if self.mode == "ask":
            await self._database.fetchval("now")
        return 0.01

    async def turn(self, mode: str) -> None:
        """Until ticks of this kind are over."""
        self.mode = mode
        while not self.ticks.locked():
            await self.ticks.acquire()
        for _ in range(3):
            await self.ticks.acquire()


async def test_works_again_is_said_when_the_database_has_answered_and_not_before(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    service = _Watchful((await app.store()).database)
    ticker = Ticker(service)
    ticker.start()
    await service.turn("fail")
    await service.turn("wait")
    assert "works again" not in caplog.text
    await service.turn("ask")
    await ticker.stop()
    assert caplog.text.count("watchful works again") == 1


async def test_heartbeats_say_that_they_work_again(
    app: App, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    store = await app.store()
    async with store.database.connection() as connection:
        await connection.execute(f"alter table {app.settings.schema}.node rename to node_away")
        try:
            await eventually(lambda: "heartbeat failed" in caplog.text)
        finally:
            await connection.execute(f"alter table {app.settings.schema}.node_away rename to node")
    await eventually(lambda: "heartbeats work again after" in caplog.text)
