"""Depth limits of queues and namespaces: who is refused, who is not, and whether the count is right."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from rota import App, ConfigError, InvalidArguments, QueueFull, Retry, ScheduleSpec
from rota.core.time.schedule import Cron
from rota.model import State
from rota.operations.installation import Installation
from rota.scheduler.depths import Depths
from rota.store.depths import DepthStore
from rota.store.quotas import Limits
from rota.store.search import JobFilter
from rota.store.work import LaneClaim, UpkeepStore
from tests.support.fake_node import LANE
from tests.support.jobs import everything


class Nobody:
    """Owns no shard."""

    def held(self) -> list[Any]:
        return []


@pytest.fixture
def app(sandbox):
    return sandbox.app


@pytest.fixture
def depths(hot) -> Depths:
    return Depths(hot, Nobody())  # type: ignore[arg-type]


@pytest.fixture
def store(hot) -> DepthStore:
    return DepthStore(hot)


async def query(app: App, text: str, *values: Any) -> list[Any]:
    connection = await asyncpg.connect(app.settings.database_url)
    try:
        return await connection.fetch(text.format(app.settings.schema), *values)
    finally:
        await connection.close()


async def depth(app: App, depths: Depths, queue: str = "default") -> int | None:
    """The depth after a fold, which must be what a count finds."""
    await depths.keep()
    [status] = [one for one in await app.queues.list() if one.name == queue]
    counted = await query(
        app,
        "select count(*) from {0}.job where {0}.queue_of(lane) = $1 and state <= 4 and namespace = $2",
        queue, app.settings.namespace,
    )  # fmt: skip
    if status.depth is not None:
        assert status.depth == counted[0][0], "the depth is not the number of jobs"
    return status.depth


# -- who is refused


async def test_at_the_limit_submits_are_refused_with_an_error_that_says_when_to_come_back(
    app, greet
):
    await app.queues.set_max_depth("default", 3)
    for name in "abc":
        await greet.submit(name)
    with pytest.raises(QueueFull) as caught:
        await greet.submit("d")
    error = caught.value
    assert (error.queue, error.quota, error.depth, error.max_depth) == ("default", "queue", 3, 3)
    assert error.retry_after
    assert 1 <= error.retry_after <= 60
    assert "queue 'default' has 3 jobs" in str(error)
    assert len(await app.jobs.list()) == 3


async def test_a_queue_opens_again_when_a_fifth_of_it_is_free(app, greet, depths, sandbox):
    await app.queues.set_max_depth("default", 10)
    jobs = await greet.submit_many("abcdefghij")
    with pytest.raises(QueueFull):
        await greet.submit("k")
    await jobs[0].cancel()
    await sandbox.advance(seconds=1)
    with pytest.raises(QueueFull, match="it takes jobs again at 8"):
        await greet.submit("k")
    await jobs[1].cancel()
    await sandbox.advance(seconds=1)
    await greet.submit("k")
    assert await depth(app, depths) == 9


@pytest.mark.parametrize("many", [4, 250, 2_100])
async def test_a_bulk_that_does_not_fit_is_refused_whole(app, greet, depths, many):
    """Below and above what is copied, and more than one statement."""
    await app.queues.set_max_depth("default", many + 1)
    await greet.submit_many("ab")
    with pytest.raises(QueueFull) as caught:
        await greet.submit_many(["x"] * many)
    assert caught.value.retry_after is not None
    assert await depth(app, depths) == 2
    await greet.submit_many(["x"] * (many - 1))
    assert await depth(app, depths) == many + 1


@pytest.mark.parametrize("many", [4, 250])
async def test_a_bulk_that_never_fits_says_so(app, greet, many):
    await app.queues.set_max_depth("default", 3)
    with pytest.raises(QueueFull, match="more than the max_depth") as caught:
        await greet.options(block=True).submit_many(["x"] * many)
    assert caught.value.retry_after is None


async def test_of_submits_that_are_joined_those_that_fit_are_stored(app, greet, depths):
    await app.queues.set_max_depth("default", 5)
    answers = await asyncio.gather(
        *(greet.submit(str(n)) for n in range(20)), return_exceptions=True
    )
    refused = [one for one in answers if isinstance(one, QueueFull)]
    assert len(refused) == 15
    assert await depth(app, depths) == 5


async def test_other_queues_do_not_feel_it(app, greet):
    await app.queues.set_max_depth("default", 1)
    await greet.submit("a")
    await asyncio.gather(*(greet.options(queue="other").submit(str(n)) for n in range(5)))


async def test_a_submit_that_its_key_has_stored_before_is_not_refused(app, greet):
    await app.queues.set_max_depth("default", 1)
    first = await greet.options(key="order-1").submit("a")
    again = await greet.options(key="order-1").submit("a")
    assert (again.id, again.existed) == (first.id, True)
    with pytest.raises(QueueFull):
        await greet.options(key="order-2").submit("a")


async def test_a_unique_job_that_another_stands_for_is_not_refused(app, greet):
    await app.queues.set_max_depth("default", 1)
    unique = greet.options(unique="waiting")
    first = await unique.submit("a")
    assert (await unique.submit("a")).id == first.id
    with pytest.raises(QueueFull):
        await unique.submit("b")


async def test_a_repeated_submit_whose_answer_was_lost_is_not_refused(app, greet, hot, depths):
    """The first attempt was committed: a refusal would make the caller submit it again."""
    import msgspec

    from rota.store.rows import NewJob

    await app.queues.set_max_depth("default", 1)
    handle = await greet.submit("a")
    same = NewJob(handle.id, "default", greet.name, msgspec.Raw(b'{"name":"a"}'))
    body = msgspec.json.encode([same]).decode()
    rows = await hot.fetch("submit_jobs", body, True, "own")
    assert rows[0]["job_id"] == handle.id
    assert await depth(app, depths) == 1


async def test_a_limit_on_a_namespace_holds_for_all_its_queues_together(app, greet, depths):
    namespaces = Installation(app.connector).namespaces
    await greet.submit("before")
    namespace = await namespaces.set_limits("default", Limits(max_depth=3))
    assert (namespace.limits.max_depth, namespace.depth) == (3, 1)
    await greet.options(queue="new").submit("a")
    await greet.options(queue="newer").submit("b")
    for queue in ("default", "new", "newest"):
        with pytest.raises(QueueFull) as caught:
            await greet.options(queue=queue).submit("c")
        assert caught.value.quota == "namespace"
    assert [await depth(app, depths, queue) for queue in ("default", "new", "newer")] == [1, 1, 1]
    await namespaces.remove_limits("default")
    await greet.submit("c")
    assert (await app.queues.get("default")).depth is None


# -- waiting for room


async def test_a_submit_with_block_waits_for_room(app, greet):
    await app.queues.set_max_depth("default", 1)
    first = await greet.submit("a")
    waiting = asyncio.create_task(greet.options(block=True).submit("b"))
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done
    await first.cancel()
    assert (await waiting).id != first.id


async def test_waiting_ends_with_its_timeout(app, greet):
    await app.queues.set_max_depth("default", 1)
    await greet.submit("a")
    with pytest.raises(QueueFull):
        await greet.options(block=True, block_timeout=0.2).submit("b")
    with pytest.raises(QueueFull):
        await app.submit(greet.name, {"name": "b"}, block=True, block_timeout=timedelta(0))


def test_the_options_of_waiting_are_checked(app, greet):
    for options, field in (
        ({"block": 1}, "block must be"),
        ({"block_timeout": 3}, "block_timeout needs"),
        ({"block": True, "block_timeout": -1}, "block_timeout must be"),
        ({"block": True, "connection": object()}, "block can't be given with connection"),
    ):
        with pytest.raises(InvalidArguments, match=field):
            greet.options(**options)


# -- callers' own transactions


async def test_a_callers_transaction_is_warned_up_to_twice_the_limit_and_then_refused(app, greet):
    await app.queues.set_max_depth("default", 2)
    connection = await asyncpg.connect(app.settings.database_url)
    try:
        async with connection.transaction():
            mine = greet.options(connection=connection)
            handles = [await mine.submit(str(n)) for n in range(4)]
            assert [bool(handle.warnings) for handle in handles] == [False, False, True, True]
            assert (
                "from 4 on, submits in your own transactions are refused" in handles[2].warnings[0]
            )
            with pytest.raises(QueueFull) as caught:
                async with connection.transaction():
                    await mine.submit("x")
            assert caught.value.depth == 4
    finally:
        await connection.close()
    with pytest.raises(QueueFull):
        await greet.submit("x")


async def test_plain_sql_is_a_callers_transaction(app, greet, depths):
    await app.queues.set_max_depth("default", 1)
    submit = "select {}.submit('" + greet.name + '\', \'{{"name": "x"}}\')'
    await query(app, submit)
    await query(app, submit)
    await depths.keep()
    with pytest.raises(asyncpg.PostgresError) as caught:
        await query(app, submit)
    assert caught.value.sqlstate == "RT004"
    assert "Try again in" in caught.value.hint


async def test_a_callers_first_job_of_a_queue_makes_nobody_wait(app, greet, depths, node):
    connection = await asyncpg.connect(app.settings.database_url)
    key = {"concurrency_key": "k"}
    try:
        transaction = connection.transaction()
        await transaction.start()
        await greet.options(queue="fresh", connection=connection).submit("mine")
        await greet.options(queue="fresh", connection=connection, **key).submit("mine")
        await greet.options(queue="fresh", connection=connection).submit_many(["m"] * 3)
        async with asyncio.timeout(30):
            await greet.options(queue="fresh").submit("theirs")
            await greet.options(queue="fresh", **key).submit("theirs")
            await greet.options(queue="fresh").submit_many(["t"] * 300)
            other = await asyncpg.connect(app.settings.database_url)
            async with other.transaction():
                await greet.options(queue="fresh", connection=other).submit("also mine")
            await other.close()
        await transaction.commit()
    finally:
        await connection.close()
    await depths.keep()
    lanes = await query(app, "select lane from {}.lane where queue = 'fresh' order by 1")
    assert [row["lane"] for row in lanes] == ["default/fresh", "default/fresh#"]
    assert await query(app, "select from {}.new_lane") == []
    assert (await app.queues.get("fresh")).ready == 308


async def test_a_lane_of_a_callers_transaction_is_served_before_a_scheduler_has_seen_it(
    app, greet, hot
):
    connection = await asyncpg.connect(app.settings.database_url)
    async with connection.transaction():
        await greet.options(queue="fresh", connection=connection).submit("mine")
    await connection.close()
    assert [row["lane"] for row in await hot.fetch("lanes", "default")] == ["default/fresh"]


# -- who is never refused, and is counted


async def test_retries_returns_and_releases_are_never_refused(app, sandbox, depths, hot, node):
    @app.task(retry=Retry(max_attempts=3))
    async def flaky() -> None:
        raise ValueError

    await app.queues.set_max_depth("default", 1)
    await flaky.submit()
    job = await node.claim_one(tasks=["flaky"])
    await node.retry_later(job, 60)
    assert await depth(app, depths) == 1
    with pytest.raises(QueueFull):
        await flaky.submit()
    await sandbox.advance(seconds=60)
    await UpkeepStore(hot).release(list(range(128)), [None] * 128, 100)
    assert await depth(app, depths) == 1
    job = await node.claim_one(tasks=["flaky"])
    await node.finish_failed(job)
    assert await depth(app, depths) == 0
    await flaky.submit()
    [dead] = await app.jobs.list(state="failed")
    await app.jobs.retry(dead.id)
    assert await depth(app, depths) == 2  # over the limit, and not refused


async def test_discarding_a_dead_letter_changes_no_depth(app, greet, depths, node):
    await app.queues.set_max_depth("default", 10)
    await greet.submit_many("abc")
    await node.finish_failed((await node.claim(LaneClaim(LANE, 1)))[0])
    assert await depth(app, depths) == 2
    [dead] = await app.jobs.list(state="failed")
    await app.jobs.discard(dead.id)
    assert await depth(app, depths) == 2


async def test_schedules_and_backfills_are_never_refused(app, sandbox, depths):
    @app.task
    async def tick() -> None: ...

    await app.queues.set_max_depth("default", 1)
    await tick.submit()
    await app.schedules.put(ScheduleSpec(name="often", task="tick", rule=Cron("* * * * *")))
    await app.schedules.trigger("often")
    assert await depth(app, depths) == 2


# -- bulk actions, and their undo


@pytest.mark.parametrize("action", ["cancel", "retry", "discard"])
async def test_bulk_actions_and_their_undo_are_counted(app, greet, depths, node, action):
    await app.queues.set_max_depth("default", 100)
    await greet.submit_many("abcdef")
    await greet.options(delay=3600).submit("later")
    for row in await node.claim(LaneClaim(LANE, 3)):
        await node.finish_failed(row)
    assert await depth(app, depths) == 4
    states = (State.FAILED,) if action != "cancel" else (State.SCHEDULED, State.READY)
    done = await app.jobs.change_matching(action, JobFilter(task=greet.name, states=states))
    after = {"cancel": 0, "retry": 7, "discard": 4}[action]
    assert await depth(app, depths) == after
    undone = await app.bulk.undo(done.bulk)
    assert undone.undone
    assert await depth(app, depths) == 4


# -- the count


async def test_a_limit_counts_what_is_there_already(app, greet, depths, node):
    await greet.submit_many(["x"] * 5)
    await greet.options(delay=3600).submit("later")
    await greet.options(needs=["gpu"]).submit("needy")
    await greet.options(concurrency_key="k").submit("keyed")
    await greet.options(queue="default-2").submit("elsewhere")
    (await node.claim(LaneClaim(LANE, 1)))[0]
    status = await app.queues.set_max_depth("default", 8)
    assert status.depth == 8
    with pytest.raises(QueueFull):
        await greet.submit("y")
    assert await depth(app, depths) == 8


async def test_every_end_is_counted(app, greet, depths, node):
    await app.queues.set_max_depth("default", 100)
    handles = await greet.submit_many(["x"] * 4)
    later = await greet.options(delay=3600).submit("later")
    await node.finish_succeeded((await node.claim(LaneClaim(LANE, 1)))[0])
    await node.finish_failed((await node.claim(LaneClaim(LANE, 1)))[0])
    assert await depth(app, depths) == 3
    await later.cancel()
    await handles[3].cancel()
    assert await depth(app, depths) == 1


async def test_a_count_corrects_what_was_wrong_and_says_by_how_much(app, greet, store, depths):
    await app.queues.set_max_depth("default", 10)
    await greet.submit_many("abc")
    await depths.keep()
    await query(app, "update {}.depth set jobs = -7")
    await greet.submit("d")  # not folded yet, or it is: both must be right
    assert await store.recount("default", "default") == 10
    assert await depth(app, depths) == 4
    [whole] = [one for one in await store.list() if one.queue == ""]
    assert whole.jobs == 4


async def test_what_a_transaction_brings_that_began_before_the_limit_is_counted_later(
    app, greet, sandbox, depths
):
    connection = await asyncpg.connect(app.settings.database_url)
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await greet.options(connection=connection).submit("a")
            await app.queues.set_max_depth("default", 10)
            await greet.options(connection=connection).submit("b")  # sees no limit
    finally:
        await connection.close()
    await sandbox.advance(seconds=6)
    assert await depth(app, depths) == 2


async def test_folds_at_once_add_everything_once(app, greet, store, depths):
    await app.queues.set_max_depth("default", 1000)
    for _ in range(5):
        await asyncio.gather(
            greet.submit_many(["x"] * 7), *(store.fold("default") for _ in range(4)),
            greet.submit("y"), store.recount("default", "default"),
        )  # fmt: skip
    assert await depth(app, depths) == 40


async def test_while_another_folds_a_submit_counts_what_is_not_folded_yet(app, greet, depths):
    """The fold may take a while to commit, and until then the depth is what it was."""
    await app.queues.set_max_depth("default", 3)
    connection = await asyncpg.connect(app.settings.database_url)
    try:
        async with connection.transaction():
            assert await connection.fetchval(f"select {app.settings.schema}.fold_flow('default')")
            for name in "abc":
                await greet.submit(name)
            with pytest.raises(QueueFull) as caught:
                await greet.submit("d")
            assert caught.value.depth == 3
    finally:
        await connection.close()
    assert await depth(app, depths) == 3


async def test_a_fold_finds_what_commits_after_a_younger_transaction(app, greet, depths, store):
    """Transactions don't commit in the order of their numbers."""
    await app.queues.set_max_depth("default", 100)
    connection = await asyncpg.connect(app.settings.database_url)
    try:
        async with connection.transaction():
            await greet.options(connection=connection).submit("long")
            await greet.submit("short")
            assert await store.fold("default")
            await greet.submit("short")
            assert await store.fold("default")
    finally:
        await connection.close()
    assert await depth(app, depths) == 3


