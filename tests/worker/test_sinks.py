"""Events to topics of real brokers: worker/outbox.py, worker/targets/, operations/sinks.py."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest

from proof.services import Process
from proof.waiting import eventually
from rota import App, Node, Retry
from rota.errors import ConfigError, NotFound
from rota.lib.addresses import parse_address
from rota.operations.triggers import PORTS, TriggerSpec
from rota.store.events import EventStore, Noticed
from rota.worker.outbox import Outbox
from rota.worker.sources import SourceUnavailable, open_source
from tests.support.brokers import KINDS, Beat, Broker
from tests.support.fake_node import FakeNode


@pytest.fixture(scope="module", params=list(KINDS))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Process, type[Broker]]]:
    service, broker = KINDS[request.param]
    if reason := service.missing():
        pytest.skip(reason)
    process = service(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process, broker
    process.stop()


@pytest.fixture
async def broker(server: tuple[Process, type[Broker]]) -> AsyncIterator[Broker]:
    """The topic that events go to has the name of the one that is made anew for each test."""
    process, kind = server
    broker = kind(process)
    await broker.open()
    if process.name == "nats":
        broker.url = f"{process.url}/orders.events"
    if process.name == "amqp":
        exchange = await broker.channel.declare_exchange("orders", "topic", durable=True)
        await (await broker.channel.get_queue("orders")).bind(exchange, "#")
    yield broker
    await broker.close()


async def arrived(broker: Broker, hot: Any, number: int) -> list[dict[str, Any]]:
    """Wait for so many events, and return all that are there, in the order of the topic."""
    address = parse_address("source", f"{broker.server.url}/orders", PORTS)
    spec = TriggerSpec(name="x", task="x", address=address)
    source = open_source(spec, hot, "default")
    found: list[dict[str, Any]] = []
    position = None

    async def enough() -> bool:
        nonlocal position
        with contextlib.suppress(SourceUnavailable):
            read = await source.read(position, 500, 0.5)
            found.extend(message.json() for message in read.messages)
            position = read.position
        return len(found) >= number

    await eventually(enough, what=f"{number} events")
    await source.close()
    return found


async def outbox(sandbox: Any, hot: Any, broker: Broker, **settings: Any) -> Outbox:
    sandbox.app.sinks.declared.clear()
    sandbox.app.sink(broker.url, **{"name": "out", "start": "beginning", **settings})
    node = await FakeNode(hot, sandbox.app.settings).register(roles=["worker"])
    return Outbox(sandbox.app, hot, Beat(node), sandbox.app.sinks.declared["out"])


async def note(hot: Any, *events: tuple[str, str, UUID], **detail: Any) -> None:
    """Record events, each in a transaction of its own."""
    for kind, task, job in events:
        await EventStore(hot).add("default", [Noticed(kind, task, job, detail)])


async def ticks(one: Outbox, sandbox: Any, number: int) -> Any:
    async def enough() -> Any:
        with contextlib.suppress(SourceUnavailable):
            await one.tick()
        status = await sandbox.app.sinks.get("out")
        return status if status.sent + status.skipped >= number else None

    return await eventually(enough, what=f"{number} events sent")


async def test_an_event_arrives_as_a_cloud_event(sandbox, hot, broker):
    one, job = await outbox(sandbox, hot, broker), uuid4()
    await note(hot, ("timed_out", "pay", job), attempt=2)
    status = await ticks(one, sandbox, 1)
    assert (status.sent, status.fault) == (1, None)
    [event] = await arrived(broker, hot, 1)
    assert event["specversion"] == "1.0"
    assert (event["type"], event["subject"]) == ("rota.job.timed_out", str(job))
    assert event["source"] == "/namespaces/default"
    assert event["id"]
    assert event["time"].endswith(("Z", "+00:00"))
    assert event["data"]["detail"] == {"attempt": 2}
    await one.leave()


async def test_events_arrive_in_order_and_none_is_left_out(sandbox, hot, broker):
    one, jobs = await outbox(sandbox, hot, broker), [uuid4() for _ in range(5)]
    kinds = ("slow", "timed_out", "failed", "dead_lettered")
    await note(hot, *((kind, "pay", job) for kind in kinds for job in jobs))
    await ticks(one, sandbox, 20)
    events = await arrived(broker, hot, 20)
    for job in jobs:
        own = [event["data"]["kind"] for event in events if event["subject"] == str(job)]
        assert own == list(kinds)
    await one.leave()


async def test_what_was_sent_before_a_crash_is_sent_again_with_the_same_ids(
    sandbox, hot, broker, monkeypatch
):
    """The crash is between the broker's confirmation and the move of the position."""
    one, jobs = await outbox(sandbox, hot, broker), [uuid4(), uuid4()]
    await one.tick()
    await note(hot, *(("failed", "pay", job) for job in jobs))
    fetch = hot.fetch

    async def dies(name: str, *given: Any, **more: Any) -> Any:
        if name == "advance_sink":
            raise ConnectionError("killed")
        return await fetch(name, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(hot, "fetch", dies)
        with pytest.raises(ConnectionError):
            await one.tick()
    await one._target.close()
    assert (await sandbox.app.sinks.get("out")).sent == 0
    await sandbox.advance(seconds=31)
    other = await outbox(sandbox, hot, broker)
    await ticks(other, sandbox, 2)
    # JetStream knows the id, and keeps one.
    events = await arrived(broker, hot, 2 if broker.server.name == "nats" else 4)
    ids = [event["id"] for event in events]
    assert len(set(ids)) == 2
    assert {event["subject"] for event in events} == {str(job) for job in jobs}
    await other.leave()


async def test_filters_by_kind_task_and_queue(sandbox, hot, broker):
    one = await outbox(
        sandbox, hot, broker, kinds=["failed", "queue_lag"], tasks=["pay", ""], queues=["money"]
    )

    @sandbox.app.task(queue="money")
    async def pay() -> None: ...

    @sandbox.app.task(queue="mail")
    async def write() -> None: ...

    paid, written, other = await pay.submit(), await write.submit(), await write.submit()
    await note(
        hot, ("failed", "pay", paid.id), ("slow", "pay", paid.id), ("failed", "write", written.id)
    )
    await note(hot, ("failed", "pay", other.id))  # of another queue
    await note(hot, ("queue_lag", "", uuid4()), queue="money")
    status = await ticks(one, sandbox, 5)
    assert (status.sent, status.skipped) == (2, 3)
    events = await arrived(broker, hot, 2)
    assert sorted(event["type"] for event in events) == ["rota.job.failed", "rota.queue.lag"]
    await one.leave()


async def test_pause_resume_rewind_and_remove(sandbox, hot, broker):
    app, job = sandbox.app, uuid4()
    one = await outbox(sandbox, hot, broker, start="new")
    await note(hot, ("slow", "pay", uuid4()))  # before its start
    await one.tick()
    await app.sinks.pause("out")
    await note(hot, ("failed", "pay", job))
    for _ in range(3):
        await one.tick()
    assert (await app.sinks.get("out")).sent == 0
    await app.sinks.resume("out")
    await ticks(one, sandbox, 1)
    await app.sinks.rewind("out")
    await ticks(one, sandbox, 3)
    if broker.server.name != "nats":
        events = await arrived(broker, hot, 3)
        assert sorted(event["data"]["kind"] for event in events) == ["failed", "failed", "slow"]
    with pytest.raises(ConfigError, match="not a position"):
        await app.sinks.rewind("out", "yesterday")
    await app.sinks.remove("out")
    with pytest.raises(NotFound):
        await app.sinks.get("out")
    await one.leave()


async def test_only_one_node_sends_until_its_lease_is_over(sandbox, hot, broker):
    one, other = await outbox(sandbox, hot, broker), await outbox(sandbox, hot, broker)
    await one.tick()
    assert await other.tick() > 1  # it waits
    await note(hot, ("failed", "pay", uuid4()))
    [row] = await hot.fetch(
        "take_sink", *one._key, one._heartbeat.node_id, 30.0, one._spec.target, [], [], []
    )
    await sandbox.advance(seconds=31)
    await other.tick()
    await one._send(one._heartbeat.node_id, row["position"])  # it hung, and goes on: a repeat
    assert (await sandbox.app.sinks.get("out")).sent == 1
    await one.leave()
    await other.leave()


async def test_a_broker_that_is_away_delays_events_and_loses_none(sandbox, hot, broker, server):
    process, _ = server
    one = await outbox(sandbox, hot, broker)
    await one.tick()
    await note(hot, ("failed", "pay", uuid4()))
    await ticks(one, sandbox, 1)
    process.kill()
    await note(hot, ("failed", "pay", uuid4()), ("slow", "pay", uuid4()))
    with pytest.raises(SourceUnavailable):
        await one.tick()
    assert (await sandbox.app.sinks.get("out")).fault is not None
    process.start()
    status = await ticks(one, sandbox, 3)
    assert (status.sent, status.fault) == (3, None)
    events = await arrived(broker, hot, 3)
    assert len({event["id"] for event in events}) == 3
    await one.leave()


async def test_a_node_sends_what_its_code_declares(app: App, broker: Broker):
    await app.migrate()
    app.sink(broker.url, name="out", kinds=["dead_lettered"])

    @app.task(retry=Retry(max_attempts=1))
    async def fail() -> None:
        raise RuntimeError("no")

    async with Node(app).running():

        async def started() -> bool:
            return any(sink.position for sink in await app.sinks.list())

        await eventually(started, what="the sink's start")
        job = await fail.submit()

        async def sent() -> bool:
            return (await app.sinks.get("out")).sent == 1

        await eventually(sent, what="the event")
        assert (await app.sinks.get("out")).sender
        [event] = await arrived(broker, (await app.store()).database, 1)
    assert (event["type"], event["subject"]) == ("rota.job.dead_lettered", str(job.id))
    assert json.dumps(event["data"]["detail"]).count("RuntimeError")


@pytest.mark.parametrize(
    ("target", "settings", "says"),
    [
        ("kafka://localhost", {}, "names no topic"),
        ("mqtt://localhost/x", {}, "unknown scheme 'mqtt'"),
        ("kafka://localhost/x", {"kinds": ["succeded"]}, "unknown 'succeded'"),
        ("kafka://localhost/x", {"kinds": "failed"}, "must be a list"),
        ("kafka://localhost/x", {"start": "yesterday"}, "start must be"),
        ("kafka://localhost/x", {"name": "a b"}, "not a usable name"),
        ("kafka://me:x@localhost/x?sasl=GSSAPI", {}, "target: sasl must be"),
        ("redis://localhost/x?maxlen=many", {}, "maxlen must be a number"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(target, settings, says):
    with pytest.raises(ConfigError, match=says):
        App().sink(target, **settings)


def test_two_sinks_of_one_name_are_refused():
    app = App()
    app.sink("kafka://localhost/x")
    with pytest.raises(ConfigError, match="two sinks"):
        app.sink("redis://localhost/x")
