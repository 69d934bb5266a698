"""Unique jobs, debounce and throttle: what a second submit does, whatever becomes of the first job."""

from __future__ import annotations

from datetime import timedelta

import asyncpg
import pytest

from rota import ConfigError, DuplicateJob, InvalidArguments
from rota.store.limits import LimitStore
from rota.store.work import UpkeepStore
from tests.support.jobs import everything

BASE = "default/default"


@pytest.fixture
def app(sandbox):
    return sandbox.app


@pytest.fixture
def limits(hot):
    return LimitStore(hot)


async def names(app, **filters) -> list[str]:
    """The argument of each job, in the order of their submits."""
    jobs = await app.jobs.list(limit=1000, **filters)
    return [job.payload["name"] for job in reversed(jobs)]


# -- while it waits


async def test_while_one_waits_a_second_submit_returns_it(app, greet):
    unique = greet.options(unique="waiting")
    first, again, other = [await unique.submit(name) for name in ("Ada", "Ada", "Alan")]
    assert (first.existed, again.existed, other.existed) == (False, True, False)
    assert again.id == first.id != other.id
    assert await names(app) == ["Ada", "Alan"]


async def test_a_job_that_a_worker_has_taken_waits_no_more(greet, node):
    unique = greet.options(unique="waiting")
    first = await unique.submit()
    await node.claim_one()
    second = await unique.submit()
    assert not second.existed
    assert (await unique.submit()).id == second.id != first.id


async def test_a_scheduled_job_waits_and_so_does_one_that_is_released(greet, sandbox, hot):
    unique = greet.options(unique="waiting")
    first = await greet.options(unique="waiting", delay=60).submit()
    assert (await unique.submit()).id == first.id
    await sandbox.advance(seconds=60)
    upkeep = UpkeepStore(hot)
    await upkeep.release(list(range(128)), [None] * 128, 100)
    assert (await unique.submit()).id == first.id


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled by hand", "retention"])
@pytest.mark.parametrize("scope", ["waiting", "unfinished"])
async def test_a_job_that_has_ended_stands_for_nothing(app, greet, node, hot, scope, end):
    unique = greet.options(unique=scope)
    first = await unique.submit()
    if end == "cancelled by hand":
        await first.cancel()
    else:
        row = await node.claim_one()
        await (node.finish_failed if end == "failed" else node.finish_succeeded)(row)
    if end == "retention":
        await hot_execute(hot, "delete from {}.past")
    second = await unique.submit()
    assert not second.existed
    assert second.id != first.id


async def hot_execute(hot, statement):
    async with hot.connection() as connection:
        return await connection.fetch(statement.format(hot.schema))


async def test_a_dead_letter_that_is_retried_stands_for_others_again(app, greet, node):
    for scope in ("waiting", "unfinished"):
        unique = greet.options(unique=scope, unique_key=scope)
        first = await unique.submit()
        await node.finish_failed(await node.claim_one())
        await app.jobs.retry(first.id)
        assert (await unique.submit()).id == first.id
        await node.finish_succeeded(await node.claim_one())


async def test_a_discarded_dead_letter_stands_for_nothing(app, greet, node):
    unique = greet.options(unique="unfinished")
    first = await unique.submit()
    await node.finish_failed(await node.claim_one())
    await app.jobs.discard(first.id)
    assert not (await unique.submit()).existed


async def test_a_job_that_is_given_back_unstarted_waits_again(greet, node):
    unique = greet.options(unique="waiting")
    first = await unique.submit()
    await node.give_back(await node.claim_one())
    assert (await unique.submit()).id == first.id


# -- while it is not ended


async def test_while_one_runs_or_waits_for_its_retry_a_second_submit_returns_it(greet, node):
    unique = greet.options(unique="unfinished")
    first = await unique.submit()
    row = await node.claim_one()
    assert (await unique.submit()).id == first.id
    await node.retry_later(row)
    assert (await unique.submit()).id == first.id
    assert not (await greet.options(unique="waiting").submit()).existed, "it has started once"


# -- within a time


async def test_within_its_time_a_job_stands_for_others_also_when_it_has_ended(
    app, greet, node, sandbox
):
    unique = greet.options(unique=timedelta(minutes=1))
    first = await unique.submit()
    await node.finish_succeeded(await node.claim_one())
    await sandbox.advance(seconds=59)
    assert (await unique.submit()).id == first.id
    await sandbox.advance(seconds=1)
    second = await unique.submit()
    assert not second.existed
    await sandbox.advance(seconds=59)
    assert (await unique.submit()).id == second.id


# -- what a second submit does


