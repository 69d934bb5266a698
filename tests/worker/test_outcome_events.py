"""What went well, for sinks that ask for it: rota.outbox, what writes it, and worker/outbox.py."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from proof.services import Process, Redis
from rota import Retry
from rota.scheduler.janitor import Janitor
from rota.scheduler.shards import AllShards
from rota.store.events import EventStore, Position
from rota.store.work import UpkeepStore
from rota.worker.outbox import Outbox
from tests.support.brokers import Beat, RedisBroker
from tests.support.fake_node import FakeNode
from tests.support.shop import ended

ALL = ("succeeded", "cancelled", "fired", "run_succeeded", "run_cancelled", "run_failed", "failed",
       "dead_lettered")  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    if reason := Redis.missing():
        pytest.skip(reason)
    process = Redis(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.stop()


@pytest.fixture
async def redis(server: Process) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(server)
    await broker.open()
    yield broker
    await broker.close()


async def sink(
    sandbox: Any, hot: Any, redis: RedisBroker, name: str = "out", **more: Any
) -> Outbox:
    sandbox.app.sink(redis.url, name=name, **{"kinds": ALL, **more})
    node = await FakeNode(hot, sandbox.app.settings).register(roles=["worker"])
    one = Outbox(sandbox.app, hot, Beat(node), sandbox.app.sinks.declared[name])
    await one.tick()
    return one


async def sent(one: Outbox, redis: RedisBroker) -> list[dict[str, Any]]:
    while await one.tick() == 0.0:
        pass
    return [json.loads(fields[b"event"]) for _, fields in await redis._client.xrange("orders")]


async def recorded(hot: Any) -> int:
    async with hot.connection() as connection:
        return int(await connection.fetchval(f"select count(*) from {hot.schema}.outbox"))


async def test_the_life_of_a_job_in_its_order(sandbox, hot, redis):
    one = await sink(sandbox, hot, redis)

    closed = [True]

    @sandbox.app.task(queue="money", retry=Retry(max_attempts=1))
    async def pay() -> str:
        if closed[0]:
            raise RuntimeError("the bank is closed")
        return "secret"

    paid, stopped = await pay.submit(), await pay.options(delay=600).submit()
    await sandbox.run_due()
    await stopped.cancel()
    closed[0] = False
    await sandbox.app.jobs.retry(paid.id)
    await sandbox.run_due()
    events = await sent(one, redis)
    own = [event for event in events if event["subject"] == str(paid.id)]
    assert [event["type"] for event in own] == ["rota.job.dead_lettered", "rota.job.succeeded"]
    assert own[1]["data"]["detail"]["queue"] == "money"
    assert own[1]["data"]["detail"]["attempt"] == 1
    assert "secret" not in json.dumps(own)
    [cancelled] = [event for event in events if event["subject"] == str(stopped.id)]
    assert cancelled["type"] == "rota.job.cancelled"
    assert [event["sequence"] for event in events] == sorted(event["sequence"] for event in events)
    assert len({event["id"] for event in events}) == len(events)
    await one.leave()


async def test_occurrences_and_runs(sandbox, hot, redis):
    one = await sink(sandbox, hot, redis, kinds=["fired", "run_succeeded", "run_cancelled"])

    @sandbox.app.task
    async def step() -> None: ...

    flow = sandbox.app.workflow("nightly")
    flow.step(step)
    await sandbox.app.schedule("hourly", step, every="1h")
    await sandbox.run_for(hours=2, minutes=1)
    done = await flow.start()
    await ended(sandbox, done)
    dropped = await flow.start()
    await dropped.cancel()
    await ended(sandbox, dropped)
    events = await sent(one, redis)
    assert [event["type"] for event in events] == [
        "rota.occurrence.fired", "rota.occurrence.fired", "rota.run.succeeded", "rota.run.cancelled",
    ]  # fmt: skip
    assert events[0]["data"]["detail"]["schedule"] == "hourly"
    assert [event["subject"] for event in events[2:]] == [str(done.id), str(dropped.id)]
    await one.leave()


async def test_what_nobody_asks_for_is_not_recorded(sandbox, hot, redis):
    one = await sink(sandbox, hot, redis, kinds=["succeeded"], queues=["money"], tasks=["pay", "x"])

    @sandbox.app.task(queue="money")
    async def pay() -> None: ...

    @sandbox.app.task(queue="money")
    async def count() -> None: ...

    @sandbox.app.task(queue="mail", name="x")
    async def elsewhere() -> None: ...

    for task in (pay, count, elsewhere):
        await task.submit()
    await (await pay.options(delay=600).submit()).cancel()
    await sandbox.run_due()
    assert await recorded(hot) == 1
    [event] = await sent(one, redis)
    assert event["data"]["task"] == "pay"
    await sandbox.app.sinks.remove("out")
    await pay.submit()
    await sandbox.run_due()
    assert await recorded(hot) == 1
    await one.leave()


async def test_a_sink_of_failures_costs_no_record(sandbox, hot, redis):
    one = await sink(sandbox, hot, redis, kinds=())

    @sandbox.app.task
    async def pay() -> None: ...

    await pay.submit()
    await sandbox.run_due()
    assert await recorded(hot) == 0
    assert await sent(one, redis) == []
    await one.leave()


@pytest.mark.parametrize("history", ["none", "failures", "sample:0.0001%"])
async def test_jobs_that_their_queue_does_not_keep_are_told_of_too(sandbox, hot, redis, history):
    one = await sink(sandbox, hot, redis, kinds=["succeeded"])

    @sandbox.app.task(queue="mail")
    async def write() -> None: ...

    await sandbox.app.queues.configure("mail", history=history)
    job = await write.submit()
    await sandbox.run_due()
    [event] = await sent(one, redis)
    assert event["subject"] == str(job.id)
    assert event["data"]["detail"]["attempt"] == 1
    await one.leave()


async def test_webhooks_lists_and_streams_are_not_told(sandbox, hot, redis):
    one = await sink(sandbox, hot, redis, kinds=["succeeded"])

    @sandbox.app.task
    async def pay() -> None: ...

    await pay.submit()
    await sandbox.run_due()
    assert await sandbox.app.events.list() == []
    await one.leave()


async def test_what_was_sent_goes_after_a_day_and_what_was_not_after_the_retention(
    sandbox, hot, redis
):
    one = await sink(sandbox, hot, redis, kinds=["succeeded"])
    slow = await sink(sandbox, hot, redis, name="slow", kinds=["succeeded"])

    @sandbox.app.task
    async def pay() -> None: ...

    janitor = Janitor(UpkeepStore(hot), sandbox.app.settings, AllShards(128))
    await pay.submit()
    await sandbox.run_due()
    await sent(one, redis)
    await sandbox.advance(hours=25)
    await janitor.clean()
    assert await recorded(hot) == 1  # one of them has not sent it
    await sandbox.advance(days=7)
    await janitor.clean()
    assert await recorded(hot) == 0
    await pay.submit()
    await sandbox.run_due()
    for each in (one, slow):
        await sent(each, redis)
    await janitor.clean()
    assert await recorded(hot) == 1
    await sandbox.advance(hours=25)
    # The position of what was sent last is not past its own transaction yet.
    await pay.submit()
    await sandbox.run_due()
    for each in (one, slow):
        await sent(each, redis)
    await janitor.clean()
    assert await recorded(hot) == 1
    for each in (one, slow):
        await each.leave()


async def test_both_tables_are_one_stream(sandbox, hot, redis):
    """Pages end anywhere between them."""
    one = await sink(sandbox, hot, redis)

    @sandbox.app.task(retry=Retry(max_attempts=1))
    async def pay(bad: bool) -> None:
        if bad:
            raise RuntimeError

    for number in range(12):
        await pay.submit(bad=number % 2 == 0)
        await sandbox.run_due()
    one._most = 3
    whole = await sent(one, redis)
    assert len(whole) == 12
    assert len({event["id"] for event in whole}) == 12
    rows, _ = await one._events.read_all("default", Position(), 100)
    assert [str(row.event.id) for row in rows] == [event["id"] for event in whole]
    assert await EventStore(hot).list("default", None, None, 100)
    await one.leave()


async def test_how_long_events_wait_is_measured(sandbox, hot, redis):
    one = await sink(sandbox, hot, redis, kinds=["succeeded"])

    @sandbox.app.task
    async def pay() -> None: ...

    async def waits() -> tuple[float, int]:
        [row] = await hot.fetch("count_shards")
        [[space, name, seconds, count, _]] = [json.loads(each) for each in row["sinks"]]
        assert (space, name) == ("default", "out")
        return seconds, count

    assert await waits() == (0, 0)
    await pay.submit()
    await sandbox.run_due()
    await sandbox.advance(seconds=90)
    assert await waits() == (90.0, 0)
    await sent(one, redis)
    assert await waits() == (0, 1)
    await one.leave()
