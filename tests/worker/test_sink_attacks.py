"""What slow brokers, other installations and other releases can do to a sink: no event is left out."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest

from proof.services import Process
from rota import App
from rota.core.cloudevents import CloudEvent
from rota.operations.sinks import make_sink
from rota.store.database import Database
from rota.store.events import EventStore, Noticed
from rota.worker import outbox
from rota.worker.outbox import Outbox
from tests.support.brokers import KINDS, Beat, Broker, NatsBroker, RedisBroker
from tests.support.fake_node import FakeNode
from tests.support.sandboxes import isolated


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    started: dict[str, Process] = {}

    def start(name: str) -> Process:
        service, _ = KINDS[name]
        if reason := service.missing():
            pytest.skip(reason)
        if name not in started:
            started[name] = service(tmp_path_factory.mktemp(name))
            started[name].start()
        return started[name]

    yield start
    for each in started.values():
        each.stop()


@pytest.fixture
async def redis(servers: Any) -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(servers("redis"))
    await broker.open()
    yield broker
    await broker.close()


@pytest.fixture
async def nats(servers: Any) -> AsyncIterator[NatsBroker]:
    broker = NatsBroker(servers("nats"))
    await broker.open()
    yield broker
    await broker.close()


async def release(sandbox: Any, hot: Any, target: str, start: Any = "new") -> Outbox:
    """A node whose code declares the sink `out` with this target."""
    node = await FakeNode(hot, sandbox.app.settings).register(roles=["worker"])
    return Outbox(sandbox.app, hot, Beat(node), make_sink(target, "out", (), (), (), start))


async def note(hot: Any, number: int) -> list[str]:
    jobs = [uuid4() for _ in range(number)]
    for job in jobs:
        await EventStore(hot).add("default", [Noticed("failed", "pay", job, {})])
    return [str(job) for job in jobs]


async def subjects(broker: Broker, stream: str) -> list[str]:
    entries = await broker._client.xrange(stream)  # type: ignore[attr-defined]
    return [json.loads(fields[b"event"])["subject"] for _, fields in entries]


async def ticks(one: Outbox, number: int) -> None:
    for _ in range(number):
        await one.tick()


async def test_two_releases_with_different_targets_leave_no_event_out(sandbox, hot, redis, caplog):
    old = await release(sandbox, hot, f"{redis.server.url}/old")
    new = await release(sandbox, hot, f"{redis.server.url}/new")
    await old.tick()
    first = await note(hot, 2)
    assert await new.tick() > 1  # it waits
    assert "sends to" in caplog.text
    await old.tick()
    assert await subjects(redis, "old") == first
    await old.leave()
    await new.tick()  # begins with what is new
    assert await old.tick() > 1
    second = await note(hot, 2)
    await new.tick()
    assert await subjects(redis, "new") == second
    await new.leave()
    await ticks(old, 2)  # goes on where it was left
    assert await subjects(redis, "old") == first + second
    await old.leave()


class Slow:
    """A line to a broker on which each event takes a while."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self.confirmed: list[str] = []

    async def send(self, events: Sequence[CloudEvent]) -> None:
        for event in events:
            await asyncio.sleep(0.02)
            await self._target.send([event])
            self.confirmed.append(event.subject)

    async def close(self) -> None:
        await self._target.close()


async def test_a_line_that_is_too_slow_for_a_batch_gets_smaller_ones(
    sandbox, hot, redis, monkeypatch
):
    monkeypatch.setattr(outbox, "_SEND", 0.5)
    one = await release(sandbox, hot, f"{redis.server.url}/slow", "beginning")
    one._target = slow = Slow(one._target)
    await one.tick()
    jobs = await note(hot, 100)
    for _ in range(40):
        with contextlib.suppress(outbox.SourceUnavailable):  # not in time
            await one.tick()
        if (await sandbox.app.sinks.get("out")).sent >= 100:
            break
    assert (await sandbox.app.sinks.get("out")).sent == 100
    assert list(dict.fromkeys(slow.confirmed)) == jobs
    await one.leave()


async def test_events_of_two_installations_in_one_stream_of_jetstream_all_arrive(
    database_url, nats
):
    """Their events have the same ids, and JetStream drops what it takes for a repetition."""
    target = f"{nats.server.url}/orders.events"
    sent = []
    for _ in range(2):
        async with isolated(App(database_url=database_url)) as sandbox:
            settings = sandbox.app.settings
            hot = Database(settings.database_url or "", settings, hot=True)
            await hot.open()
            one = await release(sandbox, hot, target, "beginning")
            await one.tick()
            sent += await note(hot, 3)
            await ticks(one, 2)
            await one.leave()
            await hot.close()
    stream = nats._line.jetstream()
    info = await stream.stream_info("orders")
    got = [
        json.loads((await stream.get_msg("orders", number)).data)["subject"]
        for number in range(1, info.state.last_seq + 1)
    ]
    assert got == sent
    assert all(UUID(each) for each in got)