async def test_a_second_submit_is_refused_by_an_error_that_names_the_first(app, greet):
    unique = greet.options(unique="waiting", unique_conflict="refuse")
    first = await unique.submit()
    with pytest.raises(DuplicateJob, match="with these arguments exists already") as caught:
        await unique.submit()
    assert (caught.value.job_id, caught.value.task) == (str(first.id), "greet")
    keyed = greet.options(unique="waiting", unique_conflict="refuse", unique_key="k")
    await keyed.submit("Ada")
    with pytest.raises(DuplicateJob, match="unique key 'k'"):
        await keyed.submit("Alan")
    assert len(await everything(app)) == 2


async def test_a_second_submit_replaces_the_arguments_of_a_job_that_waits(app, greet, node):
    unique = greet.options(unique="waiting", unique_conflict="replace", unique_key="k")
    first = await unique.submit("Ada")
    second = await unique.submit("Alan")
    assert (second.id, second.existed) == (first.id, True)
    row = await node.claim_one()
    assert row["payload"] == '{"name":"Alan"}'
    third = await unique.submit("Grace")
    assert not third.existed, "the first has started"
    assert await names(app) == ["Alan", "Grace"]


async def test_headers_and_tags_are_replaced_with_the_arguments(app, greet):
    first = await greet.options(
        unique="waiting", unique_conflict="replace", unique_key="k", tags=["one"]
    ).submit("Ada")
    await greet.options(
        unique="waiting", unique_conflict="replace", unique_key="k", tags=["two"]
    ).submit("Alan")
    assert (await first.status()).headers["tags"] == ["two"]


async def test_a_key_belongs_to_its_task(app, greet):
    @app.task(unique="waiting")
    async def part(name: str) -> None: ...

    first = await greet.options(unique="waiting", unique_key="k").submit("Ada")
    second = await part.options(unique_key="k").submit("Ada")
    assert first.id != second.id


# -- what it is unique by


async def test_a_task_declares_by_which_of_its_arguments_jobs_are_unique(app):
    @app.task(unique="waiting", unique_key="customer")
    async def one(customer: str, amount: int = 0) -> None: ...

    @app.task(unique="waiting", unique_key=["customer", "kind"])
    async def two(customer: str, kind: str = "a", amount: int = 0) -> None: ...

    @app.task(unique="waiting", unique_key=lambda customer, **_: customer.lower())
    async def three(customer: str) -> None: ...

    assert not (await one.submit("Ada", 1)).existed
    assert (await one.submit("Ada", 2)).existed
    assert not (await one.submit("Alan", 2)).existed
    assert not (await two.submit("Ada", "a", 1)).existed
    assert (await two.submit("Ada", amount=2)).existed, "a default is an argument"
    assert not (await two.submit("Ada", "b", 1)).existed
    assert not (await two.submit("x" * 1000)).existed
    assert (await two.submit("x" * 1000)).existed
    assert not (await three.submit("ADA")).existed
    assert (await three.submit("ada")).existed


async def test_the_version_of_a_payload_is_no_argument_of_its_key(app):
    @app.task(
        unique="waiting",
        version=2,
        upgrade=lambda payload, _: payload,
        unique_key=lambda customer: customer,
    )
    async def versioned(customer: str) -> None: ...

    await versioned.submit("Ada")
    assert (await versioned.submit("Ada")).existed


async def test_the_order_of_arguments_makes_no_other_job(app):
    first = await app.submit("elsewhere", {"a": 1, "b": {"c": 2, "d": 3}}, unique="waiting")
    again = await app.submit("elsewhere", {"b": {"d": 3, "c": 2}, "a": 1}, unique="waiting")
    assert again.id == first.id


# -- debounce


async def test_a_debounced_job_runs_after_the_last_submit_with_its_arguments(app, sandbox):
    ran = []

    @app.task(debounce=5, unique_key="document")
    async def index(document: int, version: int) -> None:
        ran.append((document, version))

    first = await index.submit(1, version=1)
    await sandbox.advance(seconds=4)
    again = await index.submit(1, version=2)
    other = await index.submit(2, version=7)
    assert (again.id, again.existed, other.existed) == (first.id, True, False)
    await sandbox.advance(seconds=4)
    await sandbox.run_due()
    assert ran == []
    await sandbox.run_for(seconds=1)
    assert ran == [(1, 2), (2, 7)]
    third = await index.submit(1, version=3)
    assert not third.existed
    await sandbox.run_for(seconds=5)
    assert ran[-1] == (1, 3)


async def test_a_debounced_job_runs_at_its_latest_moment_whatever_comes(app, sandbox):
    ran = []

    @app.task(debounce=5, debounce_max=12, unique_key=lambda n: "all")
    async def index(n: int) -> None:
        ran.append(n)

    for second in range(1, 13):
        await index.submit(second)
        await sandbox.run_for(seconds=1)
    assert ran == [12]


