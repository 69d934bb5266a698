"""Limits and order by key in running workers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from time import monotonic

import pytest

from proof.waiting import eventually
from rota import App, Node, Retry
from rota.errors import StoreUnavailable
from rota.lib.ids import new_id
from rota.operations.run_advance import RunAdvance
from rota.runtime.work import Work
from rota.store.limits import LimitStore


class Runs:
    """How many jobs run at a time, by what they are called with."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.started: list[str] = []
        self.done = 0

    async def note(self, *names: str) -> None:
        for name in names:
            self.now[name] = self.now.get(name, 0) + 1
            self.most[name] = max(self.most.get(name, 0), self.now[name])
        await asyncio.sleep(0.01)
        for name in names:
            self.now[name] -= 1
        self.done += 1


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture
async def start(make_app: Callable[..., App]) -> AsyncIterator[Callable[..., object]]:
    nodes: list[Node] = []

    async def start(app: App) -> Node:
        nodes.append(Node(app, ["worker", "scheduler"]))
        await nodes[-1].start()
        return nodes[-1]

    yield start
    for node in nodes:
        await node.stop()


def limited_app(make_app, runs, **options) -> App:
    app = make_app(concurrency=16)

    @app.task(**options)
    async def charge(customer: str) -> None:
        await runs.note("all", customer)

    @app.task
    async def other() -> None:
        await runs.note("other")

    return app


async def test_a_task_runs_no_more_than_its_limit_on_all_nodes(make_app, start, runs):
    apps = [limited_app(make_app, runs, concurrency=3) for _ in range(2)]
    for app in apps:
        await start(app)
    charge = apps[0].tasks["charge"]
    await charge.submit_many([f"c{n}" for n in range(60)])
    await apps[1].tasks["other"].submit()
    await eventually(lambda: runs.done == 61)
    assert runs.most["all"] == 3


@pytest.mark.parametrize("each", ["chunk", "job"])
async def test_members_of_a_map_count_for_the_limit_of_their_task(make_app, start, runs, each):
    apps = [limited_app(make_app, runs, concurrency=3) for _ in range(2)]
    flow = apps[0].workflow("limited")
    size = {"size": 5} if each == "chunk" else {}
    over = [f"c{n}" for n in range(60)]
    flow.map(apps[0].tasks["charge"], over=over, each=each, at_once=20, **size)
    for app in apps:
        await start(app)
    run = await flow.start()
    await apps[1].tasks["charge"].submit_many([f"d{n}" for n in range(20)])
    await eventually(lambda: runs.done == 80)
    assert runs.most["all"] == 3
    assert (await run.wait(60)).state == "succeeded"


async def test_a_chunk_of_a_limited_task_lies_where_its_limit_is_counted(make_app, runs):
    app = limited_app(make_app, runs, concurrency=3)
    node = Node(app, ["worker"])
    await node.start()  # registers the task
    await node.stop()
    flow = app.workflow("limited")
    flow.map(app.tasks["charge"], over=["a", "b"], size=1, name="parts")
    run = await flow.start()
    store = await app.store()
    await RunAdvance(store.database).advance(run.id)
    async with store.database.connection() as connection:
        rows = await connection.fetch(f"select lane, share from {app.settings.schema}.present")
    assert [row["share"] for row in rows] == ["t=charge"] * 2
    assert all("#" in row["lane"] for row in rows)


async def test_a_limit_for_each_key(make_app, start, runs):
    app = limited_app(make_app, runs, concurrency=2, concurrency_key="customer")
    await start(app)
    for n in range(40):
        await app.tasks["charge"].submit(f"c{n % 4}")
    await eventually(lambda: runs.done == 40)
    assert {runs.most[f"c{n}"] for n in range(4)} == {2}


async def test_jobs_that_were_stored_before_the_limit_obey_it(make_app, start, runs):
    before = limited_app(make_app, runs)
    await before.tasks["charge"].submit_many([f"c{n}" for n in range(30)])
    await start(limited_app(make_app, runs, concurrency=2))
    await eventually(lambda: runs.done == 30)
    assert runs.most["all"] == 2


async def test_a_queues_limit_is_set_while_it_runs(make_app, start, runs):
    app = limited_app(make_app, runs)
    await start(app)
    await app.tasks["charge"].submit_many([f"c{n}" for n in range(300)])
    await app.queues.set_limits("default", concurrency=1)
    await eventually(lambda: runs.now.get("all", 0) <= 1)
    runs.most.clear()
    await app.queues.set_limits("default", concurrency=2)
    await eventually(lambda: runs.done == 300)
    assert runs.most.get("all", 0) <= 2