async def test_numbers_of_another_server_are_no_obstacle(app, greet, depths):
    """A database that was restored elsewhere has transaction numbers from there."""
    await app.queues.set_max_depth("default", 100)
    await greet.submit("a")
    await query(app, "update {}.depth set settled = '99999999999'")
    await query(app, "update {}.flow set xid = '99999999998'")
    await greet.submit("b")
    assert await depth(app, depths) == 2


async def test_an_unlimited_queue_leaves_no_trace(app, greet, node):
    await greet.submit("a")
    await greet.submit_many(["x"] * 300)
    await node.finish_succeeded((await node.claim(LaneClaim(LANE, 1)))[0])
    assert await query(app, "select from {0}.flow") == []
    assert await query(app, "select from {0}.depth") == []


async def test_removing_a_limit_ends_the_counting(app, greet, depths):
    await app.queues.set_max_depth("default", 1)
    await app.queues.set_max_depth("other", 1)
    await greet.submit("a")
    await app.queues.set_max_depth("default", None)
    await greet.submit("b")
    await app.queues.set_max_depth("other", None)
    await depths.keep()
    assert await query(app, "select from {0}.flow union all select from {0}.depth") == []
    assert (await app.queues.get("default")).depth is None


async def test_a_lower_limit_shuts_and_a_higher_one_opens_at_once(app, greet):
    await greet.submit_many("abc")
    assert (await app.queues.set_max_depth("default", 2)).full_since is not None
    with pytest.raises(QueueFull):
        await greet.submit("d")
    assert (await app.queues.set_max_depth("default", 10)).full_since is None
    await greet.submit("d")


async def test_shutting_and_opening_are_events(app, greet, depths):
    await app.queues.set_max_depth("default", 2)
    jobs = await greet.submit_many("ab")
    await depths.keep()
    await depths.keep()
    for job in jobs:
        await job.cancel()
    await depths.keep()
    kinds = [
        (event.kind, event.detail["queue"], event.detail["depth"])
        for event in await app.events.list()
    ]
    assert kinds == [("queue_open", "default", 0), ("queue_full", "default", 2)]


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "3", 2**60])
async def test_a_limit_that_is_none_is_refused(app, most):
    with pytest.raises(ConfigError) as caught:
        await app.queues.set_max_depth("default", most)
    assert "max_depth" in caught.value.fields


async def test_nothing_is_left_to_fold_when_nothing_happens(app, greet, depths, sandbox, store):
    await app.queues.set_max_depth("default", 2)
    await greet.submit("a")
    for _ in range(30):
        await depths.keep()
        await sandbox.advance(seconds=10)
    assert await store.to_fold() == []
    assert len(await everything(app)) == 1
