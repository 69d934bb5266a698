"""Unique jobs in races: submits of one key at the same moment; a claim, a cancel or a crash between."""

from __future__ import annotations

import asyncio
import contextlib

import asyncpg
import pytest

from proof.waiting import eventually
from rota import App, StoreUnavailable
from rota.store.limits import LimitStore
from rota.store.work import NIL, UpkeepStore
from tests.support.jobs import everything

BASE = "default/default"


@pytest.fixture
def app(sandbox):
    return sandbox.app


@pytest.fixture
async def connect(app):
    """Opens connections of a caller, in a transaction that the test ends."""
    async with contextlib.AsyncExitStack() as stack:

        async def connect(isolation="read_committed"):
            connection = await asyncpg.connect(app.settings.database_url)
            stack.push_async_callback(connection.close, timeout=5)
            transaction = connection.transaction(isolation=isolation)
            await transaction.start()
            return connection, transaction

        yield connect


@pytest.fixture
async def others(app):
    """More apps on the same tables, each with connections of its own."""
    async with contextlib.AsyncExitStack() as stack:

        async def others(count):
            found = []
            for _ in range(count):
                other = App(database_url=app.settings.database_url, schema=app.settings.schema)
                stack.push_async_callback(other.close)
                other.task(name="greet")(_greet)
                found.append(other)
            return found

        yield others


async def _greet(name: str = "Ada") -> None: ...


async def waits_for_a_lock(connection, pid=None) -> bool:
    return await connection.fetchval(
        "select count(*) > 0 from pg_locks as l where not granted and ($1::int is null or l.pid = $1)",
        pid,
    )


# -- at the same moment


@pytest.mark.parametrize(
    "options",
    [
        {"unique": "waiting"}, {"unique": "unfinished"}, {"unique": 60}, {"throttle": 60},
        {"debounce": 60}, {"unique": "waiting", "unique_conflict": "replace"},
        {"unique": "waiting", "key": "k"},
    ],
)  # fmt: skip
async def test_of_submits_at_the_same_moment_one_is_stored(app, greet, others, options):
    apps = [app, *await others(3)]
    answers = await asyncio.gather(
        *(each.tasks["greet"].options(**options).submit() for each in apps * 10)
    )
    assert len({answer.id for answer in answers}) == 1
    assert [answer.existed for answer in answers].count(False) == 1
    assert len(await everything(app)) == 1


async def test_of_throttled_submits_at_the_same_moment_one_runs_and_one_is_kept(app, greet, others):
    apps = [app, *await others(3)]
    options = {"throttle": 60, "throttle_keep": "last", "unique_key": "k"}
    answers = await asyncio.gather(
        *(each.tasks["greet"].options(**options).submit(str(n)) for n, each in enumerate(apps * 10))
    )
    assert len({answer.id for answer in answers}) == 2
    assert len(await everything(app)) == 2


async def test_bulks_that_name_the_same_keys_in_another_order_do_not_wait_in_a_circle(
    app, greet, others
):
    [other] = await others(1)
    calls = [str(number) for number in range(50)]
    for each in (app, other):
        each.unique = each.tasks["greet"].options(unique="waiting")
    await asyncio.gather(
        *(app.unique.submit_many(calls) for _ in range(3)),
        *(other.unique.submit_many(calls[::-1]) for _ in range(3)),
    )
    assert len(await everything(app)) == 50


# -- a caller's transaction


@pytest.mark.parametrize("end", ["commit", "rollback", "crash"])
async def test_a_second_submit_waits_for_the_transaction_of_the_first(app, greet, connect, end):
    await greet.submit("makes the queue")
    connection, transaction = await connect()
    first = await greet.options(unique="waiting", connection=connection).submit()
    second = asyncio.create_task(greet.options(unique="waiting").submit())
    other = await greet.options(unique="waiting").submit("another key")
    plain = await greet.submit("no key")
    assert not other.existed
    assert not plain.existed
    watcher, _ = await connect()
    await eventually(lambda: waits_for_a_lock(watcher), what="the wait for the first")
    assert not second.done()
    if end == "crash":
        await watcher.execute("select pg_terminate_backend($1)", connection.get_server_pid())
    else:
        await getattr(transaction, end)()
    answer = await second
    assert answer.existed == (end == "commit")
    assert (answer.id == first.id) == (end == "commit")
    assert len(await everything(app)) == 4


