"""Limits and order by key: what a claim may take, whoever races, whatever becomes of what it took."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import asyncpg
import pytest

from proof.waiting import eventually
from rota import ConfigError, InvalidArguments
from rota.core.keys import Rate
from rota.lib.ids import new_id
from rota.scheduler.reaper import Reaper
from rota.store.dashboard import DashboardStore
from rota.store.events import EventStore
from rota.store.limits import Ended, LimitStore
from rota.store.rows import share_of, sublane_of
from rota.store.work import LaneClaim, UpkeepStore
from rota.worker.gates import Gates
from tests.support.fake_node import FakeNode

BASE = "default/default"
ENDED = Ended(1, 0.1)


@pytest.fixture
def app(sandbox):
    return sandbox.app


@pytest.fixture
def limits(hot):
    return LimitStore(hot)


@pytest.fixture
def claim(limits, node):
    async def claim(most=1000, who=node, freed=None, base=BASE):
        """All that can be claimed: as long as there is something ready."""
        rows = []
        while len(rows) < most:
            found = await limits.claim_shared(
                who.id, {base: most - len(rows)}, most - len(rows), ["greet"], freed
            )
            rows += found
            if not found and await limits.shared_pause([base]) != 0:
                break
        return rows

    return claim


async def submit(task, count=1, **options):
    return [(await task.options(**options).submit()).id for _ in range(count)]


async def limit_task(app, most, per_key=False):
    async with (await app.store()).database.connection() as connection:
        await connection.execute(
            f"insert into {app.settings.schema}.task as t (namespace, name, queue, needs, priority,"
            " guarantee, max_attempts, concurrency, per_key) values"
            " ('default', 'greet', 'default', '{}', 0, 1, 5, $1, $2)"
            " on conflict (namespace, name) do update set concurrency = $1, per_key = $2",
            most, per_key,
        )  # fmt: skip


async def rate_task(app, count, period, burst):
    async with (await app.store()).database.connection() as connection:
        await connection.execute(
            f"insert into {app.settings.schema}.task as t (namespace, name, queue, needs, priority,"
            " guarantee, max_attempts, rate_count, rate_period, rate_burst) values"
            " ('default', 'greet', 'default', '{}', 0, 1, 5, $1, $2, $3)"
            " on conflict (namespace, name) do update"
            " set rate_count = $1, rate_period = $2, rate_burst = $3",
            count, period, burst,
        )  # fmt: skip


# -- when to look


async def test_where_nothing_waits_there_is_nothing_to_look_for(app, greet, limits, claim):
    """Else every idle worker would ask again and again, for ever."""
    assert await limits.shared_pause([BASE]) is None
    await submit(greet, fairness_key="a")
    assert await limits.shared_pause([BASE]) == 0
    assert len(await claim()) == 1
    assert await limits.shared_pause([BASE]) is None


async def test_a_job_that_is_due_soon_is_not_in_the_way_of_one_that_is_due(app, greet, hot, claim):
    """Jobs of a limited queue without keys come without an arrival: nobody may wait for the next one."""
    await app.queues.set_limits("default", concurrency=5)
    assert await claim() == []
    later = await submit(greet)
    async with hot.connection() as connection:
        await connection.execute(
            f"update {app.settings.schema}.present"
            f" set due_at = {app.settings.schema}.now() + interval '0.9 s', rank = rank + 900000"
        )
    assert await claim() == []
    now = await submit(greet)
    assert [row["id"] for row in await claim()] == now != later


# -- how many


async def test_a_queue_runs_no_more_than_its_limit(app, greet, node, claim):
    await submit(greet, 5)
    await app.queues.set_limits("default", concurrency=2)
    assert await node.claim() == [], "plain claims don't pass the limit"
    rows = await claim()
    assert len(rows) == 2
    assert await claim() == []
    await node.finish_succeeded(rows[0])
    assert len(await claim(freed={BASE: ENDED})) == 1


async def test_a_limit_counts_what_ran_before_it_was_set(app, greet, node, claim):
    await submit(greet, 5)
    before = await node.claim(LaneClaim(BASE, 2))
    await app.queues.set_limits("default", concurrency=3)
    assert len(await claim()) == 1
    await node.finish_succeeded(before[0])
    assert len(await claim(freed={BASE: ENDED})) == 1


async def test_a_limit_that_is_taken_away_leaves_nothing_behind(app, greet, node, claim):
    await submit(greet, 5)
    await app.queues.set_limits("default", concurrency=1)
    assert len(await claim()) == 1
    await app.queues.set_limits("default", concurrency=None)
    assert len(await node.claim()) == 4


async def test_each_key_has_its_own_places(app, greet, claim):
    await submit(greet, 3, concurrency_key="a")
    await submit(greet, 3, concurrency_key="b")
    await submit(greet, 3)
    await app.queues.set_limits("default", concurrency_per_key=2)
    rows = await claim()
    assert Counter(row["lane"] for row in rows) == {
        BASE: 3,
        sublane_of(BASE, "c=a"): 2,
        sublane_of(BASE, "c=b"): 2,
    }


async def test_several_limits_hold_for_one_job(app, greet, claim):
    await submit(greet, 5, concurrency_key="a")
    await submit(greet, 5, concurrency_key="b")
    await submit(greet, 5, concurrency_key="c")
    await app.queues.set_limits("default", concurrency=5, concurrency_per_key=2)
    counts = Counter(row["lane"] for row in await claim())
    assert sum(counts.values()) == 5
    assert max(counts.values()) == 2


async def test_a_limit_of_a_task_holds_in_all_queues(app, greet, node, limits, claim):
    await limit_task(app, 2)
    await submit(greet, 3)
    await submit(greet, 3, queue="other")
    assert await node.claim(LaneClaim(BASE, 9), LaneClaim("default/other", 9)) == []
    rows = await claim() + await claim(base="default/other")
    assert len(rows) == 2
    await node.finish_succeeded(rows[0])
    assert len(await claim(freed={rows[0]["lane"]: ENDED}, base="default/other")) == 1


async def test_a_limit_of_a_task_for_each_key(app, greet, claim):
    await limit_task(app, 1, per_key=True)
    await submit(greet, 2, concurrency_key="a")
    await submit(greet, 2, concurrency_key="b")
    await submit(greet, 2)
    assert len({row["lane"] for row in await claim()}) == 3


async def test_racing_claims_never_exceed_the_limit(app, greet, hot, limits):
    nodes = [FakeNode(hot, app.settings, f"n{n}") for n in range(8)]
    keys = [f"k{n}" for n in range(12)]
    for key in keys:
        await submit(greet, 6, concurrency_key=key)
    await app.queues.set_limits("default", concurrency=5, concurrency_per_key=2)
    schema, worst = app.settings.schema, Counter()
    lanes = [sublane_of(BASE, share_of(key)) for key in keys]

    async def work(node):
        while True:
            rows = await limits.claim_shared(
                node.id, {BASE: 2}, 2, ["greet"], dict.fromkeys(lanes, ENDED)
            )
            async with hot.connection() as connection:
                running = await connection.fetch(
                    f"select lane, count(*) from {schema}.present where state = 4 group by lane"
                )
                left = await connection.fetchval(f"select count(*) from {schema}.present")
                # What runs already is given places only while a limit is new: those are to be noted.
                await connection.execute(
                    f"update {schema}.meter set created_at = '2000-01-01' where ctid = any(array("
                    f"select ctid from {schema}.meter where created_at > '2000-01-01'"
                    " for update skip locked))"
                )
            counts = dict(running)
            worst["all"] = max(worst["all"], sum(counts.values()))
            for lane, count in counts.items():
                worst[lane] = max(worst[lane], count)
            for row in rows:
                await node.finish_succeeded(row)
            if not left:
                return

    await asyncio.gather(*(work(node) for node in nodes))
    assert worst.pop("all") == 5
    assert max(worst.values()) == 2


async def test_a_limit_that_is_long_in_use_counts_what_it_gave(app, greet, claim, sandbox):
    await submit(greet, 9)
    await app.queues.set_limits("default", concurrency=2)
    assert len(await claim(1)) == 1
    await sandbox.advance(minutes=1)
    assert len(await claim()) == 1
    await sandbox.advance(minutes=1)
    assert await claim() == []


# -- nothing leaks


@pytest.mark.parametrize("how", ["succeed", "fail", "retry", "give_back", "cancel", "reaped"])
async def test_however_a_job_ends_its_place_is_free_once(
    app, greet, node, claim, sandbox, hot, how
):
    await app.queues.set_limits("default", concurrency=1)
    await node.register()
    first, *_ = await submit(greet, 3)
    [row] = await claim()
    if how == "succeed":
        await node.finish_succeeded(row)
    elif how == "fail":
        await node.finish_failed(row)
    elif how == "retry":
        await node.retry_later(row, 3600)
    elif how == "give_back":
        await node.give_back(row)
    elif how == "cancel":
        await app.jobs.cancel(first)
        await node.give_back(row)
    else:
        await sandbox.advance(hours=1)
        await Reaper(UpkeepStore(hot), app.settings).tick()
    assert len(await claim(freed={BASE: ENDED})) == 1
    assert await claim(freed={BASE: ENDED}) == []


async def test_a_place_is_found_again_within_a_second_though_nobody_told(
    app, greet, node, claim, sandbox
):
    await submit(greet, 3, concurrency_key="a")
    await app.queues.set_limits("default", concurrency_per_key=1)
    [row] = await claim()
    assert await claim() == []
    await node.finish_succeeded(row)
    await sandbox.advance(seconds=1.1)
    assert len(await claim()) == 1


async def test_an_unused_key_is_forgotten(app, greet, node, limits, claim, sandbox):
    await submit(greet, 1, concurrency_key="a")
    await app.queues.set_limits("default", concurrency_per_key=1)
    for row in await claim():
        await node.finish_succeeded(row)
    assert await claim() == []
    await sandbox.advance(minutes=2)
    assert await limits.forget_sublanes(100) == 2, "the sublane and the limit"
    await submit(greet, 1, concurrency_key="a")
    assert len(await claim()) == 1


# -- nobody is in the way


async def test_what_is_full_is_not_looked_at(app, greet, claim, limits, node, hot):
    await submit(greet, 30, concurrency_key="full")
    await app.queues.set_limits("default", concurrency_per_key=1)
    assert len(await claim()) == 1
    await submit(greet, 2, concurrency_key="other")
    rows = await limits.claim_shared(node.id, {BASE: 9}, 9, ["greet"])
    assert [row["lane"] for row in rows] == [sublane_of(BASE, "c=other")]


async def test_what_is_not_due_waits_in_its_sublane(app, greet, claim, sandbox, hot):
    await submit(greet, 1, concurrency_key="a")
    async with hot.connection() as connection:
        await connection.execute(
            f"update {app.settings.schema}.present set due_at = due_at + interval '0.5 seconds'"
        )
    assert await claim() == [], "no early claim for what has a key"
    await sandbox.advance(seconds=0.6)
    assert len(await claim()) == 1


# -- order


async def test_jobs_of_an_order_key_run_one_after_another(greet, node, claim):
    ids = await submit(greet, 3, order_key="account", priority=None)
    lane = sublane_of(BASE, "o=account")
    ran = []
    for _ in range(3):
        [row] = await claim()
        ran.append(row["id"])
        await node.finish_succeeded(row)
        assert len(await claim(0)) == 0
        rows = await claim(freed={lane: ENDED}) if len(ran) < 3 else []
        if rows:
            await node.give_back(rows[0])
    assert ran == ids


async def test_a_retry_holds_those_behind_it(greet, node, claim, sandbox, app):
    ids = await submit(greet, 2, order_key="account")
    lane = sublane_of(BASE, "o=account")
    [row] = await claim()
    await node.retry_later(row, 30)
    assert await claim(freed={lane: ENDED}) == []
    await sandbox.advance(seconds=20)
    assert await claim() == []
    await app.jobs.retry(ids[0])
    [again] = await claim()
    assert again["id"] == ids[0]
    await node.finish_succeeded(again)
    [behind] = await claim(freed={lane: ENDED})
    assert behind["id"] == ids[1]


@pytest.mark.parametrize("then", ["continue", "hold", "drop"])
async def test_a_failed_job_and_those_behind_it(app, node, claim, then, sandbox):
    @app.task(order_key="account", order_failure=then)
    async def greet(account: str) -> None: ...

    ids = [(await greet.submit("x")).id for _ in range(3)]
    [row] = await claim()
    await node.finish_failed(row)
    lane = row["lane"]
    behind = await claim(freed={lane: ENDED})
    if then == "continue":
        assert [row["id"] for row in behind] == [ids[1]]
    elif then == "hold":
        assert behind == []
        await app.jobs.discard(ids[0])
        await sandbox.advance(seconds=3)
        assert [row["id"] for row in await claim()] == [ids[1]]
    else:
        assert behind == []
        assert [(await app.jobs.get(id)).state for id in ids[1:]] == ["cancelled", "cancelled"]
        later = (await greet.submit("x")).id
        assert [row["id"] for row in await claim()] == [later]


# -- keys


async def test_python_and_sql_agree_on_sublanes(app, hot):
    schema = app.settings.schema
    keys = [None, "a", "%&=#/+ ü", "x" * 255, "a&o=b", "%26"]
    async with hot.connection() as connection:
        for key in keys:
            share = await connection.fetchval(
                f"select {schema}.share_of($1, $1, $1, 'hold', 't')", key
            )
            assert share == share_of(key, key, key, "hold", "t")
            lane = await connection.fetchval(f"select {schema}.sublane_of('a/b', $1)", share)
            assert lane == sublane_of("a/b", share)
            if key is not None:
                part = await connection.fetchval(f"select {schema}.share_part($1, 'o')", share)
                assert part == key


@pytest.mark.parametrize("key", ["", "x" * 256, "a\0b", "\ud800", 7])
async def test_keys_that_cant_be_stored_are_refused(greet, key):
    for field in ("concurrency_key", "order_key"):
        with pytest.raises(InvalidArguments, match=field):
            greet.options(**{field: key})


async def test_declarations_that_make_no_sense_are_refused(app):
    wrong = (
        {"concurrency": 0}, {"concurrency": True}, {"order_failure": "stop"},
        {"order_key": "nobody"}, {"concurrency_key": 7},
    )  # fmt: skip
    for options in wrong:
        with pytest.raises(ConfigError):

            @app.task(**options)
            async def job(name: str) -> None: ...

    with pytest.raises(ConfigError, match="concurrency"):
        await app.queues.set_limits("default", concurrency=0)


# -- how often


async def starts(claim, sandbox, node, seconds, step, **options):
    """The moments at which jobs start when claims come every `step` seconds."""
    begun = sandbox.now()
    moments = []
    while (at := (sandbox.now() - begun).total_seconds()) < seconds:
        for row in await claim(**options):
            moments.append(at)
            await node.finish_succeeded(row)
        await sandbox.advance(seconds=step)
    return moments


def most_in_a_window(moments, length):
    return max(sum(1 for at in moments if low <= at < low + length) for low in moments)


@pytest.mark.parametrize("burst", [1, 4])
async def test_a_rate_holds_in_every_window(app, greet, node, claim, sandbox, burst):
    await submit(greet, 60)
    await app.queues.set_limits("default", rate="10/s", rate_burst=burst)
    moments = await starts(claim, sandbox, node, 3.0, 0.07)
    # Without a burst, what a claim comes late is lost.
    assert len(moments) >= (27 if burst > 1 else 20)
    assert most_in_a_window(moments, 1.0) <= 10 + burst - 1
    assert Counter(moments).most_common(1)[0][1] <= burst


async def test_a_start_is_granted_for_the_moment_at_which_it_can_begin(
    app, greet, hot, limits, claim, node, sandbox
):
    """A claim may wait for others before it looks at the rate. What it grants then must not be of the
    moment at which it began, or the next claim would grant as much again for the time of that wait."""
    await app.queues.set_limits("default", rate="1/hour")
    assert await claim() == []
    await submit(greet)
    schema = app.settings.schema
    async with hot.connection() as other, hot.connection() as watching:
        async with other.transaction():
            await other.execute(f"select from {schema}.sublane for update")
            claiming = asyncio.create_task(limits.claim_shared(node.id, {BASE: 1}, 1, ["greet"]))

            async def waits() -> bool:
                return await other.fetchval(
                    "select exists (select from pg_locks where not granted"
                    " and pg_backend_pid() = any(pg_blocking_pids(pid)))"
                )

            await eventually(waits)
            at_least = await other.fetchval(
                "with began as materialized (select clock_timestamp() as at), later as materialized ("
                " select pg_sleep(0.05) from began)"
                " select clock_timestamp() - began.at from began, later"
            )
        assert len(await claiming) == 1
        next_at = await watching.fetchval(f"select next_at from {schema}.meter")
    # The sandbox's clock stands still: what is above it is what the claim has waited.
    assert next_at - sandbox.now() - timedelta(hours=1) >= at_least


@pytest.mark.parametrize("gone", ["", ", concurrency = null"])
async def test_a_limit_that_is_taken_away_while_a_claim_waits_for_it_is_not_in_its_answer(
    app, greet, hot, limits, node, gone
):
    """The worker would ask its gates for a limit that it was told nothing of, and lose the claim."""
    await app.queues.set_limits("default", concurrency=5, rate="100/s")
    await submit(greet)
    told = {"turn": 1, "free": 5, "slots": 5, "lows": {}, "full": {}, "held": {}}
    assert (await limits.claim_allotted(node.id, {BASE: 5}, 5, ["greet"], {}, told))[0]
    await submit(greet, 3)
    async with hot.connection() as other:
        async with other.transaction():
            await other.execute(f"select from {app.settings.schema}.meter for update")
            claim = limits.claim_allotted(node.id, {BASE: 5}, 5, ["greet"], {}, {**told, "turn": 2})
            claiming = asyncio.create_task(claim)

            async def waits() -> bool:
                return await other.fetchval(
                    "select exists (select from pg_locks where not granted"
                    " and pg_backend_pid() = any(pg_blocking_pids(pid)))"
                )

            await eventually(waits)
            async with hot.connection() as connection:
                await connection.execute(
                    f"update {app.settings.schema}.queue"
                    f" set rate_count = null, rate_period = null, rate_burst = null{gone}"
                )
        rows, found = await claiming
    if found is not None:
        assert {name for names in found.lanes.values() for name in names} <= set(found.allowed)
        Gates().take(found.lanes, found.allowed, found.more, 5, 0.0)
    assert len(rows) == 3 or gone


async def test_a_rate_saves_nothing_up_but_its_burst(app, greet, claim, sandbox):
    await app.queues.set_limits("default", rate="1/minute", rate_burst=2)
    await submit(greet, 1)
    assert len(await claim()) == 1
    await sandbox.advance(hours=5)
    await submit(greet, 9)
    assert len(await claim()) == 2
    await sandbox.advance(seconds=59)
    assert await claim() == []
    await sandbox.advance(seconds=21)
    assert len(await claim()) == 1


async def test_a_rate_that_is_raised_acts_at_once(app, greet, claim, sandbox):
    await app.queues.set_limits("default", rate="1/day")
    await submit(greet, 9)
    assert len(await claim()) == 1
    await app.queues.set_limits("default", rate="10/s")
    moments = []
    for _ in range(20):
        moments += [sandbox.now()] * len(await claim())
        await sandbox.advance(seconds=0.05)
    assert len(moments) >= 5  # without a burst, what a claim comes late is lost


async def test_a_raised_rate_of_a_task_acts_within_ten_seconds(app, hot, claim, sandbox, node):
    @app.task
    async def greet() -> None: ...

    await rate_task(app, 1, 86_400, 1)
    await submit(greet, 5)
    assert len(await claim()) == 1
    assert await claim() == []
    await rate_task(app, 10, 1, 1)
    await sandbox.advance(seconds=10)
    await claim()
    await sandbox.advance(seconds=5)
    assert len(await claim()) == 1


async def test_a_rate_goes_on_when_the_clock_of_the_database_is_set_back(
    app, greet, claim, sandbox
):
    await app.queues.set_limits("default", rate="10/s", rate_burst=3)
    await submit(greet, 4)
    assert len(await claim()) == 3
    assert await claim() == []
    sandbox._now -= timedelta(hours=1)  # a sandbox's time only moves forward
    await sandbox.advance(seconds=0)
    await submit(greet, 9)
    await claim()
    await sandbox.advance(seconds=0.4)
    assert len(await claim()) == 3


async def test_what_was_granted_is_never_refunded(app, greet, node, claim, sandbox):
    await submit(greet, 3)
    await app.queues.set_limits("default", rate="1/minute")
    [row] = await claim()
    await node.give_back(row)
    assert await claim(freed={BASE: ENDED}) == []
    await sandbox.advance(seconds=90)  # a claim counts what it took itself, too
    assert len(await claim()) == 1


async def test_a_rate_of_a_task_for_each_key_and_a_limit_beside_it(app, hot, node, claim, sandbox):
    schema = app.settings.schema

    @app.task(rate="1/minute", concurrency=3, concurrency_key="customer")
    async def greet(customer: str) -> None: ...

    await limit_task(app, 3, per_key=True)
    async with hot.connection() as connection:
        await connection.execute(
            f"update {schema}.task set rate_count = 1, rate_period = 60, rate_burst = 1"
        )
    for customer in ("a", "b", "a", "b", "a"):
        await greet.submit(customer)
    assert len(await claim()) == 2
    assert await claim() == []
    await sandbox.advance(seconds=90)  # a claim counts what it took itself, too
    assert len(await claim()) == 2


async def test_racing_claims_never_exceed_a_rate(app, greet, hot, limits, sandbox):
    nodes = [FakeNode(hot, app.settings, f"n{n}") for n in range(8)]
    for n in range(8):
        await submit(greet, 3, concurrency_key=f"k{n}")
    await app.queues.set_limits("default", rate="5/hour", rate_burst=5)

    async def work(node):
        return [
            row
            for _ in range(5)
            for row in await limits.claim_shared(node.id, {BASE: 2}, 2, ["greet"])
        ]

    started = sum(len(rows) for rows in await asyncio.gather(*map(work, nodes)))
    assert 0 < started <= 5
    # Claims that meet may find nothing. What the rate allows is not lost by that.
    await sandbox.advance(seconds=11)
    assert started + len(await work(nodes[0])) == 5


async def test_explain_says_when_a_rate_lets_the_next_start(app, greet, node, claim):
    await node.register(tasks=["greet"])
    await app.queues.set_limits("default", rate="1/minute")
    _, second = await submit(greet, 2)
    assert len(await claim()) == 1
    why = await app.jobs.explain(second)
    assert why.code == "rate_reached"
    assert "`queue:default/rate`" in why.sentence


@pytest.mark.parametrize(
    "rate", ["", "5", "5/", "0/s", "-1/s", "5/fortnight", "1/0s", "5 / s", 5, "99999999999/s"]
)
async def test_rates_that_make_no_sense_are_refused(app, rate):
    with pytest.raises(ConfigError, match="rate"):
        Rate.parse(rate)


async def test_a_number_that_python_does_not_write_is_refused_by_its_name(app):
    with pytest.raises(ConfigError, match="concurrency must be"):
        await app.queues.set_limits("default", concurrency=10**5000)
    with pytest.raises(ConfigError, match="max_depth must be"):
        await app.queues.set_max_depth("default", 10**5000)
    with pytest.raises(ConfigError, match="weight must be"):
        await app.queues.set_weight("default", "key", 10**5000)


@pytest.mark.parametrize(
    ("rate", "burst"), [("1/366d", 1_000_000_000), ("1/day", 10**6), ("5/s", 10**10), ("5/s", 0)]
)
async def test_a_burst_that_no_clock_can_count_is_refused_by_its_name(app, rate, burst):
    """In the claims it would be an error of the database, and nothing of the queue would start."""
    with pytest.raises(ConfigError) as caught:
        await app.queues.set_limits("default", rate=rate, rate_burst=burst)
    assert "rate_burst" in caught.value.fields


@pytest.mark.parametrize(
    ("rate", "burst"), [("1000000000/0.001s", None), ("1/366d", 100), ("1000000000/s", 10**9)]
)
async def test_rates_at_the_edge_of_what_is_allowed_work(app, greet, claim, rate, burst):
    await app.queues.set_limits("default", rate=rate, rate_burst=burst)
    await submit(greet, 3)
    assert await claim()
    assert await app.queues.limits()


@pytest.mark.parametrize(
    "text",
    ["5/s", "100/minute", "10/30s", "3/90s", "1/366d", "7/1.5d", "9/0.001s", "2/0.25h", "4/999999s",
     "1/2.000001s", "1000000000/day"],
)  # fmt: skip
def test_a_rate_is_written_as_it_is_read(text):
    """What the audit log has of it is set again by an undo."""
    rate = Rate.parse(text)
    assert Rate.parse(str(rate), rate.burst) == rate


async def test_a_change_of_a_rate_is_undone(app):
    await app.queues.set_limits("default", rate="90/minute", rate_burst=4)
    await app.queues.set_limits("default", rate="7/s")
    [changed] = await app.rota.audit.list("default", limit=1)
    queue = await app.queues.undo("default", changed.id)
    assert (queue.rate_count, queue.rate_period, queue.rate_burst) == (90, 60.0, 4)


def test_rates_are_read():
    assert Rate.parse("100/minute") == Rate(100, 60.0, 1)
    assert Rate.parse("10/30s", 3) == Rate(10, 30.0, 3)
    assert Rate.parse("500/s") == Rate(500, 1.0, 50)
    assert Rate.parse("2/day").period == 86400


# -- every way in, and out


async def test_explain_names_the_limit_and_who_holds_its_places(app, greet, node, claim):
    await node.register(tasks=["greet"])
    await app.queues.set_limits("default", concurrency_per_key=1)
    first, second = await submit(greet, 2, concurrency_key="a")
    assert len(await claim()) == 1
    why = await app.jobs.explain(second)
    assert why.code == "limit_reached"
    assert "`queue:default/key:a` is reached: 1 of 1" in why.sentence
    assert str(first) in why.sentence
    [limit] = await app.queues.limits()
    assert (limit.name, limit.most, limit.running, limit.waiting) == (
        "queue:default/key:a",
        1,
        1,
        1,
    )
    assert [holder.id for holder in await app.queues.holders(limit.name)] == [first]


async def test_explain_names_the_job_that_goes_before(app, greet, node, claim):
    await node.register(tasks=["greet"])
    first, second = await submit(greet, 2, order_key="account")
    [row] = await claim()
    await node.retry_later(row, 30)
    why = await app.jobs.explain(second)
    assert why.code == "waiting_for_order"
    assert str(first) in why.sentence
    assert "waits for its retry" in why.sentence


async def test_workers_over_http_obey_the_same_limits(app, greet, hot, claim, node):
    remote = new_id()
    await hot.fetch(
        "register_worker", remote, "default", "remote", "host", "0", 60.0, [], [], ["greet"], 8
    )
    await submit(greet, 5)
    await app.queues.set_limits("default", concurrency=3)
    assert len(await claim(1)) == 1
    ask = [await hot.fetch("claim_remote", remote, f"r{n}", n, 8, False, False) for n in range(2)]
    assert [len(rows) for rows in ask] == [2, 0]
    again = await hot.fetch("claim_remote", remote, "r0", 5, 8, False, False)
    assert {row["id"] for row in again} == {row["id"] for row in ask[0]}, "its answer was lost"
    assert await claim() == [], "a new token is no new place"


async def test_workers_over_http_get_some_of_everything(app, greet, hot):
    """A backlog, whether of plain jobs or of a key's, doesn't keep the others from them."""
    remote = new_id()
    registered = "default", "remote", "host", "0", 60.0, [], [], ["greet"], 8
    await hot.fetch("register_worker", remote, *registered)
    await submit(greet, 50, queue="plain")
    await submit(greet, 50, concurrency_key="acme")
    await submit(greet, 50, concurrency_key="acme", queue="other")
    await app.queues.set_limits("default", concurrency_per_key=1000)
    await app.queues.set_limits("other", concurrency_per_key=1000)
    got: Counter[str] = Counter()
    for n in range(20):
        rows = await hot.fetch("claim_remote", remote, f"request {n}", 1, 2, False, False)
        got.update(row["lane"] for row in rows)
    assert len(got) == 3
    assert min(got.values()) >= 3


async def test_schedules_and_steps_obey_the_limit_of_their_task(app, greet, claim, node, sandbox):
    await limit_task(app, 1)
    await app.schedule("often", "greet", every="1h")
    await app.schedules.trigger("often")
    flow = app.workflow("two")
    flow.step(greet, "a")
    flow.step(greet, "b")
    await flow.start()
    async with (await app.store()).database.connection() as connection:
        lanes = await connection.fetch(f"select distinct lane from {app.settings.schema}.present")
    assert [row["lane"] for row in lanes] == [sublane_of(BASE, "t=greet")]
    assert len(await claim()) == 1


async def test_the_sandbox_runs_jobs_with_keys_in_order(app, sandbox):
    ran = []

    @app.task(order_key="account", concurrency=1)
    async def book(account: str, number: int) -> None:
        ran.append((account, number))

    await book.submit_many([("a", 1), ("b", 1), ("a", 2), ("b", 2)])
    await sandbox.run_due()
    assert sorted(ran) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    assert ran.index(("a", 1)) < ran.index(("a", 2))


async def test_another_namespace_has_limits_of_its_own(app, greet, hot, claim, limits, node):
    await app.queues.set_limits("default", concurrency=1)
    await submit(greet, 2)
    assert len(await claim()) == 1
    async with hot.connection() as connection:
        await connection.execute(
            f"select {app.settings.schema}.submit('greet', namespace => 'elsewhere')"
        )
    assert len(await node.claim(lane="elsewhere/default")) == 1


async def test_lists_and_lag_know_of_jobs_in_sublanes(app, greet, limits, node, sandbox, hot):
    await submit(greet, 3, concurrency_key="a")
    await submit(greet, 1)
    [queue] = await DashboardStore(hot, "default").queues()
    assert (queue.ready.value, queue.running.value) == (4, 0)
    assert [(queue.name, queue.ready) for queue in await app.queues.list()] == [("default", 4)]
    assert [job.queue for job in await app.jobs.list(queue="default")] == ["default"] * 4
    assert len(await limits.claim_shared(node.id, {BASE: 1}, 1, ["greet"])) == 1
    assert len(await node.claim()) == 1
    await sandbox.advance(minutes=10)
    await EventStore(hot).note_queue_lag(60)
    assert [event.kind for event in await app.events.list()] == ["queue_lag"]


async def test_a_rate_is_not_forgotten_before_its_time(app, greet, claim, limits, sandbox):
    await submit(greet, 3)
    await app.queues.set_limits("default", rate="1/hour")
    assert len(await claim()) == 1
    await sandbox.advance(minutes=30)
    await limits.forget_sublanes(100)
    assert await claim() == []
    await sandbox.advance(minutes=31)
    assert len(await claim()) == 1


async def test_a_limit_that_is_removed_while_a_claim_waits_for_it_is_not_passed(
    app, greet, claim, limits, node, hot
):
    schema = app.settings.schema
    await submit(greet, 5)
    await app.queues.set_limits("default", concurrency=1)
    [row] = await claim()
    await node.finish_succeeded(row)
    other = await asyncpg.connect(hot.url)
    try:
        removal = other.transaction()
        await removal.start()
        await other.execute(f"delete from {schema}.meter")
        claiming = asyncio.create_task(
            limits.claim_shared(node.id, {BASE: 4}, 4, ["greet"], {BASE: ENDED})
        )
        waiting = "select count(*) from pg_locks where not granted and locktype = 'transactionid'"
        await eventually_async(lambda: other.fetchval(waiting))
        await removal.commit()
        assert len(await claiming) <= 1
    finally:
        await other.close()
    assert len(await claim()) <= 1


async def eventually_async(look):
    for _ in range(500):
        if await look():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never happened")


@pytest.mark.parametrize("pause", [0, 3600])
async def test_a_limit_that_is_set_again_counts_what_ran_without_it(
    app, greet, node, claim, sandbox, pause
):
    await submit(greet, 9)
    await app.queues.set_limits("default", concurrency=1)
    assert len(await claim()) == 1
    await sandbox.advance(seconds=30)
    await app.queues.set_limits("default", concurrency=None)
    assert len(await node.claim(LaneClaim(BASE, 3))) == 3
    await sandbox.advance(seconds=pause)
    await app.queues.set_limits("default", concurrency=5)
    assert len(await claim()) == 1