async def test_jobs_of_an_order_key_run_in_order_retries_included(make_app, start):
    app = make_app(concurrency=8)
    ran: list[tuple[str, int]] = []

    @app.task(order_key="account", retry=Retry(max_attempts=3, base=0.05))
    async def book(account: str, number: int) -> None:
        ran.append((account, number))
        if number == 1 and ran.count((account, 1)) < 3:
            raise ValueError("again")

    await start(app)
    for number in range(4):
        for account in ("a", "b"):
            await book.submit(account, number)
    await eventually(lambda: len(ran) == 12)
    for account in ("a", "b"):
        assert [number for its, number in ran if its == account] == [0, 1, 1, 1, 2, 3]


async def test_what_a_lost_answer_took_is_given_back(make_app, start, runs, monkeypatch):
    app = limited_app(make_app, runs, concurrency=2)
    honest, lost = LimitStore.claim_allotted, []

    async def claim(self, *args):
        rows = await honest(self, *args)
        if rows[0] and not lost:
            lost.append(rows)
            raise StoreUnavailable("the answer was lost")
        return rows

    monkeypatch.setattr(LimitStore, "claim_allotted", claim)
    await start(app)
    for n in range(6):
        await app.tasks["charge"].submit(f"c{n}")
    await eventually(lambda: runs.done == 6)
    assert lost
    assert runs.most["all"] <= 2


async def test_queues_without_limits_read_nothing_of_them(make_app, start, runs, monkeypatch):
    async def refuse(self, *args):
        raise AssertionError("a plain lane was claimed from as if it had limits")

    for name in ("claim_shared", "claim_allotted", "settle_allotments", "shared_pause", "resort"):
        monkeypatch.setattr(LimitStore, name, refuse)
    app = limited_app(make_app, runs)
    await start(app)
    await app.tasks["charge"].submit_many([f"c{n}" for n in range(20)])
    await eventually(lambda: runs.done == 20)
    async with (await app.store()).database.connection() as connection:
        for table in ("arrival", "sublane", "meter", "place", "allotment"):
            count = await connection.fetchval(f"select count(*) from {app.settings.schema}.{table}")
            assert count == 0


async def test_a_fair_queue_serves_a_key_behind_a_backlog(make_app, start):
    app = make_app(concurrency=4)
    order: list[str] = []

    @app.task(fairness_key="customer")
    async def report(customer: str) -> None:
        order.append(customer)
        await asyncio.sleep(0.005)

    await app.queues.set_policy("default", "fair")
    await report.submit_many(["big"] * 300)
    await report.submit_many(["small"] * 20)
    await start(app)
    await eventually(lambda: order.count("small") == 20)
    assert order.count("big") < 100
    await eventually(lambda: len(order) == 320)
    shares = {share.key: share for share in await app.queues.shares("default")}
    assert shares["big"].served > shares["small"].served > 0


async def test_tasks_whose_places_others_have_hold_nobody_back(make_app, start):
    """A worker with one slot looks past the lanes of which it may run nothing."""
    held, ended = asyncio.Event(), []
    apps = [make_app(concurrency=4), make_app(concurrency=1, poll=600.0)]
    for app in apps:

        async def few() -> None:
            await held.wait()

        for name in ("few", "lonely", "single"):
            app.task(few, name=name, concurrency=1)

    @apps[1].task(concurrency_key="customer", concurrency=2)
    async def charge(customer: str) -> None:
        ended.append(customer)

    for name in ("few", "lonely", "single"):
        for _ in range(10):
            await apps[0].tasks[name].submit()
    first = await start(apps[0])
    await eventually(lambda: first.worker_role.worker.slots.count_running() == 3)
    await charge.submit_many([f"c{n}" for n in range(20)])
    await start(apps[1])
    await eventually(lambda: len(ended) == 20)
    held.set()


BACKLOGS = {
    "plain": {},
    "a queue of its own": {"queue": "bulk"},
    "under limits in a queue of its own": {
        "queue": "bulk",
        "concurrency": 6,
        "concurrency_key": "n",
    },
    "in a fair queue of its own": {"queue": "bulk", "fairness_key": "n"},
}
LIMITED = {
    "by key": {"concurrency": 2, "concurrency_key": "customer"},
    "by task": {"concurrency": 2},
    "by rate": {"rate": "100/s"},
}


