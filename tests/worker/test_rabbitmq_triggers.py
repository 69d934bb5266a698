"""What only RabbitMQ has: streams beside queues, and no identity: worker/sources/rabbitmq.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from proof.services import RabbitMQ
from rota.lib.addresses import parse_address
from rota.worker.sources import SourceUnavailable
from rota.worker.sources.rabbitmq import RabbitSource
from tests.support.brokers import RabbitBroker, declare, read_again, reader, ticks


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    if reason := RabbitMQ.missing():
        pytest.skip(reason)
    process = RabbitMQ(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.stop()


@pytest.fixture
async def broker(server: RabbitMQ) -> AsyncIterator[RabbitBroker]:
    broker = RabbitBroker(server)
    await broker.open()
    yield broker
    await broker.close()


async def orders(sandbox) -> list[int]:
    return sorted(job.payload["order"] for job in await sandbox.jobs())


@pytest.mark.parametrize("messages", [1, 5])
async def test_a_stream_made_anew_is_a_fault_until_a_person_rewinds(sandbox, hot, broker, messages):
    """With fewer messages than we had read, our number is missing; with more, it is another one."""
    declare(sandbox, broker, start="beginning")
    one = await reader(sandbox, hot)
    await broker.send(*({"order": number} for number in range(3)))
    await ticks(one, 3)
    await broker.close()
    await broker.open()
    await broker.send(*({"order": 10 + number} for number in range(messages)))
    await one._source.close()
    with pytest.raises(SourceUnavailable, match="was made anew"):
        await one.tick()
    assert "made anew" in (await sandbox.app.triggers.get("take")).fault
    assert await orders(sandbox) == [0, 1, 2]
    await sandbox.app.triggers.rewind("take")
    await ticks(one, 3 + messages)
    assert await orders(sandbox) == [0, 1, 2, *range(10, 10 + messages)]
    await one.leave()


async def test_a_stream_deleted_under_its_reader_is_noticed(sandbox, hot, broker):
    declare(sandbox, broker, start="beginning")
    one = await reader(sandbox, hot)
    await broker.send(*({"order": number} for number in range(3)))
    await ticks(one, 3)
    await broker.close()
    await broker.open()
    await broker.send({"order": 9})
    with pytest.raises(SourceUnavailable, match="made anew"):
        await read_again(one, 5)
    await one.leave()


async def test_a_queue_is_refused_and_keeps_its_messages(sandbox, hot, broker):
    await broker.channel.queue_delete("orders")
    queue = await broker.channel.declare_queue("orders", durable=True)
    await broker.send({"order": 1})
    declare(sandbox, broker, start="beginning")
    one = await reader(sandbox, hot)
    with pytest.raises(SourceUnavailable, match=r"x-stream-offset|not a stream"):
        await read_again(one, 4)
    await one.leave()
    assert await orders(sandbox) == []
    message = await queue.get(timeout=10)
    assert message.body == b'{"order": 1}'
    await queue.delete(if_empty=False)


async def test_messages_of_an_exchange_keep_their_routing_key_headers_and_id(sandbox, hot, broker):
    """A stream that is bound to the exchange that others read by queues: senders change nothing."""
    from aio_pika import Message

    exchange = await broker.channel.declare_exchange("shop", "topic")
    queue = await broker.channel.get_queue("orders")
    await queue.bind(exchange, "order.*")
    seen = []
    declare(sandbox, broker, start="beginning", where=lambda m: seen.append(m) or True)
    one = await reader(sandbox, hot)
    sent = Message(b'{"order": 4}', message_id="abc", headers={"kind": "paid"})
    await exchange.publish(sent, routing_key="order.paid")
    await ticks(one, 1)
    assert seen[0].topic == "order.paid"
    assert seen[0].headers == {"kind": "paid", "message_id": "abc"}
    await one.leave()


async def test_a_rewind_by_a_number_alone(sandbox, hot, broker):
    declare(sandbox, broker, start="beginning")
    one = await reader(sandbox, hot)
    await broker.send(*({"order": number} for number in range(30)))
    await ticks(one, 30)
    await sandbox.app.triggers.rewind("take", "27")
    await ticks(one, 32)
    assert await orders(sandbox) == sorted([*range(30), 28, 29])
    one._lag_at = 0.0
    await one.tick()
    assert (await sandbox.app.triggers.get("take")).lag == 0
    await one.leave()


async def test_a_wrong_password_is_a_fault_that_says_so(server):
    text = f"amqp://guest:wrong@127.0.0.1:{server.port}/orders"
    source = RabbitSource(parse_address("source", text, {"amqp": 5672}))
    with pytest.raises(SourceUnavailable, match=r"ACCESS_REFUSED|Authentication"):
        await source.end()
    await source.close()
