"""Why isn't it running? One exact sentence for each case, on a real database."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rota import App, NotFound, Retry
from tests.support.fake_node import FakeNode, register_tasks
from tests.support.sandboxes import isolated

BEGIN = datetime(2027, 1, 5, 9, 0, tzinfo=UTC)


@pytest.fixture
async def sandbox(database_url):
    app = App(database_url=database_url)
    async with isolated(app, now=BEGIN) as sandbox:
        await register_tasks(app, "greet")
        yield sandbox


@pytest.fixture
def app(sandbox):
    return sandbox.app


@pytest.fixture
def make_node(hot, app):
    async def make_node(name="w1", tasks=("greet",), **profile):
        return await FakeNode(hot, app.settings, name).register(tasks=tasks, **profile)

    return make_node


@pytest.fixture
def why(app):
    async def why(handle, code):
        explanation = await app.jobs.explain(handle.id)
        assert explanation.code == code
        assert str(explanation) == explanation.sentence
        return explanation.sentence

    return why


async def test_due_in_three_hours(app, why):
    handle = await app.submit("greet", delay=3 * 3600)
    assert await why(handle, "not_due") == "It is due at 2027-01-05 12:00:00 UTC (in 3 h)."
    handle = await app.submit("greet", delay=86400 + 7200 + 59)
    assert await why(handle, "not_due") == "It is due at 2027-01-06 11:00:59 UTC (in 26 h 1 min)."


async def test_overdue_and_no_scheduler(app, sandbox, why, make_node):
    handle = await app.submit("greet", delay=60)
    await sandbox.advance(seconds=90)
    sentence = await why(handle, "no_scheduler")
    assert sentence.startswith("It has been due for 30 s, but no live node has the scheduler role")
    assert "rota start --role scheduler" in sentence
    await make_node("s1", roles=["scheduler"])
    assert await why(handle, "being_released") == (
        "It has been due for 30 s; a scheduler is about to release it."
    )


async def test_queue_paused(app, sandbox, why, make_node):
    await make_node()
    handle = await app.submit("greet", queue="mail")
    await sandbox.advance(minutes=1)
    await app.queues.pause("mail")
    await sandbox.advance(minutes=1)
    assert await why(handle, "queue_paused") == (
        "Queue 'mail' has been paused since 2027-01-05 09:01:00 UTC; `rota queues resume mail` "
        "resumes it."
    )


async def test_no_worker_at_all(app, why, make_node):
    await make_node("s1", roles=["scheduler"])
    handle = await app.submit("greet")
    assert await why(handle, "no_worker") == (
        "No worker is alive; start one with `rota start module:app --role worker`."
    )


async def test_a_worker_whose_lease_is_over_is_no_worker(app, sandbox, why, make_node):
    await make_node()
    handle = await app.submit("greet")
    await sandbox.advance(minutes=1)
    await why(handle, "no_worker")


async def test_no_live_worker_serves_its_lane(app, why, make_node):
    handle = await app.submit("greet", queue="heavy", needs=["gpu"])
    await make_node("w1", capabilities=["avx"])
    assert await why(handle, "no_worker_for_lane") == (
        "No live worker serves lane `heavy+gpu`: the 1 worker alive serves other queues or lacks a "
        "capability it needs."
    )
    await make_node("w2", queues=["light"], capabilities=["gpu"])
    assert "the 2 workers alive serve other queues" in await why(handle, "no_worker_for_lane")
    await make_node("w3", queues=["heavy"], capabilities=["avx", "gpu"])
    await why(handle, "starting")


async def test_no_worker_knows_its_task(app, why, make_node):
    handle = await app.submit("greet", queue="heavy")
    await make_node("w1", tasks=["other"])
    assert await why(handle, "task_unknown") == (
        "The one live worker of lane `heavy` doesn't know task 'greet'; it may run older code."
    )
    await make_node("w2", tasks=[])
    assert await why(handle, "task_unknown") == (
        "None of the 2 live workers of lane `heavy` knows task 'greet'; they may run older code."
    )


async def test_all_slots_are_busy_with_so_many_jobs_ahead(app, why, make_node):
    for name in ("w1", "w2"):
        node = await make_node(name, slots=4)
        await node.heartbeat(running=4)
    await make_node("w3", tasks=["other"], slots=100)

    @app.task
    async def greet() -> None: ...

    await greet.submit_many([{}] * 1204)
    handle = await greet.submit()
    await greet.options(queue="other").submit()
    assert await why(handle, "all_busy") == (
        "All 8 slots of the 2 workers that serve it are busy; 1,204 jobs are ahead of it."
    )


async def test_ready_with_slots_free(app, why, make_node):
    node = await make_node(slots=4)
    await node.heartbeat(running=1)
    await app.submit("greet")
    handle = await app.submit("greet")
    assert await why(handle, "starting") == (
        "It is ready and about to be claimed: 1 of 4 slots of the 1 worker that serves it are busy,"
        " 1 job is ahead of it."
    )


async def test_released_ahead_of_its_moment(app, hot, why, make_node):
    async with hot.connection() as connection:
        await connection.execute(
            f"update {hot.schema}.setting set value = 1000 where name = 'horizon_ms'"
        )
    await make_node()
    handle = await app.submit("greet", delay=0.5)
    assert await why(handle, "about_to_start") == "It is due in 500 ms, and released."


async def test_waiting_for_a_retry(app, sandbox, why):
    @app.task(retry=Retry(max_attempts=5, base=600, factor=2, jitter=0))
    async def flaky() -> None:
        raise ConnectionError("no route")

    handle = await flaky.submit()
    await sandbox.run_due()
    await sandbox.advance(minutes=10)
    await sandbox.run_due()
    assert await why(handle, "waiting_for_retry") == (
        "It waits for retry 3 of 5 at 2027-01-05 09:30:00 UTC (in 20 min); the last one ended with "
        "ConnectionError: no route."
    )


async def test_running_on_a_node(app, sandbox, why, make_node):
    handle = await app.submit("greet")
    node = await make_node("w1")
    await node.claim_one()
    await sandbox.advance(seconds=5)
    await node.heartbeat(running=1)
    assert await why(handle, "running") == (
        "It is running on node w1 since 2027-01-05 09:00:00 UTC (5 s), attempt 1 of 5. It is stopped "
        "after 24 h (the maximum run time of the installation)."
    )
    await app.queues.set_max_run_time("default", 5400)
    assert (await why(handle, "running")).endswith(
        "It is stopped after 1 h 30 min (the maximum run time of queue 'default')."
    )
    await app.jobs.cancel(handle.id)
    assert (await why(handle, "stopping")).startswith("It is being stopped: it runs on node w1")


async def test_a_timeout_and_a_heartbeat_timeout_are_told_of_what_runs(
    app, sandbox, why, make_node, hot
):
    handle = await app.submit("greet", timeout=90)
    node = await make_node("w1")
    await node.claim_one()
    await hot.fetch("note_heartbeat_timeouts", node.id, '{"greet": 30}')
    assert (await why(handle, "running")).endswith(
        "It is stopped after 1 min 30 s (its timeout), or when it gives no sign of life for 30 s."
    )


async def test_its_node_is_lost(app, sandbox, why, make_node):
    handle = await app.submit("greet")
    node = await make_node("w1")
    await node.claim_one()
    await sandbox.advance(seconds=20)
    assert await why(handle, "node_lost") == (
        "It was running on node w1 since 2027-01-05 09:00:00 UTC (20 s), attempt 1 of 5, but "
        "that node has been silent for 20 s; a scheduler is about to return it to the queue."
    )


async def test_succeeded(app, sandbox, why, make_node):
    handle = await app.submit("greet")
    node = await make_node("w1")
    row = await node.claim_one()
    await node.finish_succeeded(row)
    assert await why(handle, "succeeded") == (
        "It succeeded at 2027-01-05 09:00:00 UTC after 0 s, attempt 1 of 5."
    )


async def test_failed(app, why, make_node):
    handle = await app.submit("greet", max_attempts=1)
    node = await make_node("w1")
    await node.finish_failed(await node.claim_one(), "ValueError")
    assert await why(handle, "failed") == (
        "It failed at 2027-01-05 09:00:00 UTC after 0 s, attempt 1 of 1: ValueError: it broke."
    )


async def test_cancelled(app, why):
    handle = await app.submit("greet", delay=60)
    await app.jobs.cancel(handle.id)
    assert await why(handle, "cancelled") == "It was cancelled at 2027-01-05 09:00:00 UTC."


async def test_a_job_that_isnt_there(app):
    with pytest.raises(NotFound, match="there is no job"):
        await app.jobs.explain("0190a000-0000-7000-8000-000000000000")
