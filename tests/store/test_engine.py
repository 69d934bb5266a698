"""What becomes of jobs: retries, dead letters, cancels, the order of claims, who may claim what."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from uuid import uuid4

import pytest

from rota import ConfigError, Context, Fatal, NotFound, OnceUnknown, Retry, SyncContext
from rota.errors import Conflict
from rota.runtime.attempts import to_work
from rota.store.work import LaneClaim
from tests.support.fake_node import FakeNode


@pytest.fixture
def app(sandbox):
    return sandbox.app


@pytest.fixture
def node(hot, app):
    return FakeNode(hot, app.settings)


@pytest.fixture
def greet(app):
    @app.task
    async def greet(name: str = "Ada") -> str:
        return f"hello {name}"

    return greet


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


# -- once


async def test_a_once_effect_happens_once_for_all_attempts(sandbox, app):
    charged = []

    @app.task(retry=Retry(base=0, jitter=0))
    async def pay(ctx: Context) -> str:
        receipt = await ctx.once("charge:42", lambda: charged.append(ctx.attempt) or "receipt")
        if ctx.attempt < 3:
            raise OSError
        return receipt

    @app.task(retry=Retry(base=0, jitter=0))
    def pay_plainly(ctx: SyncContext) -> str:
        receipt = ctx.once("charge:43", lambda: charged.append(ctx.attempt) or "receipt")
        if ctx.attempt < 3:
            raise OSError
        return receipt

    for task in (pay, pay_plainly):
        await task.submit()
        [job] = await sandbox.run_due()
        assert (job.state, job.attempt, job.result) == ("succeeded", 3, "receipt")
    assert charged == [1, 1]


async def test_a_once_effect_that_raised_may_be_tried_again(sandbox, app):
    tried = []

    async def charge() -> str:
        tried.append(1)
        if len(tried) == 1:
            raise OSError("refused")
        return "receipt"

    @app.task(retry=Retry(base=0, jitter=0))
    async def pay(ctx: Context) -> str:
        return await ctx.once("charge:42", charge)

    await pay.submit()
    [job] = await sandbox.run_due()
    assert (job.result, len(tried)) == ("receipt", 2)


class _NoJson:
    """A value such as a payment library's receipt object."""


@pytest.mark.parametrize("kind", ["coroutine", "plain function"])
@pytest.mark.parametrize("value", [_NoJson(), "\ud800"])
async def test_a_once_effect_whose_value_is_no_json_is_never_repeated(sandbox, app, kind, value):
    charged = []

    async def pay(ctx: Context) -> None:
        await ctx.once("charge:42", lambda: charged.append(1) or value)

    def pay_plainly(ctx: SyncContext) -> None:
        ctx.once("charge:42", lambda: charged.append(1) or value)

    handler = pay if kind == "coroutine" else pay_plainly
    task = app.task(name="pay", retry=Retry(base=0, jitter=0))(handler)
    for _ in range(2):  # a second job with the same key isn't given another chance
        await task.submit()
        [job] = await sandbox.run_due()
        assert (job.state, job.attempt) == ("failed", 1)
        assert job.error.type == "rota.errors.OnceNotKept"
        assert "Return JSON" in job.error.message
    assert charged == [1]


async def test_an_attempt_after_one_that_died_inside_once_is_told_so_on_the_same_node(app, node):
    @app.task
    async def pay(ctx: Context) -> None: ...

    await pay.submit()
    row = await node.claim_one(tasks=["pay"])
    begun = await node.effects.begin(to_work(row), "charge:42", False)
    assert not begun.done  # and then its child process dies, and never says how it ended
    assert await node.retry_at_once(row)
    row = await node.claim_one(tasks=["pay"])
    with pytest.raises(OnceUnknown):
        await node.effects.begin(to_work(row), "charge:42", False)


async def test_a_once_effect_that_two_calls_of_an_attempt_ask_for_happens_once(sandbox, app):
    charged = []

    async def charge() -> int:
        charged.append(1)
        await asyncio.sleep(0)
        return len(charged)

    @app.task
    async def pay(ctx: Context) -> list[object]:
        return [
            one if isinstance(one, int) else type(one).__name__
            for one in await asyncio.gather(
                *(ctx.once("charge:42", charge) for _ in range(3)), return_exceptions=True
            )
        ]

    await pay.submit()
    [job] = await sandbox.run_due()
    assert job.result == [1, "InvalidArguments", "InvalidArguments"]
    assert charged == [1]


async def test_a_once_effect_that_its_handler_gave_up_is_unknown_to_the_same_attempt(sandbox, app):
    charged = []

    async def charge() -> None:
        charged.append(1)
        await asyncio.Event().wait()

    @app.task
    async def pay(ctx: Context) -> str:
        first = asyncio.ensure_future(ctx.once("charge:42", charge))
        while not charged:
            await asyncio.sleep(0)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        try:
            await ctx.once("charge:42", lambda: charged.append(2))
        except OnceUnknown:
            return "unknown"
        return "repeated"

    await pay.submit()
    [job] = await sandbox.run_due()
    assert (job.result, charged) == ("unknown", [1])