async def test_explain_says_until_when_a_job_is_debounced_or_throttled(app, greet, sandbox):
    debounced = await greet.options(debounce=90).submit()
    why = await app.jobs.explain(debounced.id)
    assert why.code == "debounced"
    assert "(in 1 min 30 s)" in why.sentence
    last = greet.options(throttle=60, throttle_keep="last", unique_key="k")
    await last.submit()
    kept = await last.submit()
    why = await app.jobs.explain(kept.id)
    assert why.code == "throttled"
    assert "(in 1 min)" in why.sentence


async def test_a_debounced_job_is_not_claimed_ahead_of_its_time(greet, node, hot, limits, sandbox):
    """A worker that has it already would keep the next submit from putting it off."""
    await hot_execute(hot, "update {}.setting set value = 10000 where name = 'horizon_ms'")
    first = await greet.options(debounce=2).submit()
    assert await node.claim() == []
    assert await limits.claim_shared(node.id, {BASE: 5}, 5, ["greet"]) == []
    await sandbox.advance(seconds=1)
    assert (await greet.options(debounce=2).submit()).id == first.id
    await sandbox.advance(seconds=1)
    assert await limits.claim_shared(node.id, {BASE: 5}, 5, ["greet"]) == []
    assert (await greet.options(debounce=60).submit()).id == first.id, "and back to the future"
    assert (await first.status()).state == "scheduled"
    await sandbox.advance(seconds=60)
    await UpkeepStore(hot).release(list(range(128)), [None] * 128, 100)
    [row] = await limits.claim_shared(node.id, {BASE: 5}, 5, ["greet"])
    assert row["id"] == first.id


# -- throttle


async def test_a_throttled_task_has_one_job_in_a_time(greet, sandbox, node):
    throttled = greet.options(throttle=60)
    first = await throttled.submit()
    await node.finish_succeeded(await node.claim_one())
    await sandbox.advance(seconds=59)
    assert (await throttled.submit()).id == first.id
    await sandbox.advance(seconds=1)
    assert not (await throttled.submit()).existed


async def test_the_last_of_the_throttled_submits_is_kept_for_the_end_of_the_time(app, sandbox):
    ran = []

    @app.task(throttle=60, throttle_keep="last", unique_key=lambda n: "all")
    async def refresh(n: int) -> None:
        ran.append((n, sandbox.now()))

    start = sandbox.now()
    answers = []
    for n in range(1, 10):  # at 0, 20, 40, ... 160 seconds
        answers.append(await refresh.submit(n))
        await sandbox.run_for(seconds=20)
    await sandbox.run_for(seconds=120)
    assert [(n, (at - start).total_seconds()) for n, at in ran] == [
        (1, 0), (3, 60), (6, 120), (9, 180),
    ]  # fmt: skip
    assert [answer.existed for answer in answers[:4]] == [False, False, True, False]


async def test_what_was_kept_and_cancelled_by_hand_can_be_kept_again(app, greet, sandbox):
    last = greet.options(throttle=60, throttle_keep="last", unique_key="k")
    await last.submit("Ada")
    kept = await last.submit("Alan")
    await kept.cancel()
    again = await last.submit("Grace")
    assert not again.existed
    assert (await again.status()).due_at == sandbox.now() + timedelta(seconds=60)


# -- upkeep


async def test_keys_that_count_no_more_are_forgotten(greet, node, limits, sandbox, hot):
    await greet.options(unique="waiting").submit("waits")
    await greet.options(unique=3600).submit("in its time")
    await greet.options(unique="waiting", priority=9).submit("ended")
    [row, *others] = await node.claim()
    await node.finish_succeeded(row)
    for other in others:
        await node.give_back(other)
    await sandbox.advance(minutes=5)
    assert await limits.forget_unique_keys(100) == 1
    await sandbox.advance(hours=1)
    assert await limits.forget_unique_keys(100) == 0, "both jobs wait still"
    await node.claim()
    for row in await hot_execute(hot, "select id from {}.present"):
        await hot_execute(hot, "delete from {}.present where id = '" + str(row["id"]) + "'")
    assert await limits.forget_unique_keys(100) == 2


# -- SQL


@pytest.fixture
async def connection(app):
    connection = await asyncpg.connect(app.settings.database_url)
    yield connection
    await connection.close()


