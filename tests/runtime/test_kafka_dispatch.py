"""What only Kafka has: partitions, topics, and offsets instead of acknowledgements:
runtime/dispatch/kafka.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from proof.services import Kafka
from proof.waiting import eventually
from rota.errors import ConfigError
from rota.lib.ids import new_id
from rota.runtime.dispatch import Broker, BrokerUnavailable, open_broker
from rota.runtime.dispatch.kafka import Progress, _partition
from tests.support.dispatch import heard, taken

Open = Callable[[], Broker]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    if reason := Kafka.missing():
        pytest.skip(reason)
    process = Kafka(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.stop()


class Topics:
    """The topics of a test, as an operator of Kafka sees them."""

    def __init__(self, server: Kafka) -> None:
        from aiokafka.admin import AIOKafkaAdminClient

        self.prefix = f"t{new_id().hex[-12:]}"
        self.calls, self.answers = (
            f"{self.prefix}.name_2espace.calls",
            f"{self.prefix}.name_2espace.answers",
        )
        self.url = f"{server.url}/{self.prefix}"
        self.admin = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{server.port}")

    async def make(self, partitions: int = 1, **configs: str) -> None:
        from aiokafka.admin import NewTopic

        given = {name.replace("_", "."): value for name, value in configs.items()}
        await self.admin.create_topics(
            [
                NewTopic(name, partitions, 1, topic_configs=given)
                for name in (self.calls, self.answers)
            ]
        )

    async def delete(self) -> None:
        await self.admin.delete_topics([self.calls, self.answers])


@pytest.fixture
async def topics(server: Kafka) -> AsyncIterator[Topics]:
    topics = Topics(server)
    await topics.admin.start()
    yield topics
    await topics.admin.close()


@pytest.fixture
async def connect(topics: Topics) -> AsyncIterator[Open]:
    opened: list[Broker] = []

    def connect() -> Broker:
        opened.append(open_broker(topics.url, "name.space"))
        return opened[-1]

    yield connect
    for each in opened:
        await each.close()


async def passes(relay: Broker, worker: Broker, body: bytes) -> None:
    """A call gets from the worker to the relay, and its answer back."""
    id = new_id()

    async def passed() -> bool:
        try:
            await worker.answers(id, 0.05)
            await worker.call([body])
            calls = await relay.take(10, 0.2)
            await relay.reply([(id, call.body) for call in calls], calls)
            return body in await worker.answers(id, 0.5)
        except BrokerUnavailable:
            return False

    await eventually(passed, what="a call and its answer")
    await worker.leave(id)


async def test_calls_behind_one_that_is_not_settled_are_given_again(topics: Topics, connect: Open):
    await topics.make(partitions=1)
    first, second, third, worker = (connect() for _ in range(4))
    await worker.call([b"1", b"2", b"3", b"4"])
    calls = await taken(first, 4)
    assert [call.body for call in calls] == [b"1", b"2", b"3", b"4"]
    await first.reply([], [calls[3], calls[0], calls[2]])
    await first.close()
    again = await taken(second, 3)
    assert [call.body for call in again] == [b"2", b"3", b"4"]
    await second.reply([], again[::-1])
    await second.close()
    await worker.call([b"5"])
    assert [call.body for call in await taken(third, 1)] == [b"5"]


async def test_calls_of_a_relay_whose_partitions_go_to_another_are_taken_by_it(connect: Open):
    first, second, worker = connect(), connect(), connect()
    bodies = [b"%d" % number for number in range(64)]
    await worker.call(bodies)
    await taken(first, 64)  # and doesn't settle them
    found: set[bytes] = set()

    async def shared() -> bool:
        for relay in (first, second):
            calls = await relay.take(100, 0.1)
            await relay.reply([], calls)
            found.update(call.body for call in calls)
        return found == set(bodies)

    await eventually(shared, what="all calls again")


async def test_a_worker_hears_the_answer_to_its_first_call(connect: Open):
    relay, worker, id = connect(), connect(), new_id()
    assert not await relay.take(1, 0.05)
    listening = asyncio.create_task(worker.answers(id, 20))
    calling = asyncio.create_task(worker.call([b"register"]))
    calls = await taken(relay, 1)
    await relay.reply([(id, b"registered")], calls)
    assert await listening == [b"registered"]
    await calling


async def test_workers_that_share_a_partition_hear_their_own_answers(topics: Topics, connect: Open):
    await topics.make(partitions=1)
    relay, one, other = connect(), connect(), connect()
    ids = new_id(), new_id()
    assert not await one.answers(ids[0], 0.05)
    assert not await other.answers(ids[1], 0.05)
    await relay.reply([(ids[number % 2], b"%d" % number) for number in range(6)], [])
    assert await heard(one, ids[0], 3) == [b"0", b"2", b"4"]
    assert await heard(other, ids[1], 3) == [b"1", b"3", b"5"]


async def test_topics_that_were_deleted_are_made_anew(topics: Topics, connect: Open):
    relay, worker = connect(), connect()
    await passes(relay, worker, b"before")
    id = new_id()
    assert not await worker.answers(id, 0.05)
    await topics.delete()
    await passes(relay, worker, b"after")

    async def answered() -> bool:
        """The worker goes on to be heard under the id that it had before."""
        try:
            await relay.reply([(id, b"answer")], [])
            return b"answer" in await worker.answers(id, 0.2)
        except BrokerUnavailable:
            return False

    await eventually(answered, what="an answer")


async def test_topics_that_get_more_partitions_are_used_on(topics: Topics, connect: Open):
    from aiokafka.admin import NewPartitions

    await topics.make(partitions=1)
    relay, worker = connect(), connect()
    await passes(relay, worker, b"before")
    await topics.admin.create_partitions(
        {name: NewPartitions(5) for name in (topics.calls, topics.answers)}
    )
    both: tuple[Any, ...] = (relay, worker)

    async def seen() -> bool:
        await passes(relay, worker, b"after")
        return all(len(broker._topics[topics.answers].partitions) == 5 for broker in both)

    await eventually(seen, what="that both know of the new partitions")
    for number in range(5):
        await passes(relay, worker, b"%d" % number)


async def test_a_topic_that_takes_short_messages_only_is_set_to_take_long_ones(
    topics: Topics, connect: Open
):
    await topics.make(partitions=1)  # as a broker makes it by itself
    await passes(connect(), connect(), b"long" * 1_400_000)


async def test_a_message_that_is_too_long_does_not_hold_up_others(connect: Open):
    relay, worker, id = connect(), connect(), new_id()
    assert not await worker.answers(id, 0.05)
    with pytest.raises(BrokerUnavailable, match="TooLarge"):
        await relay.reply([(id, b"x" * 9_000_000), (id, b"fits")], [])
    assert await heard(worker, id) == [b"fits"]


async def test_a_broker_that_is_away_is_told_as_such():
    broker = open_broker("kafka://127.0.0.1:1", "default")
    with pytest.raises(BrokerUnavailable, match="Kafka"):
        await broker.call([b"x"])
    with pytest.raises(BrokerUnavailable, match="Kafka"):
        await broker.answers(new_id(), 0.1)
    await broker.close()


def test_an_unknown_way_to_tell_the_password_is_refused():
    with pytest.raises(ConfigError, match="sasl must be one of"):
        open_broker("kafka://a:b@host?sasl=PLAN", "default")


# -- how far a relay is


def test_an_offset_is_done_when_all_before_it_are():
    progress = Progress()
    for offset in (5, 6, 7):
        progress.take(offset, 100.0)
    assert progress.done(100.0) == 5
    progress.settle(7)
    progress.settle(6)
    assert progress.done(100.0) == 5
    progress.settle(5)
    progress.settle(5)
    assert progress.done(100.0) == 8


def test_what_is_never_settled_holds_up_nothing_for_ever():
    progress = Progress()
    progress.take(5, 100.0)
    progress.take(6, 130.0)
    progress.take(7, 159.0)
    assert progress.done(159.0) == 5
    assert progress.done(161.0) == 6
    assert progress.done(1000.0) == 8


def test_a_topic_that_was_made_anew_begins_with_lower_offsets():
    progress = Progress()
    progress.take(1000, 100.0)
    progress.take(0, 101.0)
    assert progress.done(101.0) == 0
    progress.settle(0)
    assert progress.done(101.0) == 1


def test_a_worker_has_one_partition_and_workers_are_spread() -> None:
    ids: list[Any] = [new_id() for _ in range(500)]
    assert {_partition(id, range(16)) for id in ids} == set(range(16))
    assert _partition(ids[0], [3]) == 3
