"""Workers by a broker: worker/dispatch/, server/dispatch/, runtime/dispatch/, on real brokers.

A broker that can't be had here leaves its tests out, and says why.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from proof.services import Kafka, Nats, Process, RabbitMQ, Redis
from proof.waiting import eventually
from rota import App, Context, Node, Retry, SyncContext
from rota.server.dispatch.relay import Relay
from rota.worker.dispatch.node import DispatchedNode

SECRET = "a secret of relays and workers that is long enough"
BROKERS: dict[str, type[Process]] = {
    "redis": Redis, "nats": Nats, "rabbitmq": RabbitMQ, "kafka": Kafka,
}  # fmt: skip


@pytest.fixture(scope="module", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Process]:
    kind = BROKERS[request.param]
    if (missing := kind.missing()) is not None:
        pytest.skip(missing)
    server = kind(tmp_path_factory.mktemp(request.param))
    server.start()
    yield server
    server.stop()


class Stage:
    """A scheduler and relays on one side of a broker, workers on the other, with short leases."""

    def __init__(self, make_app: Callable[..., App], broker: Process, name: str) -> None:
        self._make_app = make_app
        self.broker = broker
        self.settings: dict[str, Any] = {
            "dispatch": f"{broker.url}/{name}", "dispatch_secret": SECRET, "heartbeat": 0.5,
            "missed_heartbeats": 6, "grace": 5, "kill_grace": 1, "concurrency": 10, "threads": 4,
        }  # fmt: skip
        self.app = make_app(**self.settings)
        self.ran: list[tuple[str, UUID, int]] = []
        self.gate = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()

    async def relay(self) -> Node:
        app = self._make_app(**self.settings)
        node = Node(app, ["relay"], relay=Relay(app))
        await node.start()
        self._stack.push_async_callback(node.stop)
        return node

    async def scheduler(self) -> None:
        app = self._make_app(**self.settings)
        node = Node(app, ["scheduler"])
        await node.start()
        self._stack.push_async_callback(node.stop)

    def tasks(self) -> App:
        """An app that reaches no database."""
        app = App(**{**self.settings, "database_url": "postgresql://nowhere.invalid/none"})
        stage = self

        @app.task
        async def greet(ctx: Context, name: str) -> str:
            stage.ran.append(("greet", ctx.job.id, ctx.token))
            print("greeting", name)
            ctx.progress(1, 2, "half")
            return f"Hello, {name}!"

        @app.task(retry=Retry(max_attempts=3, base=0, jitter=0, never_on=(LookupError,)))
        async def fail(ctx: Context, how: str) -> None:
            stage.ran.append(("fail", ctx.job.id, ctx.token))
            raise KeyError(how) if how == "key" else ValueError(how)

        @app.task(guarantee="at_most_once")
        async def once(ctx: Context) -> None:
            stage.ran.append(("once", ctx.job.id, ctx.token))
            await stage.gate.wait()

        @app.task
        async def hold(ctx: Context) -> str:
            stage.ran.append(("hold", ctx.job.id, ctx.token))
            await stage.gate.wait()
            return "held"

        @app.task(timeout=0.3, retry=Retry(max_attempts=1))
        async def slow(ctx: Context) -> None:
            await asyncio.sleep(60)

        @app.task(runner="thread")
        def plain(ctx: SyncContext, n: int) -> int:
            stage.ran.append(("plain", ctx.job.id, ctx.token))
            print("plain", n)
            return n * 2

        @app.task(retry=Retry(max_attempts=1))
        async def effect(ctx: Context) -> None:
            await ctx.once("key", lambda: None)

        @app.task
        async def odd(what: str) -> Any:
            if what == "set":
                return object()
            return what + "\0"

        return app

    async def worker(self, **given: Any) -> DispatchedNode:
        node = DispatchedNode(self.tasks(), **given)
        await node.start()
        self._stack.push_async_callback(node.stop)
        return node

    async def submit(self, task: str, **payload: Any) -> UUID:
        return (await self.app.submit(task, payload)).id

    async def ends(self, id: UUID, state: str = "succeeded") -> Any:
        async def ask() -> Any:
            job = await self.app.jobs.get(id)
            return job if job.state == state else None

        return await eventually(ask, what=f"{state} of {id}")

    async def begins(self, id: UUID) -> None:
        await eventually(
            lambda: any(job == id for _, job, _ in self.ran), what=f"the start of {id}"
        )

    async def close(self) -> None:
        self.gate.set()
        await self._stack.aclose()


@pytest.fixture
async def stage(
    make_app: Callable[..., App], broker: Process, request: pytest.FixtureRequest
) -> AsyncIterator[Stage]:
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    stage = Stage(make_app, broker, name)
    await stage.scheduler()
    try:
        yield stage
    finally:
        await stage.close()


async def test_jobs_are_run_by_a_worker_without_a_database(stage: Stage):
    await stage.relay()
    await stage.worker()
    greeted = await stage.submit("greet", name="Ada")
    job = await stage.ends(greeted)
    assert (job.result, job.attempt, job.progress["done"]) == ("Hello, Ada!", 1, 1)
    lines = [line.text async for line in stage.app.jobs.logs(greeted)]
    assert lines == ["greeting Ada"]
    assert (await stage.ends(await stage.submit("plain", n=4))).result == 8
    failed = await stage.ends(await stage.submit("fail", how="value"), "failed")
    assert (failed.attempt, failed.error.type, failed.error.message) == (3, "ValueError", "value")
    assert "raise" in failed.error.traceback


async def test_a_rule_for_a_base_class_of_an_error_counts(stage: Stage):
    await stage.relay()
    await stage.worker()
    failed = await stage.ends(await stage.submit("fail", how="key"), "failed")
    assert (failed.attempt, failed.error.type) == (1, "KeyError")


async def test_a_result_that_cannot_be_kept_is_dropped_and_takes_no_other_with_it(stage: Stage):
    await stage.relay()
    ids = [await stage.submit("odd", what=what) for what in ("set", "nul", "nul")]
    greeted = await stage.submit("greet", name="Ada")
    await stage.worker()
    assert (await stage.ends(greeted)).result == "Hello, Ada!"
    for id, why in zip(ids, ("JSON", "NUL", "NUL"), strict=True):
        job = await stage.ends(id)
        assert (job.result, job.attempt, job.error.type) == (None, 1, "ResultDropped")
        assert why in job.error.message


async def test_a_cancelled_job_is_stopped(stage: Stage):
    await stage.relay()
    await stage.worker()
    id = await stage.submit("hold")
    await stage.begins(id)
    await stage.app.jobs.cancel(id)
    await stage.ends(id, "cancelled")


async def test_a_job_over_its_timeout_is_stopped(stage: Stage):
    await stage.relay()
    await stage.worker()
    job = await stage.ends(await stage.submit("slow"), "failed")
    assert job.error.type == "TimedOut"


async def test_what_needs_the_database_is_refused_with_a_reason(stage: Stage):
    await stage.relay()
    await stage.worker()
    job = await stage.ends(await stage.submit("effect"), "failed")
    assert "ctx.once() needs the database" in job.error.message


async def test_a_worker_that_stops_gives_back_what_it_cannot_end(stage: Stage):
    await stage.relay()
    first = await stage.worker()
    id = await stage.submit("hold")
    await stage.begins(id)
    first._stop_at_once.set()
    await first.stop()
    assert not any(node.remote for node in await stage.app.nodes.list())
    await stage.worker()
    stage.gate.set()
    job = await stage.ends(id)
    assert (job.attempt, job.result, len(stage.ran)) == (1, "held", 2)


async def test_relays_take_over_from_each_other(stage: Stage):
    one = await stage.relay()
    await stage.worker()
    await stage.ends(await stage.submit("greet", name="one"))
    await one.stop()
    id = await stage.submit("greet", name="two")
    await stage.relay()
    assert (await stage.ends(id)).attempt == 1


async def test_a_relay_is_ready_while_its_broker_answers(stage: Stage):
    node = await stage.relay()

    def is_ready() -> bool:
        return {each.name: each.ok for each in node.readiness().checks}["broker"]

    await eventually(is_ready, what="the broker")
    stage.broker.kill()
    await eventually(lambda: not is_ready(), what="its absence")
    stage.broker.start()
    await eventually(is_ready, what="the broker again")


async def test_a_broker_that_loses_everything_costs_time_only(stage: Stage):
    await stage.relay()
    await stage.relay()
    await stage.worker()
    held = await stage.submit("once")
    await stage.begins(held)
    stage.broker.wipe()
    greeted = [await stage.submit("greet", name=f"{n}") for n in range(20)]
    stage.broker.kill()
    stage.broker.start()
    for id in greeted:
        await stage.ends(id)
    stage.gate.set()
    assert await eventually(lambda: len([1 for task, *_ in stage.ran if task == "once"])) == 1
    job = await stage.app.jobs.get(held)
    if job.state == "running":
        job = await stage.ends(held)
    # Whether its lease outlived the broker's absence depends on the machine; it never began twice.
    assert job.state == "succeeded" or job.error.type == "NodeLost"


async def test_one_whose_lease_ran_out_is_somebody_else_and_goes_on(stage: Stage):
    relay = await stage.relay()
    worker = await stage.worker()
    id = await stage.submit("hold")
    await stage.begins(id)
    before = worker.id
    await relay.stop()  # nobody hears its heartbeats
    await stage.ends(id, "ready")
    await stage.relay()
    await eventually(lambda: worker.id != before, what="another id")
    await eventually(lambda: len(stage.ran) == 2, what="another attempt")
    stage.gate.set()
    job = await stage.ends(id)
    assert job.attempt == 2
    assert job.token == stage.ran[-1][2] != stage.ran[0][2]
    assert worker.count_running() == 0


async def test_messages_of_others_are_ignored(stage: Stage):
    import msgspec

    from rota.lib.ids import new_id
    from rota.runtime.dispatch import open_broker
    from rota.runtime.dispatch.seal import Call, Sealer

    node = await stage.relay()
    worker = await stage.worker()
    relay: Any = node.relay
    broker = open_broker(stage.settings["dispatch"], "default")
    said = msgspec.json.encode(Call(1, "leave"))
    forged = Sealer("another secret that is just as long as it has to be", "default")
    assert worker.id is not None
    await broker.call([b"", b"garbage", forged.seal(worker.id, "call", said)])
    ours = Sealer(SECRET, "default")
    await broker.call([ours.seal(new_id(), "answer", said), ours.seal(new_id(), "call", b"{")])
    await eventually(lambda: relay.refused == 5, what="five refusals")
    await broker.close()
    await stage.ends(await stage.submit("greet", name="still here"))


async def test_a_worker_says_what_it_cannot_run(stage: Stage, caplog: pytest.LogCaptureFixture):
    from rota.errors import ConfigError
    from rota.worker.dispatch.node import servable

    app = App(database_url="postgresql://nowhere.invalid/none")

    @app.task(guarantee="exactly_once")
    async def paid(ctx: Context) -> None: ...

    @app.durable
    async def long(ctx: Any) -> None: ...

    with pytest.raises(ConfigError, match="no task that can be run without a database"):
        servable(app.tasks)
    assert "long, paid" in caplog.text