async def test_a_submit_that_waits_too_long_is_told_why_and_stores_nothing(
    app, greet, connect, others
):
    connection, _ = await connect()
    await greet.options(unique="waiting", connection=connection).submit()
    impatient = App(
        database_url=app.settings.database_url, schema=app.settings.schema, connect_timeout=0.3
    )
    impatient.task(name="greet")(_greet)
    try:
        waiting = impatient.tasks["greet"].options(unique="waiting")
        with pytest.raises(StoreUnavailable, match="same unique key"):
            await waiting.submit()
    finally:
        await impatient.close()
    assert await everything(app) == []


@pytest.mark.parametrize("scope", ["waiting", "unfinished"])
async def test_a_job_that_stands_for_a_submit_starts_after_its_transaction(
    app, greet, node, connect, scope
):
    """Or it would not see what the transaction wrote, and nobody else would run for it."""
    first = await greet.options(unique=scope).submit()
    connection, transaction = await connect()
    second = await greet.options(unique=scope, connection=connection).submit()
    assert second.id == first.id
    assert await node.claim() == []
    await transaction.commit()
    assert (await node.claim_one())["id"] == first.id


async def test_a_scheduled_job_that_stands_for_a_submit_is_released_after_its_transaction(
    greet, hot, connect, sandbox
):
    shards, everyone = list(range(128)), [None] * 128
    await greet.options(unique="waiting", delay=5).submit()
    await greet.options(delay=5).submit("another")
    connection, transaction = await connect()
    second = await greet.options(unique="waiting", connection=connection).submit()
    assert second.existed
    await sandbox.advance(seconds=5)
    upkeep = UpkeepStore(hot)
    assert (await upkeep.release(shards, everyone, 100))[0] == 1
    await transaction.commit()
    assert (await upkeep.release(shards, everyone, 100))[0] == 1


@pytest.mark.parametrize("conflict", ["return", "replace"])
async def test_a_submit_while_the_first_is_being_claimed_waits_for_the_claim(
    app, greet, hot, node, connect, conflict
):
    unique = {"unique": "waiting", "unique_conflict": conflict, "unique_key": "k"}
    first = await greet.options(**unique).submit("Ada")
    connection, transaction = await connect()
    async with hot.connection() as claiming:
        claim = claiming.transaction()
        await claim.start()
        [row] = await claiming.fetch(
            hot.queries["claim"], node.id, [BASE], [-(2**63)], [NIL], [10],
            ["greet"],
        )  # fmt: skip
        assert row["id"] == first.id
        submitting = asyncio.create_task(
            greet.options(**unique, connection=connection).submit("Alan")
        )
        watcher, _ = await connect()
        await eventually(lambda: waits_for_a_lock(watcher, connection.get_server_pid()))
        await claim.commit()
    second = await submitting
    await transaction.commit()
    assert not second.existed
    assert second.id != first.id
    assert (await first.status()).payload == {"name": "Ada"}


async def test_a_snapshot_that_is_older_than_the_first_jobs_start_is_refused(greet, node, connect):
    await greet.options(unique="waiting").submit()
    connection, _ = await connect("repeatable_read")
    await connection.fetchval("select 1")
    await node.claim_one()
    with pytest.raises(asyncpg.SerializationError):
        await greet.options(unique="waiting", connection=connection).submit()


async def test_a_cancel_by_hand_waits_for_the_transaction_that_relies_on_the_job(
    app, greet, connect
):
    first = await greet.options(unique="waiting").submit()
    connection, transaction = await connect()
    await greet.options(unique="waiting", connection=connection).submit()
    cancelling = asyncio.create_task(first.cancel())
    watcher, _ = await connect()
    await eventually(lambda: waits_for_a_lock(watcher))
    await transaction.commit()
    assert await cancelling == "cancelled"
    assert not (await greet.options(unique="waiting").submit()).existed


# -- lost answers


