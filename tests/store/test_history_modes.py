"""What a queue keeps of its jobs that succeeded (the setting `history`), and what holds all the same."""

from __future__ import annotations

import time
from datetime import timedelta
from uuid import UUID, uuid4

import msgspec
import pytest

from rota import App, ConfigError, HistoryNotKept, JobFailed, NotFound, Retry, ScheduleSpec
from rota.core.time.schedule import Cron
from rota.lib.ids import new_id
from rota.runtime.heartbeat import Lease
from rota.scheduler.janitor import Janitor
from rota.scheduler.shards import AllShards
from rota.store.run_stats import RunStatsStore
from rota.store.work import Succeeded, UpkeepStore, WorkStore

NODE = uuid4()


@pytest.fixture
def app(sandbox):
    stumbles: list[int] = []

    @sandbox.app.task(queue="mail")
    async def send(to: str = "ann") -> str:
        sends.append(to)
        return f"sent to {to}"

    @sandbox.app.task(queue="mail", retry=Retry(max_attempts=3, base=0.0))
    async def stumble() -> str:
        stumbles.append(1)
        if len(stumbles) % 2:
            raise ValueError("not yet")
        return "up again"

    @sandbox.app.task(queue="mail", retry=Retry(max_attempts=1))
    async def fall() -> None:
        raise ValueError("no luck")

    sends.clear()
    return sandbox.app


sends: list[str] = []


async def fetch(app: App, query: str, *arguments: object) -> list:
    async with (await app.store()).database.connection() as connection:
        return await connection.fetch(query.replace("rota.", f"{app.settings.schema}."), *arguments)


async def test_none_keeps_nothing_of_what_succeeded_and_says_so(sandbox, app):
    await app.queues.set_history("mail", "none")
    sent, fell, stumbled = [await app.submit(name) for name in ("send", "fall", "stumble")]
    stopped = await app.submit("send", delay=3600)
    await sandbox.run_due()
    await app.jobs.cancel(stopped.id)
    assert await app.jobs.count() == {"failed": 1, "cancelled": 1}
    said = "task 'send' succeeded at .* setting history of queue 'mail'"
    with pytest.raises(HistoryNotKept, match=said):
        await sent.result(timeout=5)
    for ask in (app.jobs.explain, app.jobs.cancel, app.jobs.retry, app.jobs.get):
        with pytest.raises(HistoryNotKept):
            await ask(stumbled.id)
    with pytest.raises(JobFailed):
        await fell.result(timeout=5)
    with pytest.raises(NotFound, match="it never was") as error:
        await app.jobs.get(new_id())
    assert not isinstance(error.value, HistoryNotKept)


async def test_failures_keep_what_had_to_be_tried_again(sandbox, app):
    await app.queues.set_history("mail", "failures")
    stumbled, sent = await app.submit("stumble"), await app.submit("send")
    await sandbox.run_due()
    assert await stumbled.result(timeout=5) == "up again"
    with pytest.raises(HistoryNotKept):
        await sent.status()


async def test_a_sample_keeps_its_part_and_what_stumbled(sandbox, app):
    await app.queues.set_history("mail", "sample:30%")
    handles = [await app.submit("send", {"to": str(n)}) for n in range(60)]
    stumbled = await app.submit("stumble")
    await sandbox.run_due()
    kept = {handle.id for handle in handles if await app.jobs.find(handle.id) is not None}
    assert kept == {one.id for one in handles if (one.id.int & 0xFFFFFFFF) % 1_000_000 < 300_000}
    assert await stumbled.result(timeout=5) == "up again"


async def test_the_setting_changes_what_ends_from_then_on(sandbox, app):
    first = await app.submit("send")
    await sandbox.run_due()
    await app.queues.set_history("mail", "none")
    second = await app.submit("send")
    await sandbox.run_due()
    await app.queues.configure("mail", history="all")
    third = await app.submit("send")
    await sandbox.run_due()
    found = [await app.jobs.find(one.id) is not None for one in (first, second, third)]
    assert found == [True, False, True]


async def test_the_setting_is_undone_like_others(sandbox, app):
    await app.queues.set_history("mail", "none")
    [entry] = await app.rota.audit.list("default", limit=1)
    assert entry.after == {"history": "none"}
    assert (await app.queues.undo("mail", entry.id)).history == "all"


@pytest.mark.parametrize(
    "mode", ["", "some", "sample", "sample:0%", "sample:100%", "sample:1", "sample:1e1%", 3, None]
)
async def test_what_is_no_history_is_refused(app, mode):
    with pytest.raises(ConfigError, match="all, failures, none or a sample") as error:
        await app.queues.set_history("mail", mode)
    assert error.value.fields == {"history": str(error.value)}


# -- what is promised in any mode


async def test_an_idempotency_key_still_names_its_job(sandbox, app):
    await app.queues.set_history("mail", "none")
    first = await app.submit("send", key="once")
    await sandbox.run_due()
    again = await app.submit("send", key="once")
    assert (again.id, again.existed) == (first.id, True)
    await sandbox.run_due()
    assert sends == ["ann"]


async def test_a_key_lives_as_long_as_with_a_history(sandbox, app, hot):
    """From the end of its job on, and not from its submit."""
    await app.queues.set_history("mail", "none")
    await app.submit("send", key="late", delay=timedelta(days=9))
    await sandbox.advance(days=9)
    await sandbox.run_due()
    janitor = Janitor(UpkeepStore(hot), app.settings.replace(retention_days=7), AllShards(128))
    await janitor.clean()
    assert (await app.submit("send", key="late", delay=timedelta(days=9))).existed
    await sandbox.advance(days=9)
    await janitor.clean()
    assert not (await app.submit("send", key="late")).existed


