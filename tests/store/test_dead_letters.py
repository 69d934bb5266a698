"""The dead-letter list, and what cancelling does to jobs in each state."""

from __future__ import annotations

from uuid import uuid4

import pytest

from rota import ConfigError, Context, NotFound, Retry
from rota.errors import Conflict


@pytest.fixture
def app(sandbox):
    return sandbox.app


# -- the dead-letter list


async def fail_one_by_one(sandbox, calls):
    ids = []
    for submit in calls:
        ids.append((await submit()).id)
        [job] = await sandbox.run_due()
        assert job.state == "failed"
        await sandbox.advance(seconds=1)
    return ids


@pytest.fixture
async def failures(sandbox, app):
    """The ids of three failed jobs of two tasks, the oldest first."""

    @app.task(queue="mail", retry=Retry(max_attempts=1))
    async def send(to: str) -> None:
        raise ConnectionError(f"no route to {to}")

    @app.task(retry=Retry(max_attempts=1))
    async def resize() -> None:
        raise ValueError("not an image")

    return await fail_one_by_one(
        sandbox, [lambda: send.submit("a"), resize.submit, lambda: send.submit("b")]
    )


async def test_the_dead_letter_list_can_be_listed_filtered_and_inspected(app, failures):
    first, second, third = failures
    assert await app.jobs.dead_letters() == [first, second, third]
    assert await app.jobs.dead_letters(limit=2) == [first, second]
    assert await app.jobs.dead_letters(task="send") == [first, third]
    assert await app.jobs.dead_letters(queue="mail") == [first, third]
    assert await app.jobs.dead_letters(error="ValueError") == [second]
    assert await app.jobs.dead_letters(task="resize", error="ConnectionError") == []
    job = await app.jobs.get(first)
    assert (job.state, job.error.type, job.error.message) == (
        "failed", "ConnectionError", "no route to a",
    )  # fmt: skip
    assert 'raise ConnectionError(f"no route to {to}")' in job.error.traceback
    assert job.payload == {"to": "a"}


async def test_a_dead_job_is_retried_with_a_fresh_count_and_its_history(sandbox, app, failures):
    await app.jobs.retry(failures[0])
    job = await app.jobs.get(failures[0])
    assert (job.state, job.attempt, job.crashes, job.due_at) == ("ready", 0, 0, sandbox.now())
    assert (len(job.attempts), job.payload) == (1, {"to": "a"})
    assert await app.jobs.dead_letters() == failures[1:]
    [job] = await sandbox.run_due()
    assert (job.id, job.state, len(job.attempts)) == (failures[0], "failed", 2)


async def test_dead_jobs_are_retried_by_filter(sandbox, app, failures):
    assert set(await app.jobs.retry_dead(task="send")) == {failures[0], failures[2]}
    assert await app.jobs.dead_letters() == [failures[1]]
    assert {job.id for job in await sandbox.run_due()} == {failures[0], failures[2]}


async def test_a_discarded_job_is_off_the_list_and_still_in_the_past(app, failures):
    assert await app.jobs.discard_many([failures[0], uuid4()]) == [failures[0]]
    assert await app.jobs.dead_letters() == failures[1:]
    job = await app.jobs.get(failures[0])
    assert (job.state, job.error.type) == ("cancelled", "ConnectionError")
    with pytest.raises(Conflict, match="can't be retried: it is cancelled"):
        await app.jobs.retry(failures[0])


async def test_a_job_that_waits_for_its_retry_can_be_hurried(sandbox, app):
    @app.task(retry=Retry(base=3600, jitter=0))
    async def recovers(ctx: Context) -> None:
        if not recovered:
            raise OSError

    recovered = []
    handle = await recovers.submit()
    await sandbox.run_due()
    recovered.append(True)
    await app.jobs.retry(handle.id)
    [job] = await sandbox.run_due()
    assert (job.state, job.attempt) == ("succeeded", 1)


async def test_what_never_failed_cant_be_retried(sandbox, app, greet):
    handle = await greet.options(delay=60).submit()
    with pytest.raises(Conflict, match="can't be retried: it is scheduled"):
        await app.jobs.retry(handle.id)
    with pytest.raises(NotFound):
        await app.jobs.retry(uuid4())


# -- cancelling


async def test_what_waits_is_cancelled_at_once(sandbox, app, greet):
    for options in ({"delay": 60}, {}):
        handle = await greet.options(**options).submit()
        assert await handle.cancel() == "cancelled"
        job = await handle.status()
        assert (job.state, job.finished_at) == ("cancelled", sandbox.now())
    await sandbox.advance(hours=1)
    assert await sandbox.run_due() == []


async def test_a_job_that_waits_for_its_retry_is_cancelled_at_once(sandbox, app):
    @app.task
    async def flaky() -> None:
        raise OSError

    handle = await flaky.submit()
    await sandbox.run_due()
    assert await handle.cancel() == "cancelled"
    job = await handle.status()
    assert (job.state, len(job.attempts)) == ("cancelled", 1)


async def test_a_running_jobs_node_is_told_to_stop_it(sandbox, app, greet, node, hot):
    handle = await greet.submit()
    row = await node.claim_one()
    assert await handle.cancel() == "stopping"
    [signal] = await hot.fetch("signals_for", node.id)
    assert tuple(signal) == (handle.id, row["token"], "cancel")
    assert (await handle.status()).cancel_requested_at == sandbox.now()
    assert await node.mark_started(row) is False  # it is too late to begin
    assert await node.finish_cancelled(row)
    assert (await handle.status()).state == "cancelled"


@pytest.mark.parametrize("write", ["give_back", "retry_later", "retry_at_once"])
async def test_a_cancelled_job_that_would_run_again_ends_instead(sandbox, app, greet, node, write):
    handle = await greet.submit()
    row = await node.claim_one()
    assert await handle.cancel() == "stopping"
    assert await getattr(node, write)(row) is True
    assert (await handle.status()).state == "cancelled"
    assert await sandbox.run_due() == []


async def test_a_job_that_succeeds_before_it_stops_has_succeeded(app, greet, node):
    handle = await greet.submit()
    row = await node.claim_one()
    await handle.cancel()
    assert await node.finish_succeeded(row)
    assert (await handle.status()).state == "succeeded"


async def test_what_has_ended_cant_be_cancelled(sandbox, app, greet):
    handle = await greet.submit()
    await sandbox.run_due()
    with pytest.raises(Conflict, match="it has already succeeded"):
        await handle.cancel()
    with pytest.raises(NotFound, match="there is no job"):
        await app.jobs.cancel(uuid4())
    with pytest.raises(ConfigError, match="not a job id"):
        await app.jobs.cancel("seven")