@pytest.mark.parametrize("answer", ["refuse", "run"])
async def test_a_once_effect_that_an_attempt_died_in_is_not_repeated_unless_allowed(
    sandbox, app, node, answer
):
    ran = []

    class Died(BaseException):
        """What a kill looks like from inside."""

    @app.task
    async def pay(ctx: Context) -> None:
        await ctx.once("charge:42", lambda: ran.append(1), on_unknown=answer)

    def die() -> None:
        raise Died

    await pay.submit()
    row = await node.claim_one(tasks=["pay"])
    with pytest.raises(Died):
        await node.once(row, "charge:42", die)
    assert await node.retry_at_once(row)
    [job] = await sandbox.run_due()
    if answer == "run":
        assert (job.state, ran) == ("succeeded", [1])
    else:
        assert (job.state, ran) == ("failed", [])
        assert job.error.type.endswith(OnceUnknown.__name__)


# -- exactly once


@pytest.mark.parametrize("kind", ["coroutine", "plain function"])
async def test_an_exactly_once_handlers_writes_and_its_success_are_one_commit(sandbox, app, kind):
    schema = app.settings.schema
    options = {"guarantee": "exactly_once", "retry": Retry(base=0, jitter=0)}

    if kind == "coroutine":

        @app.task(**options)
        async def refund(ctx: Context) -> str:
            await ctx.connection.execute(f"insert into {schema}.refunds values ($1)", ctx.attempt)
            return after_the_write(ctx)
    else:

        @app.task(**options)
        def refund(ctx: SyncContext) -> str:
            ctx.connection.execute(f"insert into {schema}.refunds values (%s)", [ctx.attempt])
            return after_the_write(ctx)

    def after_the_write(ctx) -> str:
        if ctx.attempt == 1:
            raise OSError
        return "refunded"

    async with (await app.store()).database.connection() as connection:
        await connection.execute(f"create table {schema}.refunds (attempt int)")
        await refund.submit()
        [job] = await sandbox.run_due()
        rows = await connection.fetch(f"select attempt from {schema}.refunds")
    assert (job.state, job.attempt, job.result) == ("succeeded", 2, "refunded")
    assert [row["attempt"] for row in rows] == [2]


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("kind", ["coroutine", "plain function"])
async def test_an_exactly_once_handler_that_ends_its_transaction_fails_for_good(
    sandbox, app, kind, end
):
    if kind == "coroutine":

        @app.task(guarantee="exactly_once")
        async def refund(ctx: Context) -> None:
            await ctx.connection.execute(end)
    else:

        @app.task(guarantee="exactly_once")
        def refund(ctx: SyncContext) -> None:
            ctx.connection.execute(end)

    await refund.submit()
    [job] = await sandbox.run_due()
    assert (job.state, job.attempt) == ("failed", 1)
    assert "committed or rolled back the transaction" in job.error.message


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


# -- the order of claims


async def test_jobs_are_claimed_in_the_order_they_came_due(app, greet, node, sandbox):
    ids = []
    for seconds in (30, 10, 20):
        moment = at(sandbox, seconds=-seconds)
        ids.append((await greet.options(at=moment).submit()).id)
    rows = await node.claim()
    assert [row["id"] for row in rows] == [ids[0], ids[2], ids[1]]


async def test_a_higher_priority_goes_first_within_a_lane(app, greet, node):
    ids = {}
    for priority in (0, -5, 10, 3):
        ids[priority] = (await greet.options(priority=priority).submit()).id
    rows = await node.claim()
    assert [row["id"] for row in rows] == [ids[10], ids[3], ids[0], ids[-5]]


async def test_a_low_priority_job_is_overtaken_for_minutes_not_for_ever(sandbox, greet, node):
    patient = await greet.options(priority=0).submit()
    await sandbox.advance(minutes=9, seconds=59)
    urgent = await greet.options(priority=10).submit()
    await sandbox.advance(seconds=2)
    too_late = await greet.options(priority=10).submit()
    rows = await node.claim()
    assert [row["id"] for row in rows] == [urgent.id, patient.id, too_late.id]


async def test_a_claim_takes_no_more_than_asked_and_goes_on_from_its_cursor(greet, node):
    ids = [(await greet.submit()).id for _ in range(5)]
    first = await node.claim(LaneClaim("default/default", 2))
    last = first[-1]
    rest = await node.claim(LaneClaim("default/default", 9, last["rank"], last["id"]))
    assert [row["id"] for row in (*first, *rest)] == ids
    assert await node.claim() == []


async def test_a_claim_serves_several_lanes_each_with_its_own_limit(greet, node):
    for queue in ("light", "heavy"):
        for _ in range(3):
            await greet.options(queue=queue).submit()
    rows = await node.claim(LaneClaim("default/light", 1), LaneClaim("default/heavy", 2))
    assert sorted(row["lane"] for row in rows) == [
        "default/heavy", "default/heavy", "default/light",
    ]  # fmt: skip


