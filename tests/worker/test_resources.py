"""Resources, reservations and nearness in running workers (worker/stock.py, worker/reservations.py)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from proof.waiting import eventually
from rota import App, Node


class Uses:
    """What runs on each node, as its handlers see it."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.order: list[tuple[str, str]] = []
        self.hold: dict[str, asyncio.Event] = {}

    async def run(self, node: str, name: str, amount: int) -> None:
        self.order.append((node, name))
        self.now[node] = self.now.get(node, 0) + amount
        self.most[node] = max(self.most.get(node, 0), self.now[node])
        event = self.hold.get(name)
        await (event.wait() if event else asyncio.sleep(0.01))
        self.now[node] -= amount

    def runs(self, name: str) -> list[str]:
        return [node for node, each in self.order if each == name]


@pytest.fixture
def uses() -> Uses:
    return Uses()


@pytest.fixture
async def start(make_app: Callable[..., App], uses: Uses) -> AsyncIterator[Callable[..., Any]]:
    nodes: list[Node] = []

    async def start(name: str, labels: tuple[str, ...] = (), **resources: Any) -> Node:
        app = gpu_app(make_app, uses, name)
        nodes.append(Node(app, ["worker", "scheduler"], labels=labels, resources=resources))
        await nodes[-1].start()
        return nodes[-1]

    yield start
    for event in uses.hold.values():
        event.set()
    for node in nodes:
        await node.stop()


def gpu_app(make_app: Callable[..., App], uses: Uses, node: str) -> App:
    app = make_app(concurrency=20, resource_patience=1.0)

    @app.task(resources={"gpu": 1}, timeout=60)
    async def small(name: str = "small") -> None:
        await uses.run(node, name, 1)

    @app.task(resources={"gpu": 4}, timeout=60)
    async def big(name: str = "big") -> None:
        await uses.run(node, name, 4)

    @app.task(resources={"gpu": 1}, concurrency_key="name", concurrency=5)
    async def keyed(name: str) -> None:
        await uses.run(node, name, 1)

    @app.task
    async def plain() -> None:
        await uses.run(node, "plain", 0)

    @app.task(near="model7", near_patience=0.5)
    async def near(name: str = "near") -> None:
        await uses.run(node, name, 0)

    return app


async def test_a_node_never_runs_more_than_it_has(make_app, start, uses):
    app = gpu_app(make_app, uses, "submitter")
    jobs = [await app.tasks["small"].submit() for _ in range(30)]
    jobs += [await app.tasks["keyed"].submit(f"key-{n % 3}") for n in range(12)]
    jobs += [await app.tasks["big"].submit() for _ in range(3)]
    await start("one", gpu=4)
    await start("two", gpu=6)
    for job in jobs:
        await job.result(timeout=30)
    assert uses.most["one"] <= 4
    assert uses.most["two"] <= 6
    assert set(uses.now.values()) == {0}


async def test_what_no_node_can_fit_waits_and_plain_jobs_pass_it(make_app, start, uses):
    app = gpu_app(make_app, uses, "submitter")
    await start("one", gpu=2)
    big = await app.tasks["big"].submit()
    await (await app.tasks["plain"].submit()).result(timeout=20)
    why = await app.jobs.explain(big.id)
    assert why.code == "resources_unfit"
    assert "needs gpu=4; the largest node has gpu=2" in str(why)
    await start("two", gpu=4)
    await big.result(timeout=20)
    assert uses.runs("big") == ["two"]


async def test_a_big_job_gets_a_node_before_the_small_ones_that_follow(make_app, start, uses):
    app = gpu_app(make_app, uses, "submitter")
    names = [f"long-{n}" for n in range(4)]
    uses.hold = {name: asyncio.Event() for name in names}
    await start("one", gpu=4)
    long = [await app.tasks["small"].submit(name) for name in names]
    await eventually(lambda: uses.now.get("one") == 4)
    big = await app.tasks["big"].submit()

    async def reserved() -> bool:
        return any(node.reserved for node in await app.nodes.list())

    await eventually(reserved, 20)
    uses.hold["long-0"].set()
    await long[0].result(timeout=20)
    after = [await app.tasks["small"].submit("after") for _ in range(20)]

    async def explained() -> bool:
        why = await app.jobs.explain(after[0].id)
        return why.code == "waiting_for_resources" and "makes room for gpu=4" in str(why)

    await eventually(explained, 20)  # one is free, and kept for the large job
    for name in names:
        uses.hold[name].set()
        await asyncio.sleep(0)
    await big.result(timeout=20)
    for job in (*long, *after):
        await job.result(timeout=20)
    first_after = uses.order.index(("one", "after"))
    assert uses.order.index(("one", "big")) < first_after
    assert uses.most["one"] == 4


async def test_a_reservation_ends_when_another_node_has_taken_the_job(make_app, start, uses):
    app = gpu_app(make_app, uses, "submitter")
    uses.hold = {"long": asyncio.Event()}
    await start("one", gpu=4)
    long = await app.tasks["small"].submit("long")
    await eventually(lambda: uses.now.get("one") == 1)
    big = await app.tasks["big"].submit()

    async def reserved() -> bool:
        return any(node.reserved for node in await app.nodes.list())

    async def free() -> bool:
        return not await reserved()

    await eventually(reserved, 20)
    await start("two", gpu=4)
    await big.result(timeout=20)
    assert uses.runs("big") == ["two"]
    uses.hold["long"].set()  # now the shape fits on node one, and nobody waits for it
    await long.result(timeout=20)
    await eventually(free, 20)
    uses.hold = {f"after-{n}": asyncio.Event() for n in range(8)}
    after = [await app.tasks["small"].submit(name) for name in uses.hold]
    await eventually(lambda: sum(uses.now.values()) == 8, 20)  # on both of them
    for event in uses.hold.values():
        event.set()
    for job in after:
        await job.result(timeout=20)


async def test_jobs_are_near_to_a_label_for_a_while_and_then_anybodys(make_app, start, uses):
    app = gpu_app(make_app, uses, "submitter")
    await start("other")
    first = await app.tasks["near"].submit("first")
    await first.result(timeout=20)
    assert uses.runs("first") == ["other"]
    job = await app.jobs.get(first.id)
    assert job.started_at is not None
    assert (job.started_at - job.due_at).total_seconds() >= 0.5
    await start("labelled", labels=("model7",))
    jobs = [await app.tasks["near"].submit(f"many-{n}") for n in range(20)]
    for job in jobs:
        await job.result(timeout=20)
    assert {node for node, name in uses.order if name.startswith("many")} == {"labelled"}
