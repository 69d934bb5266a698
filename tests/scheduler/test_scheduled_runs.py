"""Schedules that start workflows: overlap holds until a run ends, and nothing starts twice."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proof.waiting import eventually
from rota import All, App, ConfigError, Context
from rota.core.time.schedule import make_spec
from rota.durable.context import DurableContext
from rota.errors import InvalidArguments
from rota.lib import failpoints
from rota.model import Run
from rota.testing import Sandbox
from rota.workflow import Workflow
from tests.support import fault_tasks
from tests.support.cluster import Cluster
from tests.support.sandboxes import isolated

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Shop:
    """An app with a workflow whose second step waits for as long as the queue `slow` is paused."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.seen: list[Any] = []

        @app.task
        async def extract(ctx: Context, day: str) -> str:
            self.seen.append(ctx.occurrence)
            return day

        @app.task(queue="slow")
        async def load(day: str, ctx: Context) -> str:
            self.seen.append(ctx.occurrence)
            return day

        self.flow: Workflow = app.workflow("orders")
        self.flow.step(load, self.flow.step(extract))

    async def schedule(self, **settings: Any) -> None:
        given = {"every": "1m", "payload": {"day": "today"}, **settings}
        await self.app.schedule("orders", self.flow, **given)

    async def hold(self) -> None:
        """Let no run end."""
        await self.app.queues.pause("slow")

    async def runs(self) -> list[Run]:
        return sorted(await self.app.runs.list(limit=1000), key=lambda run: run.created_at)


@pytest.fixture
def shop(database_url: str) -> Shop:
    return Shop(App(database_url=database_url, node_name="test"))


@pytest.fixture
async def sandbox(shop: Shop) -> AsyncIterator[Sandbox]:
    async with isolated(shop.app, now=START) as sandbox:
        yield sandbox


async def periods(sandbox: Sandbox, count: int) -> None:
    for _ in range(count):
        await sandbox.advance(minutes=1)
        await sandbox.run_due()


async def ledger(app: App) -> list[tuple[str, str | None, str | None]]:
    rows = await app.schedules.occurrences(
        "orders", START - timedelta(days=1), START + timedelta(1)
    )
    return [(row.state, row.reason, row.job_state) for row in rows]


async def test_each_occurrence_starts_one_run_whose_steps_know_it(
    shop: Shop, sandbox: Sandbox
) -> None:
    await shop.schedule()
    await periods(sandbox, 3)
    runs = await shop.runs()
    assert [run.state for run in runs] == ["succeeded"] * 3
    assert await ledger(shop.app) == [("fired", None, "succeeded")] * 3
    assert [each.due_at.minute for each in shop.seen] == [1, 1, 2, 2, 3, 3]
    status = await shop.app.schedules.get("orders")
    assert (status.workflow, status.runs) == ("orders", "workflow orders")
    assert {run.schedule_id for run in runs} == {status.id}
    rows = await shop.app.schedules.occurrences("orders", START, START + timedelta(hours=1))
    assert [row.job_id for row in rows] == [run.id for run in runs]


async def test_skip_counts_until_the_run_has_ended(shop: Shop, sandbox: Sandbox) -> None:
    await shop.hold()
    await shop.schedule(overlap="skip")
    await periods(sandbox, 3)
    assert [run.state for run in await shop.runs()] == ["running"]
    assert (
        await ledger(shop.app)
        == [("fired", None, "running")] + [("skipped", "overlap", "skipped")] * 2
    )
    await shop.app.queues.resume("slow")
    await sandbox.run_due()
    await periods(sandbox, 2)
    assert [run.state for run in await shop.runs()] == ["succeeded"] * 3