@pytest.mark.parametrize("id", [new_id(), uuid4()])
@pytest.mark.parametrize("delay", [0, 3600])
async def test_a_submit_that_is_repeated_after_the_end_runs_nothing_again(
    sandbox, app, id: UUID, delay: int
):
    await app.queues.set_history("mail", "none")
    job = {"id": str(id), "task": "send", "payload": {}, "queue": "mail", "delay": delay}
    submit = "select * from rota.submit_jobs($1::json, true)"
    await fetch(app, submit, msgspec.json.encode([job]).decode())
    await sandbox.run_for(hours=2)
    await fetch(app, submit, msgspec.json.encode([job]).decode())
    await sandbox.run_for(hours=2)
    assert sends == ["ann"]
    assert await app.jobs.count() == {}


async def test_a_unique_submit_that_is_repeated_stores_nothing(sandbox, app):
    await app.queues.set_history("mail", "none")
    wish = {"per": "waiting", "key": "k"}
    job = {"id": str(new_id()), "task": "send", "payload": {}, "queue": "mail", "unique": wish}
    submit = "select * from rota.submit_unique($1::json, true, true)"
    await fetch(app, submit, msgspec.json.encode([job]).decode())
    await sandbox.run_due()
    await fetch(app, submit, msgspec.json.encode([job]).decode())
    await sandbox.run_due()
    assert sends == ["ann"]


async def test_jobs_of_schedules_keep_theirs_for_the_ledger(sandbox, app):
    await app.queues.set_history("mail", "none")
    spec = ScheduleSpec(name="nightly", task="send", rule=Cron("* * * * *"))
    await app.schedules.put(spec)
    await sandbox.run_for(minutes=3)
    now = sandbox.now()
    fired = await app.schedules.occurrences("nightly", now - timedelta(hours=1), now)
    assert len(fired) >= 2
    assert {one.job_state for one in fired} == {"succeeded"}


async def test_steps_keep_theirs_for_their_successors(sandbox, app):
    await app.queues.set_history("mail", "none")
    flow = app.workflow("letters")
    first = flow.step(app.tasks["send"], "bob", name="first")
    flow.step(app.tasks["send"], first, name="second")
    run = await flow.start()
    await sandbox.run_due()
    assert await run.result(1) == "sent to sent to bob"
    assert await app.jobs.count() == {"succeeded": 2}


async def test_statistics_count_what_is_not_kept(sandbox, app):
    await app.queues.set_history("mail", "none")
    for _ in range(3):
        await app.submit("send")
    await app.submit("fall")
    await sandbox.run_due()
    await RunStatsStore((await app.store()).database).fold(1000)
    rows = await fetch(
        app, "select task, runs, failed from rota.run_stats where span = 3600 and queue = 'mail'"
    )
    counted = {row["task"]: (row["runs"], row["failed"]) for row in rows}
    assert counted == {"send": (3, 0), "fall": (1, 1), "": (4, 1)}


async def test_a_depth_limit_counts_them_out(sandbox, app):
    await app.queues.configure("mail", history="none", max_depth=3)
    for _ in range(4):
        for _ in range(2):
            await app.submit("send")
        await sandbox.run_due()
    await fetch(app, "select rota.fold_flow('default')")
    assert (await app.queues.get("mail")).depth == 0


async def test_traces_are_removed_with_the_retention(sandbox, app, hot):
    await app.queues.set_history("mail", "none")
    sent = await app.submit("send")
    await sandbox.run_due()
    janitor = Janitor(UpkeepStore(hot), app.settings.replace(retention_days=7), AllShards(128))
    await sandbox.advance(days=7)
    await janitor.clean()
    with pytest.raises(HistoryNotKept):
        await app.jobs.get(sent.id)
    await sandbox.advance(days=2)
    await janitor.clean()
    with pytest.raises(NotFound, match="retention"):
        await app.jobs.get(sent.id)


async def test_what_moved_on_is_neither_kept_nor_traced(app, hot):
    """A finish under an old token."""
    await app.queues.set_history("mail", "none")
    handle = await app.submit("send")
    await fetch(app, "update rota.present set state = 4, node = $1, token = 8", NODE)
    work, now = WorkStore(hot), time.monotonic()
    assert await work.finish_succeeded(NODE, [Succeeded(handle.id, 7, 0.1, now)], now) == 0
    assert (await app.jobs.get(handle.id)).state == "running"
    assert await work.finish_succeeded(NODE, [Succeeded(handle.id, 8, 0.1, now)], now) == 1
    assert await work.finish_succeeded(NODE, [Succeeded(handle.id, 8, 0.1, now)], now) == 0
    assert [row["ids"] for row in await fetch(app, "select ids from rota.trace")] == [[handle.id]]


async def test_a_node_that_knows_of_no_such_queue_uses_the_plain_statement(hot):
    lease = Lease()
    assert lease.sparing  # until it has asked
    work = WorkStore(hot)
    used: list[str] = []

    async def count(_connection, name, *_):
        used.append(name)
        return 0

    work._count = count  # type: ignore[method-assign]
    for sparing in (True, False):
        work.sparing = lambda it=sparing: it
        await work.finish_succeeded(NODE, [], 0.0)
    assert used == ["finish_sparing", "finish_succeeded"]
