"""Allotments: what nodes may run at a time under limits of whole queues and tasks."""

from __future__ import annotations

import random

import pytest

from rota.scheduler.reaper import Reaper
from rota.store.limits import LimitStore
from rota.store.work import UpkeepStore
from tests.support.fake_node import FakeNode

BASE = "default/default"
METER = "queue:default"


@pytest.fixture
def app(sandbox):
    return sandbox.app


class Member:
    """A node that keeps to the protocol, without a worker."""

    def __init__(self, node: FakeNode, limits: LimitStore, slots: int = 40) -> None:
        self.node = node
        self.limits = limits
        self.slots = slots
        self.turn = 0
        self.allowed = 0
        self.rows: list = []  # jobs that it has
        self.running = 0

    @property
    def ceiling(self) -> int:
        return max(self.allowed, self.running)

    async def claim(self, wanted: int = 40, free: int | None = None, ahead: int = 0, turn=None):
        self.turn = turn or self.turn + 1
        held = {METER: (self.ceiling, len(self.rows), ahead)}
        gates = {
            "turn": self.turn, "slots": self.slots, "lows": {}, "held": held,
            "free": self.slots - len(self.rows) if free is None else free,
        }  # fmt: skip
        rows, found = await self.limits.claim_allotted(
            self.node.id, {BASE: wanted}, wanted, ["greet"], {}, gates
        )
        self.rows += rows
        if found is not None:
            self.allowed = found.allowed[METER]
        return rows

    async def settle(self, wish: int) -> int | None:
        self.turn += 1
        self.allowed = min(self.allowed, wish)
        answers = await self.limits.settle_allotments(
            self.node.id, "default", self.turn, [METER], [self.ceiling], [wish]
        )
        answer = answers.get(METER, self.allowed)
        self.allowed = answer or 0
        return answer

    def start(self) -> None:
        while self.running < min(self.allowed, len(self.rows)):
            self.running += 1

    async def end(self, count: int) -> None:
        for _ in range(min(count, self.running)):
            await self.node.finish_succeeded(self.rows.pop())
            self.running -= 1


@pytest.fixture
def member(hot, app):
    async def make(name: str, slots: int = 40) -> Member:
        node = FakeNode(hot, app.settings, name)
        await node.register(tasks=["greet"])
        return Member(node, LimitStore(hot), slots)

    return make


async def backlog(app, greet, jobs=200, most=40):
    await app.queues.set_limits("default", concurrency=most)
    await greet.submit_many([() for _ in range(jobs)])


async def places(hot, app):
    async with hot.connection() as connection:
        return await connection.fetchval(
            f"select {app.settings.schema}.allotted('default', $1)", METER
        )


async def test_jobs_are_claimed_ahead_and_a_place_is_kept_for_the_next(app, greet, member, hot):
    await backlog(app, greet)
    one = await member("one")
    assert len(await one.claim(100, ahead=20)) == 60
    assert one.allowed == 40
    assert await one.claim(100, ahead=20) == []
    one.start()
    assert one.running == 40
    assert await places(hot, app) == 40


async def test_two_nodes_never_run_more_than_the_limit(app, greet, member, hot):
    await backlog(app, greet, 600)
    one, two = await member("one"), await member("two")
    await one.claim()
    one.start()
    assert await two.claim() == []
    assert two.allowed == 0
    # The first learns that the other wants some, and gives it back as its jobs end.
    assert await one.settle(40) == 20
    assert (one.running, await places(hot, app)) == (40, 40)
    assert await two.claim() == []
    await one.end(25)
    await one.claim()
    one.start()
    assert one.running == 20
    assert len(await two.claim()) == 20
    two.start()
    assert (one.running, two.running, await places(hot, app)) == (20, 20, 40)


async def test_whatever_nodes_do_they_run_no_more_than_the_limit(app, greet, member, hot, sandbox):
    await backlog(app, greet, 400, most=7)
    members = [await member(f"n{n}", slots=5) for n in range(4)]
    dice = random.Random(7)
    for _ in range(120):
        one = dice.choice(members)
        match dice.randrange(4):
            case 0:
                await one.claim(dice.randrange(1, 8), ahead=dice.randrange(3))
            case 1:
                one.start()
            case 2:
                await one.end(dice.randrange(1, 4))
            case 3:
                await one.settle(dice.randrange(6))
        assert sum(each.running for each in members) <= 7
        assert sum(each.ceiling for each in members) <= 7
        assert await places(hot, app) <= 7
        if dice.randrange(5) == 0:
            await sandbox.advance(seconds=dice.choice([0.3, 1.5, 4]))
            for each in members:
                await each.node.heartbeat()


async def test_what_a_dead_node_had_is_free(app, greet, member, hot, sandbox):
    await backlog(app, greet)
    one, two = await member("one"), await member("two")
    await one.claim()
    assert await two.claim() == []
    await sandbox.advance(seconds=app.settings.lease_seconds + 1)
    await two.node.heartbeat()
    await Reaper(UpkeepStore(hot), app.settings).tick()
    assert len(await two.claim()) == 40
    assert await places(hot, app) == 40


