"""The brokers that relays and workers use: runtime/dispatch/. One suite for all, on real servers; and
the seal of messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from proof.services import Kafka, Nats, Process, RabbitMQ, Redis
from proof.waiting import eventually
from rota.errors import ConfigError
from rota.lib.ids import new_id
from rota.runtime.dispatch import Broker, BrokerUnavailable, Delivery, open_broker
from rota.runtime.dispatch.seal import Sealer
from tests.support.dispatch import heard, taken

SECRET = "a secret of relays and workers that is long enough"
BROKERS: dict[str, type[Process]] = {
    "redis": Redis, "nats": Nats, "rabbitmq": RabbitMQ, "kafka": Kafka,
}  # fmt: skip
Open = Callable[[], Broker]


@pytest.fixture(scope="module", params=BROKERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Process]:
    kind = BROKERS[request.param]
    if (missing := kind.missing()) is not None:
        pytest.skip(missing)
    server = kind(tmp_path_factory.mktemp(request.param))
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def connect(server: Process) -> AsyncIterator[Open]:
    opened: list[Broker] = []
    prefix = f"t{new_id().hex[-12:]}"

    def connect() -> Broker:
        opened.append(open_broker(f"{server.url}/{prefix}", "name.space"))
        return opened[-1]

    yield connect
    for each in opened:
        await each.close()


async def is_away(worker: Broker) -> bool:
    try:
        await worker.call([b"lost"])
    except BrokerUnavailable:
        return True
    return False


async def test_a_call_is_taken_by_one_relay_and_answered_to_its_worker(connect: Open):
    relays, worker, id = [connect(), connect()], connect(), new_id()
    for relay in relays:
        assert not await relay.take(10, 0.05)
    assert not await worker.answers(id, 0.05)
    bodies = [b"call %d \0\xff" % number for number in range(20)]
    await worker.call(bodies)
    found: list[Delivery] = []

    async def all_taken() -> bool:
        for relay in relays:
            calls = await relay.take(3, 0.05)
            await relay.reply([(id, b"to " + call.body) for call in calls], calls)
            found.extend(calls)
        return len(found) >= 20

    await eventually(all_taken, what="all calls")
    assert sorted(call.body for call in found) == sorted(bodies)
    assert sorted(await heard(worker, id, 20)) == sorted(b"to " + body for body in bodies)
    assert not await worker.answers(id, 0.05)


async def test_answers_reach_no_other_worker(connect: Open):
    relay, one, other = connect(), connect(), connect()
    ids = new_id(), new_id()
    assert not await one.answers(ids[0], 0.05)
    assert not await other.answers(ids[1], 0.05)
    await relay.reply([(ids[0], b"one"), (ids[1], b"other")], [])
    assert await heard(one, ids[0]) == [b"one"]
    assert await heard(other, ids[1]) == [b"other"]


async def test_several_workers_share_a_connection(connect: Open):
    relay, both = connect(), connect()
    ids = new_id(), new_id()
    for id in ids:
        assert not await both.answers(id, 0.05)
    for number in range(3):
        await relay.reply([(id, b"%d" % number + id.bytes) for id in ids], [])
        for id in ids:
            assert await heard(both, id) == [b"%d" % number + id.bytes]
    await both.leave(ids[0])
    await relay.reply([(ids[1], b"last")], [])
    assert await heard(both, ids[1]) == [b"last"]
    assert not await both.answers(ids[1], 0.05)


async def test_what_a_relay_took_and_did_not_settle_is_given_to_another(
    connect: Open, monkeypatch: pytest.MonkeyPatch
):
    from rota.runtime.dispatch import nats, redis

    for module in (nats, redis):
        monkeypatch.setattr(module, "_ABANDONED", 1.0)
    monkeypatch.setattr(redis, "_LOOK_EVERY", 0.2)
    first, second, worker = connect(), connect(), connect()
    assert not await first.take(10, 0.05)
    await worker.call([b"kept", b"settled"])
    calls = await taken(first, 2)
    await first.reply([], [call for call in calls if call.body == b"settled"])
    await first.close()  # as one that was killed
    again = await taken(second, 1)
    assert [call.body for call in again] == [b"kept"]
    await second.reply([], again)


async def test_a_broker_that_was_restarted_or_wiped_is_used_again(server: Process, connect: Open):
    relay, worker, id = connect(), connect(), new_id()
    await worker.call([b"before"])
    assert not await worker.answers(id, 0.05)
    for break_it in (server.kill, server.wipe):
        break_it()
        if break_it == server.kill:
            await eventually(lambda: is_away(worker), what="that it is away")
            server.start()
        found: list[bytes] = []

        async def passes(found: list[bytes] = found) -> bool:
            try:
                calls = await relay.take(10, 0.2)  # makes anew what it needs
                await relay.reply([], calls)
                found.extend(call.body for call in calls)
                await worker.call([b"after"])
            except BrokerUnavailable:
                return False
            return b"after" in found

        await eventually(passes, what="a call")
        answered: list[bytes] = []

        async def answers(answered: list[bytes] = answered) -> bool:
            try:
                answered.extend(await worker.answers(id, 0.1))
                await relay.reply([(id, b"answer")], [])
            except BrokerUnavailable:
                return False
            return b"answer" in answered

        await eventually(answers, what="an answer")


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("redis://127.0.0.1:1", "Redis"),
        ("nats://127.0.0.1:1", "NATS"),
        ("amqp://127.0.0.1:1", "Rabbit"),
    ],
)
async def test_a_broker_that_is_away_is_told_as_such(address: str, name: str):
    """From the first moment on: a worker that waits for one must be able to say so."""
    broker = open_broker(address, "default")
    with pytest.raises(BrokerUnavailable, match=name):
        await broker.call([b"x"])
    await broker.close()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (None, "set ROTA_DISPATCH"),
        ("http://host", "unknown scheme 'http'"),
        ("redis://host?db=x", "'db' must be a number"),
        ("redis://host?queue=x", "unknown option 'queue'"),
        ("nats://host?db=1", "unknown option 'db'"),
        ("redis://host/a b", "not a usable name"),
    ],
)
def test_an_address_that_is_wrong_is_refused(address: str | None, message: str):
    with pytest.raises(ConfigError, match=message):
        open_broker(address, "default")


# -- the seal


def test_a_message_is_opened_by_whom_it_is_for_alone():
    sealer, id = Sealer(SECRET, "default"), new_id()
    message = sealer.seal(id, "call", b"hello")
    assert b"hello" not in message
    opened = sealer.open(message, "call")
    assert opened is not None
    assert (opened.worker, opened.text, opened.secret) == (id, b"hello", 0)
    assert sealer.seal(id, "call", b"hello") != message  # a nonce of its own
    assert sealer.open(message, "answer") is None
    assert Sealer(SECRET, "other").open(message, "call") is None
    assert Sealer(SECRET + "!", "default").open(message, "call") is None
    for at in range(len(message)):  # a version, an id, a nonce, a text or a tag that was changed
        changed = message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]
        assert sealer.open(changed, "call") is None
    for cut in range(len(message)):
        assert sealer.open(message[:cut], "call") is None


def test_a_secret_is_exchanged_without_a_break():
    id, old, new = new_id(), "the old secret" * 3, "the new secret" * 3
    both = Sealer(f"{new}, {old}", "default")
    before = both.open(Sealer(old, "default").seal(id, "call", b"x"), "call")
    assert before is not None
    # The worker that has the old one alone can read the answer.
    answer = both.seal(id, "answer", b"y", before.secret)
    assert Sealer(old, "default").open(answer, "answer") is not None
    assert Sealer(new, "default").open(both.seal(id, "call", b"z"), "call") is not None


@pytest.mark.parametrize(
    ("secret", "message"),
    [(None, "need a secret that they share"), ("short", "at least 32 characters"),
     (",".join(["x" * 32] * 5), "4 secrets at most")],
)  # fmt: skip
def test_a_secret_that_is_none_is_refused(secret: str | None, message: str):
    with pytest.raises(ConfigError, match=message):
        Sealer(secret, "default")


def test_nothing_of_it_is_imported_by_those_who_do_not_use_it(tmp_path: Path):
    import subprocess
    import sys

    code = (
        "import sys, rota, rota.node, rota.cli, rota.server.serving\n"
        "assert not [m for m in sys.modules if 'dispatch' in m or m in ('redis', 'nats')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