async def test_queue_waits_until_the_run_has_ended(shop: Shop, sandbox: Sandbox) -> None:
    await shop.hold()
    await shop.schedule(overlap="queue", max_queued=2)
    await periods(sandbox, 4)
    assert len(await shop.runs()) == 1
    assert len(await shop.app.jobs.list(state="waiting")) == 2
    (waiting, *_) = await shop.app.jobs.list(state="waiting")
    why = await shop.app.jobs.explain(waiting.id)
    assert why.sentence.startswith("It waits for the run before it of schedule 'orders' to end.")
    await shop.app.queues.resume("slow")
    while await sandbox.run_due():
        pass
    assert [run.state for run in await shop.runs()] == ["succeeded"] * 3
    assert Counter(await ledger(shop.app)) == {
        ("fired", None, "succeeded"): 3, ("skipped", "overlap_queue_full", "skipped"): 1,
    }  # fmt: skip


async def test_a_paused_run_keeps_its_place(shop: Shop, sandbox: Sandbox) -> None:
    await shop.hold()
    await shop.schedule(overlap="skip")
    await periods(sandbox, 1)
    (run,) = await shop.runs()
    await shop.app.runs.pause(run.id)
    await periods(sandbox, 1)
    assert len(await shop.runs()) == 1


async def test_allow_and_allow_at_most(shop: Shop, sandbox: Sandbox) -> None:
    await shop.hold()
    await shop.schedule(overlap="allow")
    await periods(sandbox, 3)
    assert len(await shop.runs()) == 3
    await shop.schedule(overlap="allow", max_running=2)
    await periods(sandbox, 4)
    assert len(await shop.runs()) == 5


async def test_kill_cancels_the_run_and_starts_the_next_when_it_has_ended(
    shop: Shop, sandbox: Sandbox
) -> None:
    await shop.hold()
    await shop.schedule(overlap="kill")
    await periods(sandbox, 3)
    await sandbox.run_due()
    assert [run.state for run in await shop.runs()] == ["cancelled", "cancelled", "running"]
    assert [row[0] for row in await ledger(shop.app)] == ["fired"] * 3


async def test_a_job_that_was_asked_to_stop_starts_no_run(shop: Shop, sandbox: Sandbox) -> None:
    """Whoever cancels the job while its handler is under way is not answered by a run."""
    await shop.schedule()
    await sandbox.advance(minutes=1)
    find = shop.app.workflows.find

    async def cancelling(name: str) -> Any:
        (job,) = await shop.app.jobs.list(task="rota.start")
        await shop.app.jobs.cancel(job.id)
        return await find(name)

    shop.app.workflows.find = cancelling  # type: ignore[method-assign]
    await sandbox.run_due()
    assert await shop.runs() == []
    assert [job.state for job in await shop.app.jobs.list(task="rota.start")] == ["cancelled"]


async def test_a_backfill_runs_one_run_after_the_other(shop: Shop, sandbox: Sandbox) -> None:
    await shop.schedule(every="1h")
    await shop.hold()
    assert (
        await shop.app.schedules.backfill("orders", START - timedelta(hours=5), START)
    ).count == 5
    await sandbox.run_due()
    assert [run.state for run in await shop.runs()] == ["running"]
    await shop.app.queues.resume("slow")
    while await sandbox.run_due():
        pass
    assert [run.state for run in await shop.runs()] == ["succeeded"] * 5
    assert await ledger(shop.app) == [("fired", "backfilled", "succeeded")] * 5
    assert [each.due_at.hour for each in shop.seen[::2]] == [7, 8, 9, 10, 11]
    assert {run.schedule_id for run in await shop.runs()} == {
        (await shop.app.schedules.get("orders")).id
    }