async def test_an_older_claim_that_comes_late_changes_nothing(app, greet, member, hot):
    await backlog(app, greet)
    one = await member("one")
    await one.claim(10, turn=5)
    assert await one.claim(10, turn=4) == []
    assert one.allowed == 40


async def test_what_is_not_needed_is_given_back(app, greet, member, hot):
    await backlog(app, greet, jobs=3)
    one = await member("one")
    assert len(await one.claim()) == 3
    assert (one.allowed, await places(hot, app)) == (3, 3)
    one.start()
    await one.end(3)
    await one.settle(0)
    assert await places(hot, app) == 0


async def test_more_nodes_than_places_take_turns(app, greet, member, hot, sandbox):
    await backlog(app, greet, most=1)
    one, two = await member("one"), await member("two")
    assert len(await one.claim()) == 1
    one.start()
    assert await two.claim() == []
    await sandbox.advance(seconds=1.5)
    await two.claim()
    await one.claim()  # its second is over: it starts no other
    await one.end(1)
    one.start()
    assert one.running == 0
    await one.claim()
    assert len(await two.claim()) == 1


async def test_claims_of_single_places_get_their_part(app, greet, member, hot):
    """Jobs with keys, and workers over HTTP, are not shut out by nodes that keep their places."""
    await backlog(app, greet, most=10)
    one = await member("one")
    await one.claim()
    one.start()
    assert one.running == 10
    other = FakeNode(hot, app.settings, "other")
    await other.register()
    limits = LimitStore(hot)
    assert await limits.claim_shared(other.id, {BASE: 4}, 4, ["greet"]) == []
    assert await one.settle(40) == 6
    await one.end(6)
    one.start()
    await one.settle(40)
    assert len(await limits.claim_shared(other.id, {BASE: 4}, 4, ["greet"])) == 4
    assert one.running + 4 <= 10


async def test_a_limit_that_is_used_after_a_while_counts_nothing_twice(app, greet, member, sandbox):
    await backlog(app, greet, most=10)
    one, two = await member("one", slots=4), await member("two", slots=6)
    await one.claim(4)
    one.start()
    await sandbox.advance(seconds=20)  # the limit counts what runs anew
    for each in (one, two):
        await each.node.heartbeat()
    assert len(await two.claim(6)) == 6


async def test_a_limit_that_is_lowered_or_taken_away_is_learned(app, greet, member, hot):
    await backlog(app, greet)
    one = await member("one")
    await one.claim()
    one.start()
    await app.queues.set_limits("default", concurrency=10)
    assert await one.settle(40) == 10
    await one.end(35)
    one.start()
    assert one.running == 5
    await app.queues.set_limits("default", concurrency=None)
    assert await one.settle(40) is None
    assert await places(hot, app) == 0


async def test_limits_list_and_explain_know_of_allotments(app, greet, member, hot):
    await backlog(app, greet, most=2)
    one = await member("one")
    rows = await one.claim()
    (limit,) = await app.queues.limits()
    assert (limit.name, limit.most, limit.running) == (METER, 2, 2)
    assert {each.id for each in await app.queues.holders(METER)} == {row["id"] for row in rows}
    (waiting, *_) = await app.jobs.list(state="ready", limit=1)
    explained = await app.jobs.explain(waiting.id)
    assert explained.code == "limit_reached"
    assert str(rows[0]["id"]) in explained.sentence


async def test_places_of_a_queue_that_the_limit_of_a_task_keeps_unused_are_left_to_others(
    app, greet, hot
):
    """Of ten places of the queue one node can use two: its task has a limit, too."""

    @app.task
    async def other() -> None: ...

    task_meter, limits = "task:greet", LimitStore(hot)
    async with hot.connection() as connection:
        await connection.execute(
            f"insert into {app.settings.schema}.task (namespace, name, queue, needs, priority,"
            " guarantee, max_attempts, concurrency) values"
            " ('default', 'greet', 'default', '{}', 0, 1, 5, 2),"
            " ('default', 'other', 'default', '{}', 0, 1, 5, null)"
        )
    await app.queues.set_limits("default", concurrency=10)
    for _ in range(20):
        await greet.submit()
        await other.submit()
    one, two = [await FakeNode(hot, app.settings, name).register() for name in ("one", "two")]

    async def claim(node, task, turn, held):
        gates = {"turn": turn, "slots": 40, "free": 40, "lows": {}, "held": held}
        return await limits.claim_allotted(node.id, {BASE: 40}, 40, [task], {}, gates)

    rows, found = await claim(one, "greet", 1, {})
    assert len(rows) == 2
    assert (found.allowed, list(found.more)) == ({METER: 2, task_meter: 2}, [task_meter])
    rows, found = await claim(two, "other", 1, {})
    assert len(rows) == 8


async def test_a_claim_tells_that_nothing_is_ready_under_limits_that_a_node_has(
    app, greet, member, hot
):
    await backlog(app, greet, most=4)
    one = await member("one")
    await one.claim()
    await app.queues.pause("default")
    gates = {"turn": 9, "slots": 40, "free": 36, "lows": {}, "held": {METER: (4, 0, 0)}}
    rows, found = await one.limits.claim_allotted(one.node.id, {BASE: 4}, 4, ["greet"], {}, gates)
    assert (rows, found.allowed, found.more) == ([], {}, {})