@pytest.mark.parametrize("end", ["waits", "ended", "ended and forgotten by another"])
async def test_a_repeated_submit_finds_its_own_job(app, greet, node, end):
    """Its answer was lost: it must neither be stored again nor be refused because of itself."""
    unique = greet.options(unique="unfinished", unique_conflict="refuse")
    job = app.rota.submissions.new_call(greet, unique._options, (), {})
    store = await app.store()
    [stored] = await store._submit_unique(contextlib.nullcontext(), [job], False, False)
    assert stored.outcome == "stored"
    if end != "waits":
        await node.finish_succeeded(await node.claim_one())
    if end == "ended and forgotten by another":
        await unique.submit()
    [again] = await store._submit_unique(contextlib.nullcontext(), [job], False, True)
    assert (again.id, again.outcome) == (job.id, "stored")
    assert len(await everything(app)) == (2 if end.startswith("ended and") else 1)


async def test_an_idempotency_key_is_answered_as_the_first_time(app, greet, node):
    unique = greet.options(unique="unfinished")
    first = await unique.submit()
    keyed = greet.options(unique="unfinished", key="mine")
    assert (await keyed.submit()).id == first.id
    await node.finish_succeeded(await node.claim_one())
    again = await keyed.submit()
    assert (again.id, again.existed) == (first.id, True)
    assert not (await unique.submit()).existed


# -- everything at once


@pytest.mark.parametrize("own_transaction", [True, False])
async def test_what_was_written_before_a_submit_is_seen_by_a_run_after_it(
    app, greet, hot, node, others, own_transaction
):
    """The promise of `waiting`, while workers claim all the time: a job that stands for others starts
    after them. Without it, the last change would be missed."""
    schema, rounds = app.settings.schema, 60
    seen, submitted, done = [], [], asyncio.Event()
    async with hot.connection() as connection:
        await connection.execute(f"create table {schema}.note (id int primary key, version int)")
        await connection.execute(f"insert into {schema}.note values (1, 0)")

    async def write(each):
        connection = await asyncpg.connect(app.settings.database_url)
        change = f"update {schema}.note set version = version + 1 where id = 1 returning version"
        try:
            for _ in range(rounds):
                if own_transaction:
                    async with connection.transaction():
                        # First the submit: its answer must hold until what follows is committed.
                        task = each.tasks["greet"]
                        await task.options(unique="waiting", connection=connection).submit()
                        submitted.append(await connection.fetchval(change))
                else:
                    submitted.append(await connection.fetchval(change))
                    await each.tasks["greet"].options(unique="waiting").submit()
        finally:
            await connection.close()

    async def work():
        async with hot.connection() as connection:
            while True:
                last = done.is_set()
                for row in await node.claim():
                    seen.append(await connection.fetchval(f"select version from {schema}.note"))
                    await node.finish_succeeded(row)
                waiting = await connection.fetchval(
                    f"select count(*) from {schema}.present where state = 3 and attempt = 0"
                )
                assert waiting <= 1
                if last and waiting == 0:
                    return

    working = asyncio.create_task(work())
    await asyncio.gather(*(write(each) for each in (app, *await others(2))))
    done.set()
    await working
    assert max(submitted) == 3 * rounds
    assert seen[-1] == 3 * rounds


async def test_the_last_arguments_of_a_debounced_job_run_last(app, greet, hot, node):
    limits, done, ran = LimitStore(hot), asyncio.Event(), []

    async def work():
        while True:
            last = done.is_set()
            rows = await limits.claim_shared(node.id, {BASE: 5}, 5, ["greet"])
            for row in rows:
                ran.append(int(row["payload"].split('"')[-2]))
                await node.finish_succeeded(row)
            if last and not rows and not await everything_waits():
                return

    async def everything_waits():
        return await hot.fetchval("count_jobs", "default", 3, None, None)

    async with hot.connection() as connection:  # a clock that goes, and not the sandbox's
        await connection.execute(
            f"create or replace function {app.settings.schema}.now() returns timestamptz"
            " language sql stable parallel safe as 'select statement_timestamp()'"
        )
        await connection.execute(
            f"update {app.settings.schema}.setting set value = 1000 where name = 'horizon_ms'"
        )
    working = asyncio.create_task(work())
    debounced = greet.options(debounce=0.003, unique_key="k")
    for number in range(1, 201):
        await debounced.submit(str(number))
    done.set()
    await working
    assert ran == sorted(set(ran))
    assert ran[-1] == 200