async def test_sql_submits_unique_jobs(app, connection, sandbox):
    submit = f"select {app.settings.schema}.submit"
    first = await connection.fetchval(submit + """('x', '{"a": 1}', unique_while => 'waiting')""")
    again = await connection.fetchval(submit + """('x', '{"a":1}', unique_while => 'waiting')""")
    assert first == again
    with pytest.raises(asyncpg.PostgresError, match=f"job {first} of task 'x' is unique") as caught:
        await connection.fetchval(
            submit + "('x', '{\"a\": 1}', unique_for => '1 hour', unique_conflict => 'refuse')"
        )
    assert caught.value.sqlstate == "RT003"
    debounced = await connection.fetchval(
        submit + "('x', '{\"n\": 1}', debounce => '5 seconds', unique_key => 'k')"
    )
    await sandbox.advance(seconds=3)
    assert debounced == await connection.fetchval(
        submit + "('x', '{\"n\": 2}', debounce => '5 seconds', unique_key => 'k')"
    )
    job = await app.jobs.get(debounced)
    assert (job.payload, job.due_at) == ({"n": 2}, sandbox.now() + timedelta(seconds=5))
    assert first == await connection.fetchval(submit + "('x', '{\"a\": 1}', throttle => '1 hour')")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("unique_while => 'running'", "unique_while must be waiting or unfinished"),
        ("unique_key => 'k'", "unique_key needs unique_while, unique_for, debounce or throttle"),
        ("debounce => '1 s', throttle => '1 s'", "give one of"),
        ("debounce => '-1 s'", "debounce must be a time above 0"),
        ("debounce => '5 s', debounce_max => '1 s'", "debounce_max must be at least debounce"),
        ("unique_for => '1 s', unique_conflict => 'replace'", "only of a job that waits"),
        ("unique_while => 'waiting', unique_conflict => 'x'", "return, refuse or replace"),
        ("throttle => '1 s', throttle_keep => 'all'", "throttle_keep must be first or last"),
        ("throttle => '1 s', delay => '1 s'", "throttle sets the time"),
        ("unique_while => 'waiting', unique_key => ''", "unique_key must be 1 to 255"),
    ],
)
async def test_sql_says_what_is_wrong_and_stores_nothing(app, connection, options, problem):
    with pytest.raises(asyncpg.PostgresError, match=problem) as caught:
        await connection.fetchval(f"select {app.settings.schema}.submit('x', {options})")
    assert caught.value.sqlstate == "RT001"
    assert await everything(app) == []


# -- what Python refuses


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"unique": "running"}, 'unique: must be "waiting", "unfinished" or a number of seconds'),
        ({"unique": 0}, "unique: must be 0.001 seconds"),
        ({"unique": True}, "unique: must be 0.001 seconds"),
        ({"unique_key": "k"}, "unique_key: needs unique, debounce or throttle"),
        ({"unique_conflict": "refuse"}, "unique_conflict: needs unique"),
        ({"unique": 5, "unique_conflict": "replace"}, 'replace needs unique="waiting"'),
        ({"unique": "waiting", "unique_conflict": "x"}, "must be one of return, refuse, replace"),
        ({"debounce": 5, "throttle": 5}, "give one of unique, debounce and throttle"),
        ({"debounce": 5, "debounce_max": 4}, "debounce_max: must be at least debounce"),
        ({"debounce": 5, "delay": 1}, "debounce: sets the time of the job"),
        ({"debounce": 5, "order_key": "k"}, "order_key: can't be given with debounce"),
        ({"throttle_keep": "last"}, "throttle_keep: needs throttle"),
        ({"throttle": 5, "throttle_keep": "x"}, "throttle_keep: must be first or last"),
        ({"unique": "waiting", "unique_key": "x" * 256}, "unique_key must be a text of 1 to 255"),
    ],
)
async def test_a_wrong_option_is_named_and_nothing_is_stored(app, greet, options, problem):
    with pytest.raises(InvalidArguments, match=problem):
        await greet.options(**options).submit()
    assert await everything(app) == []


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"unique": "running"}, "unique: must be"),
        ({"unique_key": "n"}, "unique_key needs unique, debounce or throttle"),
        ({"unique": "waiting", "unique_key": "m"}, "names 'm', which is no parameter"),
        ({"unique": "waiting", "unique_key": ["n", "m"]}, "names 'm', which is no parameter"),
        ({"unique": "waiting", "unique_key": []}, "names no parameter"),
        ({"debounce": 1, "order_key": "n"}, "order_key can't be given with debounce"),
    ],
)
def test_a_wrong_declaration_is_refused(app, options, problem):
    with pytest.raises(ConfigError, match=problem):

        @app.task(**options)
        async def wrong(n: int) -> None: ...


# -- many at once


async def test_many_are_stored_each_once_or_none_when_one_is_refused(app, greet):
    answers = await greet.options(unique="waiting").submit_many(["a", "b", "a"])
    assert [answer.existed for answer in answers] == [False, False, True]
    assert answers[0].id == answers[2].id
    with pytest.raises(DuplicateJob):
        await greet.options(unique="waiting", unique_conflict="refuse").submit_many(["c", "b"])
    assert await names(app) == ["a", "b"]