async def test_trigger_catch_up_pause_and_deletion(shop: Shop, sandbox: Sandbox) -> None:
    await shop.schedule(every="1h", catch_up=All(), overlap="queue", max_queued=10)
    triggered = await shop.app.schedules.trigger("orders")
    await sandbox.run_due()
    assert [run.id for run in await shop.runs()] == [triggered.job_id]
    await sandbox.advance(hours=3)
    while await sandbox.run_due():
        pass
    assert len(await shop.runs()) == 4
    await shop.app.schedules.pause("orders")
    await sandbox.advance(hours=2)
    await sandbox.run_due()
    assert len(await shop.runs()) == 4
    await shop.app.schedules.resume("orders")
    while await sandbox.run_due():
        pass
    assert len(await shop.runs()) == 6
    await shop.hold()
    await sandbox.run_for(hours=2)
    assert [run.state for run in await shop.runs()].count("running") == 1
    await shop.app.schedules.delete("orders")
    await shop.app.queues.resume("slow")
    while await sandbox.run_due():
        pass
    states = Counter(run.state for run in await shop.runs())
    assert states == {"succeeded": 7}  # what ran goes on, what waited was skipped
    assert {job.state for job in await shop.app.jobs.list(state="skipped")} == {"skipped"}


@pytest.mark.parametrize(
    "point", ["transact:begun", "transact:before_commit", "transact:after_commit"]
)
async def test_a_crash_around_the_start_starts_one_run(
    shop: Shop, sandbox: Sandbox, point: str
) -> None:
    await shop.schedule()
    await sandbox.advance(minutes=1)
    with failpoints.armed_with(f"{point}=error@1"):
        await sandbox.run_due()
    await sandbox.advance(minutes=30)
    await shop.app.schedules.delete("orders")
    await sandbox.run_due()
    assert [run.state for run in await shop.runs()] == ["succeeded"]
    assert len(shop.seen) == 2


async def test_a_job_that_is_run_again_starts_nothing(shop: Shop, sandbox: Sandbox) -> None:
    await shop.schedule()
    await periods(sandbox, 1)
    (run,) = await shop.runs()
    database = (await shop.app.store()).database
    async with database.connection() as connection:  # as if its end had been lost
        await connection.execute(
            f"""with again as (delete from {database.schema}.past where id = $1 returning *)
                insert into {database.schema}.present
                    (id, state, due_at, created_at, rank, priority, guarantee, max_attempts, attempt,
                     namespace, lane, task, payload, headers)
                select id, 3, due_at, created_at, 0, priority, guarantee, max_attempts, 0,
                     namespace, lane, task, payload, headers from again""",
            run.id,
        )
    assert [job.id for job in await sandbox.run_due()] == [run.id]
    assert [each.id for each in await shop.runs()] == [run.id]
    assert len(shop.seen) == 2


async def test_what_the_workflow_does_not_take_is_refused_and_said(
    shop: Shop, sandbox: Sandbox
) -> None:
    with pytest.raises(InvalidArguments, match=r"schedule 'orders': .*input lacks 'day'"):
        await shop.schedule(payload={})
    with pytest.raises(ConfigError, match="options: 'timeout' is none of queue, priority, tags"):
        await shop.schedule(options={"timeout": 5})
    with pytest.raises(ConfigError, match="a task or a workflow, not both"):
        make_spec("both", "extract", workflow="orders", cron="@daily")
    with pytest.raises(ConfigError, match="name a task or a workflow"):
        make_spec("neither", cron="@daily")
    with pytest.raises(ConfigError, match="internal"):
        await shop.app.schedule("own", "rota.start", cron="@daily")
    spec = make_spec("early", workflow="later", cron="* * * * *")
    assert "no workflow is named 'later'" in (await shop.app.schedules.put(spec)).status.warnings[0]


async def test_a_run_that_cannot_start_is_a_dead_letter_that_says_why(
    shop: Shop, sandbox: Sandbox
) -> None:
    await shop.schedule()
    await shop.app.workflows.retire("orders")
    await periods(sandbox, 1)
    (dead,) = await shop.app.jobs.list(state="failed")
    job = await shop.app.jobs.get(dead.id)
    assert job.error is not None
    assert "workflow 'orders' is retired" in job.error.message
    await shop.app.workflows.retire("orders", retired=False)
    await shop.app.jobs.retry(dead.id)
    await sandbox.run_due()
    assert [(run.id, run.state) for run in await shop.runs()] == [(dead.id, "succeeded")]


