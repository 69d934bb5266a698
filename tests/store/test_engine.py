"""What becomes of jobs: results, timeouts, retries."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota import Context, Fatal, Retry, SyncContext


@pytest.fixture
def app(sandbox):
    return sandbox.app


def at(sandbox, **units):
    return sandbox.now() + timedelta(**units)


def is_now(sandbox, moment):
    """Durations are real, so an end is a little before the moment that stands still."""
    return timedelta() <= sandbox.now() - moment < timedelta(seconds=5)


# -- ends


async def test_a_result_is_kept(sandbox, greet):
    await greet.submit("Ada")
    [job] = await sandbox.run_due()
    assert (job.state, job.result, job.attempt) == ("succeeded", "hello Ada", 1)
    assert (job.error, job.attempts) == (None, [])
    assert is_now(sandbox, job.finished_at)


async def test_progress_and_the_context_reach_the_job_and_the_handler(sandbox, app):
    seen = []

    @app.task
    async def watched(ctx: Context) -> None:
        ctx.progress(3, 10, "three of ten")
        seen.append((ctx.job.id, ctx.attempt, ctx.token, ctx.cancelled, ctx.job.headers))

    @app.task
    def plain(ctx: SyncContext) -> None:
        ctx.progress(1)
        seen.append((ctx.job.id, ctx.attempt, ctx.token, ctx.cancelled, ctx.job.headers))

    for task in (watched, plain):
        await task.options(headers={"trace": "x"}).submit()
        [job] = await sandbox.run_due(raise_errors=True)
        assert seen.pop() == (job.id, 1, job.token, False, {"trace": "x"})
        assert job.progress["done"] == (3 if task is watched else 1)


async def test_a_timeout_is_recorded_as_one_and_retried(sandbox, app):
    @app.task(timeout=0.01, retry=Retry(max_attempts=2, base=0, jitter=0))
    async def stuck() -> None:
        await asyncio.Event().wait()

    await stuck.submit()
    [job] = await sandbox.run_due()
    assert (job.state, job.error.type) == ("failed", "TimedOut")
    assert [entry.outcome for entry in job.attempts] == ["timed_out", "timed_out"]


# -- retries


async def test_retries_come_at_their_times_and_end_in_the_dead_letter_list(sandbox, app):
    @app.task(retry=Retry(max_attempts=4, base=10, factor=3, jitter=0))
    async def flaky() -> None:
        raise ValueError("no luck")

    handle = await flaky.submit()
    for attempt, delay in ((1, 10), (2, 30), (3, 90)):
        assert await sandbox.run_due() == []
        job = await handle.status()
        assert (job.state, job.attempt) == ("scheduled", attempt)
        assert job.due_at == at(sandbox, seconds=delay)
        await sandbox.advance(seconds=delay - 0.001)
        assert await sandbox.run_due() == []
        assert (await handle.status()).attempt == attempt
        await sandbox.advance(seconds=0.001)
    [job] = await sandbox.run_due()
    assert (job.state, job.attempt) == ("failed", 4)
    assert is_now(sandbox, job.finished_at)
    assert [(entry.number, entry.outcome) for entry in job.attempts] == [
        (number, "raised") for number in (1, 2, 3, 4)
    ]
    assert {entry.error.message for entry in job.attempts} == {"no luck"}
    tokens = [entry.token for entry in job.attempts]
    assert tokens == sorted(set(tokens))


async def test_a_job_that_recovers_keeps_the_record_of_what_went_wrong(sandbox, app):
    @app.task(retry=Retry(base=5, jitter=0))
    async def recovers(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise OSError(f"try {ctx.attempt}")
        return ctx.attempt

    await recovers.submit()
    ended = []
    while not ended:
        ended = await sandbox.run_due()
        await sandbox.advance(minutes=1)
    [job] = ended
    assert (job.state, job.result, job.error) == ("succeeded", 3, None)
    assert [entry.error.message for entry in job.attempts] == ["try 1", "try 2"]


async def test_a_handler_can_ask_when_to_be_tried_again(sandbox, app):
    @app.task
    async def limited() -> None:
        raise Retry.after(1234, "rate limit")

    handle = await limited.submit()
    await sandbox.run_due()
    job = await handle.status()
    assert (job.state, job.due_at) == ("scheduled", at(sandbox, seconds=1234))
    assert job.attempts[0].error.message == "rate limit"


@pytest.mark.parametrize("reason", ["Fatal", "never_on", "not only_on", "at_most_once"])
async def test_what_isnt_worth_another_try_fails_at_once(sandbox, app, reason):
    options = {
        "Fatal": {},
        "never_on": {"retry": Retry(never_on=(LookupError,))},
        "not only_on": {"retry": Retry(only_on=(OSError,))},
        "at_most_once": {"guarantee": "at_most_once"},
    }[reason]

    @app.task(**options)
    async def hopeless() -> None:
        raise Fatal("never") if reason == "Fatal" else KeyError("never")

    await hopeless.submit()
    [job] = await sandbox.run_due()
    assert (job.state, job.attempt, len(job.attempts)) == ("failed", 1, 1)
    assert "never" in job.error.message


async def test_arguments_that_dont_fit_the_handler_any_more_are_a_failure_on_record(sandbox, app):
    @app.task(retry=Retry(max_attempts=1))
    async def typed(n: int) -> None: ...

    elsewhere = await app.submit("typed", {"n": 1})
    async with (await app.store()).database.connection() as connection:
        payload = '{"n": "one"}'
        await connection.execute(f"update {app.settings.schema}.present set payload = '{payload}'")
    [job] = await sandbox.run_due()
    assert (job.id, job.state) == (elsewhere.id, "failed")
    assert "argument 'n'" in job.error.message


async def test_only_the_last_20_attempts_are_kept(sandbox, app):
    @app.task(retry=Retry(max_attempts=25, base=0, jitter=0))
    async def hopeless() -> None:
        raise ValueError

    await hopeless.submit()
    [job] = await sandbox.run_due()
    assert [entry.number for entry in job.attempts] == list(range(6, 26))


async def test_an_odd_message_costs_nobody_the_outcome(sandbox, app):
    @app.task(retry=Retry(max_attempts=1))
    async def odd() -> None:
        raise ValueError("nul \0 and surrogate \ud800 and \\u0000")

    await odd.submit()
    [job] = await sandbox.run_due()
    assert job.state == "failed"
    assert "surrogate" in job.error.message
