"""Triggers: worker/triggers.py, worker/sources/, operations/triggers.py, on real brokers.

A broker that can't be had here leaves its tests out, and says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from proof.services import Process
from proof.waiting import eventually
from rota import App, Node
from rota.errors import ConfigError, NotFound
from rota.worker.sources import SourceUnavailable
from tests.support.brokers import KINDS, Broker, declare, read_again, reader, ticks


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
    process, kind = server
    broker = kind(process)
    await broker.open()
    yield broker
    await broker.close()


async def test_a_message_becomes_one_job_with_its_arguments(sandbox, hot, broker):
    declare(sandbox, broker, start="beginning")
    await broker.send({"order": 1, "amount": 2.5}, {"order": 2})
    one = await reader(sandbox, hot)
    status = await ticks(one, 2)
    assert (status.jobs, status.skipped, status.dead) == (2, 0, 0)
    jobs = await sandbox.jobs()
    assert sorted(job.payload["order"] for job in jobs) == [1, 2]
    assert {job.headers["trigger"] for job in jobs} == {"take"}
    for _ in range(3):
        await one.tick()
    assert len(await sandbox.jobs()) == 2
    await one.leave()


async def test_a_new_trigger_begins_with_what_comes_after_its_start(sandbox, hot, broker):
    declare(sandbox, broker)
    await broker.send({"order": 1})
    one = await reader(sandbox, hot)
    await one.tick()
    await broker.send({"order": 2})
    await ticks(one, 1)
    assert [job.payload["order"] for job in await sandbox.jobs()] == [2]
    await one.leave()


async def test_filters_and_mappings_are_functions_of_the_message(sandbox, hot, broker):
    declare(
        sandbox, broker, start="beginning",
        where=lambda message: message.json()["kind"] == "paid",
        arguments=lambda message: {"order": message.json()["id"]},
    )  # fmt: skip
    await broker.send({"kind": "paid", "id": 7}, {"kind": "seen", "id": 8})
    one = await reader(sandbox, hot)
    status = await ticks(one, 2)
    assert (status.jobs, status.skipped) == (1, 1)
    assert [job.payload["order"] for job in await sandbox.jobs()] == [7]
    await one.leave()


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{not json", "could not be turned into a call"),
        (b"[1, 2]", "must be an object"),
        (b'{"order": "many"}', "order"),
        (b'{"colour": "blue"}', "colour"),
        (b"\xff\x00\xfe", "could not be turned into a call"),
    ],
)
async def test_a_poison_message_is_a_dead_letter_and_stops_nothing(
    sandbox, hot, broker, body, says
):
    declare(sandbox, broker, start="beginning")
    await broker.send({"order": 1}, body, {"order": 3})
    one = await reader(sandbox, hot)
    status = await ticks(one, 3)
    assert (status.jobs, status.dead) == (2, 1)
    [job] = await sandbox.jobs(state="failed")
    assert job.task == "take"
    assert says in job.error.message
    assert job.payload["$message"]["position"]
    await one.leave()


async def test_two_readers_of_the_same_messages_store_them_once(sandbox, hot, broker):
    """The lease keeps readers apart; what makes it exact is the position in the transaction."""
    declare(sandbox, broker, start="beginning")
    await broker.send(*({"order": number} for number in range(20)))
    one, other = await reader(sandbox, hot), await reader(sandbox, hot)
    await one.tick()
    [row] = await hot.fetch(
        "read_trigger", *one._key, one._heartbeat.node_id, 15.0, one._spec.source
    )
    same = await one._source.read(row["position"], 500, 1.0)
    assert same.messages
    await asyncio.gather(
        *(each._store(row["position"], same) for each in (one, other) for _ in range(3))
    )
    read = sorted(message.json()["order"] for message in same.messages)
    assert sorted(job.payload["order"] for job in await sandbox.jobs()) == read
    assert (await sandbox.app.triggers.get("take")).jobs == len(read)
    await one.leave()
    await other.leave()


async def test_only_one_node_reads_until_its_lease_is_over(sandbox, hot, broker):
    declare(sandbox, broker, start="beginning")
    one, other = await reader(sandbox, hot), await reader(sandbox, hot)
    await one.tick()
    assert await other.tick() > 1  # it waits
    await sandbox.advance(seconds=16)
    assert await other.tick() == 0.0
    await one.leave()
    await other.leave()


async def test_a_pause_starts_nothing_and_a_rewind_starts_again(sandbox, hot, broker):
    app = sandbox.app
    declare(sandbox, broker, start="beginning")
    one = await reader(sandbox, hot)
    await broker.send({"order": 1})
    status = await ticks(one, 1)
    await app.triggers.pause("take")
    await broker.send({"order": 2})
    for _ in range(3):
        await one.tick()
    assert len(await sandbox.jobs()) == 1
    await app.triggers.resume("take")
    status = await ticks(one, 2)
    first = [job.headers["position"] for job in await sandbox.jobs() if job.payload["order"] == 1]
    await app.triggers.rewind("take", first[0])
    await ticks(one, 3)
    assert sorted(job.payload["order"] for job in await sandbox.jobs()) == [1, 2, 2]
    await app.triggers.rewind("take")
    status = await ticks(one, 5)
    assert sorted(job.payload["order"] for job in await sandbox.jobs()) == [1, 1, 2, 2, 2]
    assert status.position is not None
    await one.leave()


async def test_a_pause_during_a_read_stores_nothing_of_it(sandbox, hot, broker):
    declare(sandbox, broker, start="beginning")
    await broker.send({"order": 1})
    one = await reader(sandbox, hot)
    await one.tick()
    found = await one._source.read(None, 500, 5.0)
    await sandbox.app.triggers.pause("take")
    await one._store(None, found)
    assert await sandbox.jobs() == []
    await one.leave()


async def test_a_position_that_makes_no_sense_is_a_fault_that_says_so(sandbox, hot, broker):
    declare(sandbox, broker, start="beginning")
    one = await reader(sandbox, hot)
    await broker.send({"order": 1})
    await ticks(one, 1)
    await sandbox.app.triggers.rewind("take", "yesterday")
    with pytest.raises(SourceUnavailable, match="yesterday"):
        await read_again(one, 3)
    assert "yesterday" in (await sandbox.app.triggers.get("take")).fault
    await sandbox.app.triggers.rewind("take")
    await ticks(one, 2)
    await one.leave()


async def test_a_stream_that_was_made_anew_loses_nothing_that_is_new(sandbox, hot, broker):
    declare(sandbox, broker, start="beginning")
    one = await reader(sandbox, hot)
    await broker.send({"order": 1}, {"order": 2})
    await ticks(one, 2)
    await broker.close()
    await broker.open()  # which deletes everything
    await broker.send({"order": 3})
    if broker.url.startswith("amqp"):  # which can't tell: see test_rabbitmq_triggers.py
        await sandbox.app.triggers.rewind("take")
    await ticks(one, 3)
    assert sorted(job.payload["order"] for job in await sandbox.jobs()) == [1, 2, 3]
    await one.leave()


async def test_a_broker_that_is_away_is_a_fault_that_people_see(sandbox, hot, broker, server):
    process, _ = server
    declare(sandbox, broker, start="beginning")
    one = await reader(sandbox, hot)
    await one.tick()
    process.kill()
    with pytest.raises(SourceUnavailable):
        await read_again(one, 5)
    assert (await sandbox.app.triggers.get("take")).fault is not None
    process.start()

    async def heals() -> bool:
        try:
            await one.tick()
        except SourceUnavailable:
            return False
        one._lag_at = 0.0
        return (await sandbox.app.triggers.get("take")).fault is None

    await eventually(heals, what="the end of the fault")
    await one.leave()


async def test_a_node_reads_what_its_code_declares(app: App, broker: Broker):
    await app.migrate()
    seen: list[int] = []

    @app.on(broker.url, start="beginning")
    async def count(order: int) -> None:
        seen.append(order)

    async with Node(app).running():
        await broker.send(*({"order": number} for number in range(300)))
        await eventually(lambda: len(seen) == 300, what="all messages")
        status = await app.triggers.get("count")
        assert (status.jobs, status.task, status.source) == (300, "count", broker.url)
        assert status.reader
    assert sorted(seen) == list(range(300))


async def test_a_trigger_that_does_not_exist_is_not_found(sandbox):
    with pytest.raises(NotFound, match="no trigger 'nothing'"):
        await sandbox.app.triggers.pause("nothing")


@pytest.mark.parametrize(
    ("source", "settings", "says"),
    [
        ("redis://localhost", {}, "names no stream"),
        ("mqtt://localhost/x", {}, "unknown scheme 'mqtt'"),
        ("redis://localhost/x", {"start": "yesterday"}, "start must be"),
        ("redis://localhost/x", {"batch": 0}, "batch must be"),
        ("redis://localhost/x", {"name": "a b"}, "not a usable name"),
        ("redis://localhost/x", {"where": "x > 1"}, "must be a function"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(source, settings, says):
    with pytest.raises(ConfigError, match=says):

        @App().on(source, **settings)
        async def take(order: int) -> None: ...