async def test_the_priority_and_the_tags_of_a_schedule_are_the_runs(
    shop: Shop, sandbox: Sandbox
) -> None:
    await shop.schedule(options={"priority": 7}, tags=["nightly"])
    await periods(sandbox, 1)
    (run,) = await shop.runs()
    assert run.priority == 7
    assert {job.task for job in await shop.app.jobs.list(tag="nightly")} == {
        "extract", "load", "rota.start",
    }  # fmt: skip


async def test_code_declares_a_schedule_of_a_workflow(shop: Shop, sandbox: Sandbox) -> None:
    shop.app.cron("0 * * * *", payload={"day": "x"})(shop.flow)
    await shop.app.workflows.declare()
    assert await shop.app.schedules.declare() == "apply"
    await sandbox.run_for(hours=2)
    assert [run.state for run in await shop.runs()] == ["succeeded"] * 2


async def test_a_schedule_starts_a_durable_function(shop: Shop, sandbox: Sandbox) -> None:
    @shop.app.durable
    async def remind(ctx: DurableContext, day: str) -> str:
        await ctx.sleep("10m")
        return day

    await shop.app.schedule("remind", remind, every="4m", payload={"day": "x"})
    await sandbox.run_for(minutes=30)
    rows = await shop.app.schedules.occurrences("remind", START, START + timedelta(hours=1))
    assert Counter((row.state, row.reason) for row in rows) == {
        ("fired", None): 3, ("skipped", "overlap"): 4,
    }  # fmt: skip
    states = [run.state for run in await shop.runs()]
    assert states == ["succeeded", "succeeded", "running"]


async def test_the_input_of_a_scheduled_run_is_encrypted(database_url: str) -> None:
    """The schedule's payload is encrypted for the schedule, the run's input for the run."""
    key = f"one:{base64.b64encode(bytes(32)).decode()}"
    shop = Shop(App(database_url=database_url, node_name="test", encryption_keys=key))
    async with isolated(shop.app, now=START) as sandbox:
        database = (await shop.app.store()).database
        await database.fetch("set_encrypted", "default", True)
        database.encryption.learn(True)
        shop.app.connector.encryption.learn(True)
        await shop.schedule(payload={"day": "secret"})
        await periods(sandbox, 1)
        (run,) = await shop.runs()
        assert (run.state, run.input) == ("succeeded", {"day": "secret"})
        async with database.connection() as connection:
            table = f"{database.schema}.run"
            stored = await connection.fetchval(f"select input::text from {table}")
        assert "secret" not in stored


FAST = {"heartbeat": 0.4, "missed_heartbeats": 3, "kill_grace": 1, "grace": 5}


@pytest.mark.proof
@pytest.mark.parametrize("point", ["transact:before_commit", "transact:after_commit"])
async def test_a_worker_killed_while_it_starts_a_run_starts_it_once(
    make_app: Callable[..., App], tmp_path: Path, point: str
) -> None:
    async with fault_tasks.app.using(make_app(**FAST).settings) as app:
        settings = app.settings
        url = settings.database_url or ""
        (tmp_path / "victim").mkdir()
        (tmp_path / "others").mkdir()
        killing = Cluster(
            tmp_path / "victim", url, settings.schema, **FAST, failpoints=f"{point}=kill@1"
        )
        others = Cluster(tmp_path / "others", url, settings.schema, **FAST)
        try:
            await app.schedule("killed", fault_tasks.flow, every=3600, payload={"number": 1})
            victim = killing.start("worker", "scheduler")
            await app.schedules.trigger("killed")
            await eventually(lambda: victim.poll() is not None, what="the death of the worker")
            others.start("worker", "scheduler")

            async def ended() -> bool:
                runs = await app.runs.list()
                return bool(runs) and all(run.state == "succeeded" for run in runs)

            await eventually(ended, 90, "the end of the run")
            assert len(await app.runs.list()) == 1
            assert len(others.entries("at_least")) == 1
        finally:
            killing.stop()
            others.stop()
