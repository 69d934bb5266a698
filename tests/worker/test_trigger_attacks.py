"""What messages, functions and settings can do to a trigger: each message becomes one job or one dead
letter, and none stops those after it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from proof.services import Process
from proof.waiting import eventually
from rota import App
from rota.errors import ConfigError
from rota.operations.triggers import Message, make_trigger
from rota.store.database import Database
from rota.testing import Sandbox
from rota.worker.triggers import TriggerReader
from tests.support.brokers import KINDS, Beat, Broker, declare, read_again, reader, ticks
from tests.support.encrypted import OLD as OLD_KEY
from tests.support.encrypted import encrypt
from tests.support.fake_node import FakeNode
from tests.support.sandboxes import isolated


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, type[Broker]]]:
    service, broker = KINDS["redis"]
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


OPEN: list[TriggerReader] = []


@pytest.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    for each in OPEN:
        await each._source.close()
    OPEN.clear()


async def opened(sandbox: Sandbox, hot: Database) -> TriggerReader:
    OPEN.append(await reader(sandbox, hot))
    return OPEN[-1]


async def test_a_queue_with_room_for_less_than_a_batch_is_filled_as_it_empties(
    sandbox, hot, broker
):
    declare(sandbox, broker, start="beginning", batch=50)
    await sandbox.app.queues.set_max_depth("default", 3)
    await broker.send(*({"order": number} for number in range(20)))
    one = await opened(sandbox, hot)

    async def is_full() -> bool:
        await one.tick()
        await hot.fetch("fold_flow", "default")
        return "max_depth" in ((await sandbox.app.triggers.get("take")).fault or "")

    await eventually(is_full, what="a fault")
    assert 1 <= len(await sandbox.jobs()) <= 6  # twice the depth: it is a transaction of its own
    await sandbox.app.queues.set_max_depth("default", None)
    status = await ticks(one, 20)
    assert (status.jobs, status.dead, status.fault) == (20, 0, None)
    orders = [job.payload["order"] for job in await sandbox.jobs()]
    assert sorted(orders) == list(range(20))


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raise_(error: BaseException) -> Any:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("\ud800"),
        Odd(),
        SystemExit(3),
        asyncio.CancelledError(),
        ValueError("x" * 2_000_000),
        ValueError("\0"),
    ],
    ids=["surrogate", "str", "exit", "cancelled", "long", "nul"],
)
async def test_whatever_a_function_raises_the_message_is_a_dead_letter(sandbox, hot, broker, error):
    declare(
        sandbox, broker, start="beginning",
        where=lambda message: message.json()["order"] != 1 or raise_(error),
    )  # fmt: skip
    await broker.send({"order": 0}, {"order": 1}, {"order": 2})
    one = await opened(sandbox, hot)
    status = await ticks(one, 3)
    assert (status.jobs, status.dead) == (2, 1)


@pytest.mark.parametrize(
    "options",
    [
        {"debounce": 5},
        {"unique": "waiting"},
        {"throttle": 5},
        {"unique": "waiting", "unique_key": "order"},
        {"unique": "waiting", "unique_conflict": "replace"},
        {"order_key": "order"},
        {"concurrency": 1},
    ],
    ids=str,
)
async def test_poison_for_a_unique_task_is_a_dead_letter(sandbox, hot, broker, options):
    @sandbox.app.on(broker.url, start="beginning")
    @sandbox.app.task(**options)
    async def take(order: int) -> int:
        return order

    await broker.send({"order": 0}, {"order": "one"}, {"order": "two"})
    one = await opened(sandbox, hot)
    status = await ticks(one, 3)
    assert (status.jobs, status.dead) == (1, 2)
    assert len(await sandbox.jobs(state="failed")) == 2
    assert len(await sandbox.jobs()) == 3


async def test_a_dead_letter_fits_whatever_the_limit_of_payloads_is(database_url, hot, broker):
    app = App(database_url=database_url, max_payload_bytes=2_000)
    async with isolated(app) as sandbox:
        hot = Database(sandbox.app.settings.database_url or "", sandbox.app.settings, hot=True)
        await hot.open()
        declare(sandbox, broker, start="beginning")
        await broker.send({"order": 0}, b"x" * 30_000, {"order": 1})
        one = await opened(sandbox, hot)
        status = await ticks(one, 3)
        await hot.close()
        assert (status.jobs, status.dead) == (2, 1)


async def test_a_hook_that_raises_makes_dead_letters_and_stops_nothing(sandbox, hot, broker):
    declare(sandbox, broker, start="beginning")

    @sandbox.app.on_submit
    def refuse(submission: Any) -> None:
        raise ValueError("no")

    await broker.send({"order": 0})
    one = await opened(sandbox, hot)
    status = await ticks(one, 1)
    assert (status.jobs, status.dead) == (0, 1)


async def test_the_error_of_a_dead_letter_is_encrypted_if_its_payload_is(database_url, broker):
    app = App(database_url=database_url, encryption_keys=OLD_KEY, port=0)
    async with isolated(app) as sandbox:
        await encrypt(sandbox.app)
        settings = sandbox.app.settings
        hot = Database(settings.database_url or "", settings, hot=True)
        await hot.open()
        declare(
            sandbox, broker, start="beginning", where=lambda m: raise_(ValueError(m.body.decode()))
        )
        await broker.send({"order": 4711})
        one = await opened(sandbox, hot)
        await ticks(one, 1)
        async with hot.connection() as c:
            rows = await c.fetch(
                f"select payload::text, error::text, headers::text from {settings.schema}.dead"
            )
        [job] = await sandbox.jobs()
        await hot.close()
        assert "4711" in job.error.message
        assert "4711" not in str(rows)


async def test_a_message_that_the_database_refuses_is_a_dead_letter(sandbox, hot, broker):
    """And the others of its batch become jobs, whichever it is."""
    declare(sandbox, broker, start="beginning")
    one = await opened(sandbox, hot)
    await broker.send(*({"order": number} for number in range(20)))
    async with hot.connection() as connection:
        await connection.execute(
            f"create function {hot.schema}.refuse() returns trigger language plpgsql as $$ begin "
            "if new.payload->>'order' in ('7', '8') then raise numeric_value_out_of_range; end if; "
            "return new; end $$; "
            f"create trigger refuse before insert on {hot.schema}.present for each row "
            f"execute function {hot.schema}.refuse()"
        )
    try:
        status = await ticks(one, 20)
    finally:
        async with hot.connection() as connection:
            await connection.execute(f"drop function {hot.schema}.refuse cascade")
    assert (status.jobs, status.dead) == (18, 2)
    found = [
        json.loads(job.payload["$message"]["body"]) for job in await sandbox.jobs(state="failed")
    ]
    assert sorted(each["order"] for each in found) == [7, 8]


async def release(sandbox: Sandbox, hot: Database, source: str, **settings: Any) -> TriggerReader:
    """A node whose code declares the trigger `take` with this source."""
    spec = make_trigger(source, "take", None, (), **settings)
    node = await FakeNode(hot, sandbox.app.settings).register(roles=["worker"])
    OPEN.append(TriggerReader(sandbox.app, hot, Beat(node), spec))
    return OPEN[-1]


async def test_two_releases_with_different_sources_lose_and_double_nothing(
    sandbox, hot, broker, caplog
):
    """As during a deployment, and when it is taken back."""
    declare(sandbox, broker)
    old = await release(sandbox, hot, broker.url)
    new = await release(sandbox, hot, f"{broker.server.url}/others")
    await old.tick()
    await broker.send({"order": 1})
    await ticks(old, 1)
    for _ in range(3):  # the old one reads: the new one waits, and says so
        assert await new.tick() > 1
    assert "is read from" in caplog.text
    assert broker.url in caplog.text
    await broker.send({"order": 2})
    await ticks(old, 2)
    await old.leave()
    await read_again(new, 2)
    assert (await sandbox.app.triggers.get("take")).source.endswith("/others")
    await broker.send({"order": 3})  # to the stream that nobody reads just now
    assert await old.tick() > 1
    await broker._client.xadd("others", {"body": json.dumps({"order": 4})})
    await ticks(new, 3)
    await new.leave()
    await ticks(old, 4)  # goes on where it was left
    await old.leave()
    await broker._client.xadd("others", {"body": json.dumps({"order": 5})})
    await ticks(new, 5)
    assert sorted(job.payload["order"] for job in await sandbox.jobs()) == [1, 2, 3, 4, 5]


async def test_what_a_node_read_from_another_source_is_not_stored(sandbox, hot, broker):
    """It lost its lease while it read, and another release took over at the same position."""
    declare(sandbox, broker)
    old = await release(sandbox, hot, broker.url, start="beginning")
    new = await release(sandbox, hot, f"{broker.server.url}/others", start="beginning")
    await old.tick()
    await broker.send({"order": 1})
    read = await old._source.read(None, 10, 1.0)
    await old.leave()
    await read_again(new, 2)
    await old._store(None, read)
    assert await sandbox.jobs() == []
    assert (await sandbox.app.triggers.get("take")).position is None


async def test_another_database_of_redis_is_another_source(sandbox, hot, broker):
    declare(sandbox, broker)
    first = await release(sandbox, hot, broker.url, start="beginning")
    await broker.send({"order": 1})
    await ticks(first, 1)
    await first.leave()
    second = await release(sandbox, hot, f"{broker.url}?db=1", start="beginning")
    other = type(broker._client)(port=broker.server.port, db=1)
    await other.xadd("orders", {"body": json.dumps({"order": 2})}, id="1-1")  # before our position
    await other.aclose()
    await ticks(second, 2)
    assert (await sandbox.app.triggers.get("take")).source == f"{broker.url}?db=1"
    assert sorted(job.payload["order"] for job in await sandbox.jobs()) == [1, 2]


@pytest.mark.parametrize("field", ["where", "arguments"])
def test_a_coroutine_can_not_decide(field):
    """It would be true whatever it returns."""

    async def function(message: Message) -> Any: ...

    with pytest.raises(ConfigError, match="plain function"):
        make_trigger("redis://r/x", "take", None, (), **{field: function})


@pytest.fixture
async def nats(tmp_path: Any) -> AsyncIterator[Broker]:
    service, kind = KINDS["nats"]
    if reason := service.missing():
        pytest.skip(reason)
    process = service(tmp_path)
    process.start()
    broker = kind(process)
    await broker.open()
    yield broker
    await broker.close()
    process.stop()


async def test_a_deleted_last_message_makes_no_others_new(sandbox, hot, nats):
    await nats.send({"order": 1}, {"order": 2}, {"order": 3})
    await nats._stream.delete_msg("orders", 3)
    declare(sandbox, nats)
    one = await opened(sandbox, hot)
    await one.tick()
    await nats.send({"order": 4})
    await ticks(one, 1)
    await read_again(one, 2)
    assert [job.payload["order"] for job in await sandbox.jobs()] == [4]


async def test_a_message_that_is_lost_on_the_way_is_read_again(sandbox, hot, nats):
    """JetStream counts it as delivered, and would not send it again by itself."""
    declare(sandbox, nats, start="beginning", batch=3)
    one = await opened(sandbox, hot)
    await one.tick()
    await nats.send(*({"order": number} for number in range(12)))
    await ticks(one, 3)
    lost = await one._source._reader.fetch(2)  # which never reach the trigger
    assert len(lost) == 2
    await ticks(one, 12)
    assert sorted(job.payload["order"] for job in await sandbox.jobs()) == list(range(12))