@pytest.mark.parametrize("limit", LIMITED)
@pytest.mark.parametrize("backlog", BACKLOGS)
async def test_jobs_under_limits_start_beside_a_backlog(make_app, start, backlog, limit):
    """A worker whose slots are all taken again as they become free lets both have some of them."""
    app, ran = make_app(concurrency=4), []

    @app.task(**BACKLOGS[backlog])
    async def bulk(n: int) -> None:
        ran.append("bulk")
        await asyncio.sleep(0.004)  # so short that these are claimed ahead

    @app.task(**LIMITED[limit])
    async def charge(customer: str) -> None:
        ran.append(customer)

    if "fair" in backlog:
        await app.queues.set_policy("bulk", "fair")
    await bulk.submit_many([n % 5 for n in range(4_000)])
    await start(app)
    await eventually(lambda: len(ran) > 200)
    await charge.submit_many([f"c{n % 5}" for n in range(12)])
    await eventually(lambda: len(ran) - ran.count("bulk") == 12)
    assert ran.count("bulk") < 3_500


async def test_a_worker_with_one_slot_does_not_rest_while_jobs_with_keys_wait(
    make_app, start, monkeypatch
):
    """It can't look into all lanes at once: that one of them is empty says nothing about the others."""
    app, ran = make_app(concurrency=1, poll=600.0), []

    @app.task(fairness_key="customer")
    async def report(customer: str) -> None:
        ran.append(customer)
        await asyncio.sleep(0.1)  # too long to be claimed ahead of a free slot

    @app.task
    async def plain() -> None: ...

    for queue in ("a", "b", "c"):
        await plain.options(queue=queue).submit()
    await report.submit_many([f"c{n}" for n in range(8)])
    node = await start(app)
    worker = node.worker_role.worker
    tick, pauses = worker.tick, []

    async def ticking() -> float:
        before, shared = len(ran), worker.shared
        awaited, freed = shared.must_wait, bool(shared._freed)
        pause = await tick()
        # A job has ended, or its end was written meanwhile: that wakes the worker.
        woken = awaited or shared.must_wait or (shared._freed and not freed)
        if 0 < before == len(ran) < 8 and worker.slots.free() and not woken:
            pauses.append(pause)
        return pause

    monkeypatch.setattr(worker, "tick", ticking)
    await eventually(lambda: len(ran) == 8)
    assert max(pauses, default=0.0) < 1.0


async def test_slots_that_are_kept_and_promised_to_jobs_that_wait_for_their_moment_wake_nobody(
    make_app, start
):
    """A worker would look again and again, without a question to the database, until they start."""
    app = make_app(concurrency=3, poll=600.0)

    @app.task(fairness_key="customer")
    async def report(customer: str) -> None: ...

    @app.task(
        name="plain"
    )  # of `waiting_work`, which is not stored: whatever becomes of it is refused
    async def plain() -> None: ...

    await report.submit("c1")
    node = await start(app)
    worker = node.worker_role.worker
    await eventually(lambda: len(worker._lanes) == 2)  # the plain one, and that of the keys
    later = asyncio.get_running_loop().time() + 3600
    for _ in range(2):
        worker._wheel.add(later, waiting_work())
    [places] = [each for each in worker.slots._places.values() if each.size == 3]
    claimed_ahead = waiting_work()  # it would take what is kept
    claimed_ahead.place = places
    places.waiting.append((monotonic(), claimed_ahead))
    worker.slots.keep(0.3, 1)
    worker.shared._look_at = 0.0
    assert worker.slots.keeps()
    # By turns it looks into one lane or the other; what it must not do is to go on at once each time.
    assert max([await worker.tick() for _ in range(4)]) > 0
    worker._wheel.clear()
    places.waiting.clear()


def waiting_work() -> Work:
    return Work(new_id(), "plain", b"{}", 1, 1, 1, lane="default/default")


async def test_a_node_with_few_slots_for_a_task_leaves_its_places_to_others(make_app, start):
    """One has many slots for coroutines and a single thread: of ten places it can use one."""
    running, lock, go_on = [0], threading.Lock(), threading.Event()

    def declare(**settings) -> App:
        app = make_app(concurrency=30, **settings)

        @app.task(concurrency=10, runner="thread")
        def grind() -> None:
            with lock:
                running[0] += 1
            go_on.wait(60)

        return app

    apps = [declare(threads=1), declare(threads=20)]
    try:
        for app in apps:
            await start(app)
        await apps[0].tasks["grind"].submit_many([()] * 60)
        await eventually(lambda: running[0] == 10)
    finally:
        go_on.set()
