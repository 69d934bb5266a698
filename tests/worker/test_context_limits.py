"""ctx.limit(): places that handlers ask for while they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise

import pytest

from proof.waiting import eventually
from rota import App, ConfigError, Context, Node
from tests.support import limited_tasks


class Inside:
    def __init__(self) -> None:
        self.now = 0
        self.most = 0
        self.done = 0
        self.order: list[int] = []

    async def visit(self, number: int, leave: asyncio.Event) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        self.order.append(number)
        await leave.wait()
        self.now -= 1
        self.done += 1


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., object]]:
    nodes: list[Node] = []

    async def start(app: App) -> Node:
        nodes.append(Node(app, ["worker", "scheduler"]))
        await nodes[-1].start()
        return nodes[-1]

    yield start
    for node in nodes:
        await node.stop()


@pytest.fixture
def inside():
    return Inside()


async def running_of(app, name):
    found = await app.queues.limits()
    return next(((one.running, one.waiting) for one in found if one.name == name), None)


async def test_no_more_handlers_than_the_limit_are_inside_on_all_nodes(make_app, start, inside):
    leave = asyncio.Event()

    def declare(app):
        @app.task
        async def call(ctx: Context, number: int) -> None:
            async with ctx.limit("stripe", concurrency=2):
                await inside.visit(number, leave)

    one, two = make_app(concurrency=4), make_app(concurrency=4)
    for app in (one, two):
        declare(app)
        await start(app)
    await one.tasks["call"].submit_many([(n,) for n in range(6)])

    async def waits():
        return await running_of(one, "limit:stripe") == (2, 4)

    await eventually(waits)
    holders = await one.queues.holders("limit:stripe")
    assert len(holders) == 2
    jobs = await one.jobs.list(state="running")
    codes = [(await one.jobs.explain(job.id)).code for job in jobs]
    assert sorted(codes) == ["running"] * 2 + ["waiting_for_limit"] * 4
    leave.set()
    await eventually(lambda: inside.done == 6)
    assert inside.most == 2

    async def is_free():  # the last place is given back after its handler has left
        return await running_of(one, "limit:stripe") == (0, 0)

    await eventually(is_free)


async def test_a_wait_ends_with_its_timeout_and_with_a_cancel(make_app, start, inside):
    app = make_app(concurrency=4)
    leave, told = asyncio.Event(), []

    @app.task
    async def hold(ctx: Context) -> None:
        async with ctx.limit("one", concurrency=1):
            await inside.visit(0, leave)

    @app.task
    async def impatient(ctx: Context) -> None:
        try:
            async with ctx.limit("one", concurrency=1, timeout=0.05):
                told.append("inside")
        except TimeoutError:
            told.append("timeout")

    @app.task
    async def patient(ctx: Context) -> None:
        async with ctx.limit("one", concurrency=1):
            told.append("inside")

    await start(app)
    await hold.submit()
    await eventually(lambda: inside.now == 1)
    await impatient.submit()
    await eventually(lambda: told == ["timeout"])
    waiting = await patient.submit()

    async def waits():
        return await running_of(app, "limit:one") == (1, 1)

    await eventually(waits)
    await app.jobs.cancel(waiting.id)

    async def is_cancelled():
        return (await app.jobs.get(waiting.id)).state == "cancelled"

    await eventually(is_cancelled)
    leave.set()
    await eventually(lambda: inside.done == 1)
    assert told == ["timeout"]
    assert await running_of(app, "limit:one") == (0, 0)


async def test_plain_functions_wait_in_child_processes_and_threads(make_app, start):
    settings = make_app(concurrency=4, processes=2, threads=2).settings
    async with limited_tasks.app.using(settings) as app:
        node = await start(app)
        handles = [
            await app.tasks[name].submit()
            for name in ("in_a_process", "in_a_thread")
            for _ in range(2)
        ]
        spans = sorted([await handle.result(timeout=60) for handle in handles])
        await node.stop()
    assert len(spans) == 4
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans))


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("", {"concurrency": 1}, "the name of a limit"),
        ("a b", {"concurrency": 1}, "the name of a limit"),
        ("a", {}, "needs a concurrency or a rate"),
        ("a", {"concurrency": 0}, "concurrency must be"),
        ("a", {"rate": "often"}, "rate must be"),
        ("a", {"rate_burst": 2, "concurrency": 1}, "rate_burst needs a rate"),
        ("a", {"concurrency": 1, "timeout": -1}, "timeout must be"),
    ],
)
async def test_limits_that_make_no_sense_are_refused(sandbox, name, options, says):
    app = sandbox.app

    @app.task
    async def ask(ctx: Context) -> str:
        try:
            async with ctx.limit(name, **options):
                return "inside"
        except ConfigError as error:
            return str(error)

    handle = await ask.submit()
    await sandbox.run_due()
    assert says in (await app.jobs.get(handle.id)).result