async def test_racing_claims_never_get_the_same_job(app, greet, hot):
    await greet.submit_many([{}] * 300)
    nodes = [FakeNode(hot, app.settings) for _ in range(4)]

    async def drain(node):
        claimed = []
        while rows := await node.claim(LaneClaim("default/default", 20)):
            claimed += [row["id"] for row in rows]
        return claimed

    shares = await asyncio.gather(*map(drain, nodes))
    everything = [job_id for share in shares for job_id in share]
    assert len(everything) == len(set(everything)) == 300


async def test_needed_capabilities_make_a_lane_of_their_own(app, greet, node):
    await greet.options(queue="heavy", needs=["gpu"]).submit()
    assert await node.claim(lane="default/heavy") == []
    assert len(await node.claim(lane="default/heavy+gpu")) == 1


async def test_a_paused_queue_is_not_claimed_until_it_is_resumed(app, sandbox, greet, node):
    await greet.options(queue="mail").submit()
    await greet.options(queue="mail", needs=["smtp"]).submit()
    await greet.submit()
    await app.queues.pause("mail")
    lanes = [
        LaneClaim(lane, 9) for lane in ("default/mail", "default/mail+smtp", "default/default")
    ]
    assert [row["lane"] for row in await node.claim(*lanes)] == ["default/default"]
    assert await sandbox.run_due() == []
    await app.queues.resume("mail")
    assert len(await node.claim(*lanes)) == 2
    with pytest.raises(NotFound, match="there is no queue 'nope'"):
        await app.queues.resume("nope")


async def test_a_queue_can_be_paused_before_its_first_job(app, greet, node):
    await app.queues.pause("mail")
    await greet.options(queue="mail").submit()
    assert await node.claim(lane="default/mail") == []


async def test_tasks_that_a_node_doesnt_know_are_left_for_others(app, sandbox, greet, node):
    unknown = await app.submit("from_the_future", {})
    known = await greet.submit()
    assert [job.id for job in await sandbox.run_due()] == [known.id]
    assert (await unknown.status()).state == "ready"
    assert await node.claim(tasks=["greet"]) == []
    assert len(await node.claim(tasks=["from_the_future"])) == 1


async def test_what_is_given_back_is_as_if_it_had_never_been_claimed(app, greet, node):
    handle = await greet.submit()
    before = await handle.status()
    row = await node.claim_one()
    assert (await handle.status()).state == "running"
    assert await node.give_back(row)
    after = await handle.status()
    assert after.state == "ready"
    assert (after.attempt, after.node, after.started_at) == (0, None, None)
    assert (after.due_at, after.attempts, after.crashes) == (before.due_at, [], 0)
    assert (await node.claim_one())["attempt"] == 1


# -- lists


async def test_lists_are_newest_first_page_by_page_without_gaps(app, greet):
    ids = [(await greet.submit()).id for _ in range(7)]
    pages, before = [], None
    while page := await app.jobs.list(limit=3, before=before):
        pages.append([job.id for job in page])
        before = page[-1].id
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [job_id for page in pages for job_id in page] == ids[::-1]


async def test_lists_filter_by_state_task_queue_and_tag(app, sandbox, greet):
    done = await greet.submit()
    await sandbox.run_due()
    later = await greet.options(delay=60, queue="mail", tags=["a", "b"]).submit()
    ready = await app.submit("other", {}, tags=["b"])

    async def ids(**filters):
        return [job.id for job in await app.jobs.list(**filters)]

    assert await ids() == [ready.id, later.id, done.id]
    assert await ids(state="scheduled") == [later.id]
    assert await ids(state="succeeded") == [done.id]
    assert await ids(task="greet") == [later.id, done.id]
    assert await ids(queue="mail") == [later.id]
    assert await ids(tag="b") == [ready.id, later.id]
    assert await ids(tag="b", state="ready") == [ready.id]
    assert await ids(state="failed") == []
    assert await app.jobs.count() == {"ready": 1, "scheduled": 1, "succeeded": 1}
    assert await app.jobs.count(task="greet", state="scheduled") == {"scheduled": 1}
    with pytest.raises(ConfigError, match="state 'done' is not one of: waiting"):
        await app.jobs.list(state="done")
    for limit in (0, 10_001):
        with pytest.raises(ConfigError, match="limit must be"):
            await app.jobs.list(limit=limit)


async def test_queues_tell_their_depth_and_lag(app, sandbox, greet, node):
    for options in ({}, {}, {"delay": 3600}, {"queue": "mail", "delay": 60}):
        await greet.options(**options).submit()
    await node.claim(LaneClaim("default/default", 1))
    await sandbox.advance(seconds=30)
    default, mail = await app.queues.list()
    assert (default.name, default.ready, default.running, default.scheduled) == ("default", 1, 1, 1)
    assert (default.lag, default.paused_at) == (30.0, None)
    assert (mail.name, mail.ready, mail.running, mail.scheduled) == ("mail", 0, 0, 1)
    assert mail.lag is None
