"""Messages become jobs exactly once: `python -m proof.triggers kafka --messages 100000 --kills 20`.

Two workers read the stream, in processes of their own, and are killed (-9) over and over, the one that
reads first; the broker is killed and restarted in the middle, and paused. Asked is: is there exactly
one job for each message?
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from proof.services import Kafka, Nats, Process, RabbitMQ, Redis
from proof.takeover import Trial
from proof.waiting import eventually
from rota import App
from rota.store.embedded import open_embedded

app = App()
SERVICES: dict[str, type[Process]] = {
    "redis": Redis, "nats": Nats, "kafka": Kafka, "rabbitmq": RabbitMQ,
}  # fmt: skip


@app.on(os.environ.get("TRIGGER_SOURCE", "redis://127.0.0.1:1/orders"), start="beginning")
@app.task(queue="later")
async def take(order: int) -> None: ...


class Outcome(msgspec.Struct):
    messages: int
    jobs: int
    missing: int
    doubled: int
    kills: int
    seconds: float


async def send(service: Process, numbers: range) -> None:
    """Send numbered messages, and return when the broker has said that it has each of them."""
    await _SENDERS[type(service)](service, numbers)


async def _send_redis(service: Process, numbers: range) -> None:
    from redis.asyncio import Redis as Client

    async with Client(port=service.port) as client, client.pipeline(transaction=False) as pipe:
        for number in numbers:
            pipe.xadd("orders", {"body": msgspec.json.encode({"order": number})})
        await pipe.execute()


async def _send_kafka(service: Process, numbers: range) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    where = f"127.0.0.1:{service.port}"
    admin = AIOKafkaAdminClient(bootstrap_servers=where)
    await admin.start()
    await admin.create_topics([NewTopic("orders", 4, 1)])  # which may be there
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=where, enable_idempotence=True) as producer:
        sent = []
        for number in numbers:
            body = msgspec.json.encode({"order": number})
            sent.append(await producer.send("orders", body, partition=number % 4))
        await asyncio.gather(*sent)


async def _send_rabbitmq(service: Process, numbers: range) -> None:
    import aio_pika

    line = await aio_pika.connect(f"amqp://127.0.0.1:{service.port}/")
    channel: Any = await eventually(lambda: _declared(line), what="the stream")
    for start in range(numbers.start, numbers.stop, 500):
        chunk = range(start, min(start + 500, numbers.stop))
        body = [aio_pika.Message(msgspec.json.encode({"order": number})) for number in chunk]
        exchange = channel.default_exchange
        await asyncio.gather(*(exchange.publish(each, routing_key="orders") for each in body))
    await line.close()
    assert isinstance(service, RabbitMQ)
    await eventually(service.knows_its_streams, what="a stream that outlives a kill")


async def _declared(line: Any) -> Any:
    """Return a channel if the stream is there: some time after the broker's start, that is."""
    from aio_pika.exceptions import ChannelNotFoundEntity

    channel = await line.channel()
    try:
        await channel.declare_queue("orders", durable=True, arguments={"x-queue-type": "stream"})
    except ChannelNotFoundEntity:
        return None
    return channel


async def _send_nats(service: Process, numbers: range) -> None:
    import nats

    line = await nats.connect(service.url)
    stream: Any = line.jetstream(timeout=60)
    await stream.add_stream(name="orders", subjects=["orders"])
    for start in range(numbers.start, numbers.stop, 500):
        chunk = range(start, min(start + 500, numbers.stop))
        body = [msgspec.json.encode({"order": number}) for number in chunk]
        await asyncio.gather(*(stream.publish("orders", each) for each in body))
    await line.close()


_SENDERS = {
    Redis: _send_redis, Nats: _send_nats, Kafka: _send_kafka, RabbitMQ: _send_rabbitmq,
}  # fmt: skip


async def run(name: str, messages: int, kills: int) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    service = SERVICES[name](folder)
    server = open_embedded(folder / "pg")
    trial = Trial(folder, server.url, "proof.triggers", TRIGGER_SOURCE=f"{service.url}/orders",
                  ROTA_HEARTBEAT="1")  # fmt: skip
    began, killed = time.monotonic(), 0
    try:
        service.start()
        async with app.using(app.settings.replace(database_url=server.url)):
            await app.migrate()
            await app.queues.pause("later")  # what is asked is how many jobs there are
            connection = await asyncpg.connect(server.url)
            workers = [trial.start("worker") for _ in range(2)]
            half = messages // 2
            await send(service, range(half))
            for number in range(kills):
                await _moves(connection)
                pid = await connection.fetchval(
                    "select n.pid from rota.trigger as t join rota.node as n on n.id = t.reader"
                )
                victim = next((each for each in workers if each.pid == pid), workers[0])
                victim.kill()
                victim.wait()
                killed += 1
                # The lease is over at once: the trial is about crashes, not about waiting.
                await connection.execute("update rota.trigger set reads_until = rota.now()")
                workers[workers.index(victim)] = trial.start("worker")
                if number == kills // 3:
                    service.kill()
                    service.start()
                if number == kills // 2:
                    service.pause()
                    await asyncio.sleep(2)
                    service.resume()
                    await send(service, range(half, messages))

            async def all_there() -> bool:
                return bool(
                    await connection.fetchval(
                        "select jobs + dead >= $1 from rota.trigger", messages
                    )
                )

            await eventually(all_there, 900, "all jobs")
            rows = await connection.fetch("select (payload->>'order')::int from rota.present")
            times = Counter(row[0] for row in rows)
            await connection.close()
            return Outcome(
                messages, sum(times.values()), sum(times[n] == 0 for n in range(messages)),
                sum(count > 1 for count in times.values()), killed, time.monotonic() - began,
            )  # fmt: skip
    except AssertionError:
        for log in sorted(folder.glob("node-*.log"), key=lambda path: path.stat().st_mtime)[-3:]:
            print(log.name, log.read_text()[-3000:])
        raise
    finally:
        trial.stop()
        service.stop()
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


async def _moves(connection: asyncpg.Connection) -> None:
    """Wait until somebody reads: a worker that is killed before it reads proves nothing."""

    async def reads() -> bool:
        return bool(
            await connection.fetchval(
                "select reads_until > rota.now() from rota.trigger where reader is not null"
            )
        )

    await eventually(reads, 600, "a reader")  # starting a node takes long on a busy machine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("brokers", nargs="*", default=list(SERVICES))
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20)
    given = parser.parse_args()
    broken = 0
    for name in given.brokers:
        if reason := SERVICES[name].missing():
            print(f"{name}: left out, {reason}")
            continue
        found = asyncio.run(run(name, given.messages, given.kills))
        broken += found.missing + found.doubled
        print(name, found)
        sys.stdout.flush()
    sys.exit(broken > 0)


if __name__ == "__main__":
    main()
