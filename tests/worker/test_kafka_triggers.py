"""What only Kafka has: partitions, transactions, offsets that expire: worker/sources/kafka.py."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from proof.services import Kafka
from proof.waiting import eventually
from rota import App
from rota.core.positions import Vector, merged, parse_vector
from rota.errors import ConfigError
from rota.lib.addresses import parse_address
from rota.worker.sources import SourceUnavailable
from rota.worker.sources.kafka import KafkaSource
from tests.support.brokers import KafkaBroker, declare, reader, ticks


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    if reason := Kafka.missing():
        pytest.skip(reason)
    process = Kafka(tmp_path_factory.mktemp("broker"))
    process.start()
    yield process
    process.stop()


@pytest.fixture
async def broker(server: Kafka) -> AsyncIterator[KafkaBroker]:
    broker = KafkaBroker(server)
    await broker.open()
    yield broker
    await broker.close()


async def orders(sandbox) -> list[int]:
    return sorted(job.payload["order"] for job in await sandbox.jobs())


async def test_only_messages_of_committed_transactions_become_jobs(sandbox, hot, broker):
    from aiokafka import AIOKafkaProducer

    declare(sandbox, broker, start="beginning")
    one = await reader(sandbox, hot)
    async with AIOKafkaProducer(
        bootstrap_servers=f"127.0.0.1:{broker.server.port}", transactional_id="orders"
    ) as sender:
        await sender.begin_transaction()
        await sender.send_and_wait("orders", b'{"order": 1}', partition=0)
        await sender.abort_transaction()
        await sender.begin_transaction()
        await sender.send_and_wait("orders", b'{"order": 2}', partition=0)
        for _ in range(2):
            await one.tick()
        assert await orders(sandbox) == []
        await sender.commit_transaction()
        await ticks(one, 1)
        assert await orders(sandbox) == [2]
        await sender.begin_transaction()
        await sender.send_and_wait("orders", b'{"order": 3}', partition=0)
        await sender.abort_transaction()

    async def passed_over() -> bool:
        """What was aborted is no lag."""
        one._lag_at = 0.0
        await one.tick()
        return (await sandbox.app.triggers.get("take")).lag == 0

    await eventually(passed_over, what="a lag of none")
    assert await orders(sandbox) == [2]
    await one.leave()


async def test_new_partitions_are_read_from_their_beginning(sandbox, hot, broker):
    from aiokafka.admin import NewPartitions

    declare(sandbox, broker, start="new")
    await broker.send({"order": 0})
    one = await reader(sandbox, hot)
    await one.tick()
    await broker.admin.create_partitions({"orders": NewPartitions(5)})

    async def sent() -> bool:
        await broker._producer.client.force_metadata_update()
        if len(await broker._producer.partitions_for("orders")) < 5:
            return False
        await broker._producer.send_and_wait("orders", b'{"order": 1}', partition=4)
        return True

    await eventually(sent, what="the new partitions")
    await ticks(one, 1)
    assert await orders(sandbox) == [1]
    await one.leave()


async def test_messages_that_expired_unread_are_passed_over_and_nothing_else(sandbox, hot, broker):
    from aiokafka import TopicPartition
    from aiokafka.admin import RecordsToDelete

    declare(sandbox, broker, start="beginning")
    one = await reader(sandbox, hot)
    for number in range(5):
        await broker._producer.send_and_wait("orders", b'{"order": %d}' % number, partition=1)
        if number == 0:
            await ticks(one, 1)
    deleted = {TopicPartition("orders", 1): RecordsToDelete(before_offset=3)}
    await broker.admin.delete_records(deleted)
    await one.leave()
    other = await reader(sandbox, hot)
    await ticks(other, 3)
    assert await orders(sandbox) == [0, 3, 4]
    await other.leave()


async def test_a_topic_made_anew_with_more_messages_than_we_had_read_is_read_whole(
    sandbox, hot, broker
):
    """Our offsets exist in the new topic, too, and mean other messages."""
    declare(sandbox, broker, start="beginning")
    one = await reader(sandbox, hot)
    await broker._producer.send_and_wait("orders", b'{"order": 1}', partition=0)
    await ticks(one, 1)
    await broker.close()
    await broker.open()
    for number in range(2, 7):
        await broker._producer.send_and_wait("orders", b'{"order": %d}' % number, partition=0)
    await ticks(one, 6)
    assert await orders(sandbox) == [1, 2, 3, 4, 5, 6]
    await one.leave()


async def test_a_rewind_of_one_partition_leaves_the_others(sandbox, hot, broker):
    declare(sandbox, broker, start="beginning")
    one = await reader(sandbox, hot)
    for number in range(6):
        await broker._producer.send_and_wait(
            "orders", b'{"order": %d}' % number, partition=number % 3
        )
    status = await ticks(one, 6)
    assert parse_vector(status.position).offsets == {0: 1, 1: 1, 2: 1}
    await sandbox.app.triggers.rewind("take", "1:0")
    await ticks(one, 7)
    assert await orders(sandbox) == [0, 1, 2, 3, 4, 4, 5]
    await one.leave()


async def test_a_partition_that_ends_before_our_position_is_a_fault(sandbox, hot, broker):
    declare(sandbox, broker, start="beginning")
    one = await reader(sandbox, hot)
    await broker.send({"order": 1})
    await ticks(one, 1)
    await sandbox.app.triggers.rewind("take", "0:1000")
    with pytest.raises(SourceUnavailable, match="before our position 1000"):
        await one.tick()
    assert "lost messages" in (await sandbox.app.triggers.get("take")).fault
    await one.leave()


async def test_keys_headers_and_empty_messages_reach_the_filter(sandbox, hot, broker):
    seen = []
    declare(sandbox, broker, start="beginning", where=lambda m: seen.append(m) or bool(m.body))
    one = await reader(sandbox, hot)
    await broker._producer.send_and_wait(
        "orders", None, key=b"4711", headers=[("kind", b"deleted")], partition=0
    )
    status = await ticks(one, 1)
    assert (status.jobs, status.skipped) == (0, 1)
    assert (seen[0].key, seen[0].headers, seen[0].body) == (b"4711", {"kind": "deleted"}, b"")
    await one.leave()


_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required username=rota "
    "password=right user_rota=right;"
)


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a certificate for the loopback, and its key."""
    folder.mkdir(parents=True)
    key, own = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key,
         "-out", own, "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    (folder / "both.pem").write_text(key.read_text() + own.read_text())
    return own, folder / "both.pem"


@pytest.mark.parametrize("password", ["right", "wrong"])
async def test_an_encrypted_line_with_a_password(tmp_path, password, server, caplog):
    own, both = certificate(tmp_path / "tls")
    process = Kafka(tmp_path)
    process.protocol = "SASL_SSL"
    process.extra = (
        "ssl.keystore.type=PEM", f"ssl.keystore.location={both}",
        "ssl.truststore.type=PEM", f"ssl.truststore.location={own}",
        "sasl.enabled.mechanisms=PLAIN", "sasl.mechanism.inter.broker.protocol=PLAIN",
        f"listener.name.clients.plain.sasl.jaas.config={_LOGIN}",
    )  # fmt: skip
    process.start()
    try:
        text = f"kafka+tls://rota:{password}@127.0.0.1:{process.port}/orders?ca={own}&sasl=PLAIN"
        source = KafkaSource(parse_address("source", text, {"kafka": 9092}, {"sasl": ""}))
        if password == "wrong":
            with pytest.raises(SourceUnavailable, match="log of aiokafka says why"):
                await source.end()
            assert "Invalid username or password" in caplog.text
        else:
            assert await source.end() is None  # there is no such topic
        await source.close()
    finally:
        process.stop()


def test_positions_are_text_and_a_rewind_names_some_partitions():
    at = Vector("abc_-1", {1: 7, 0: -1})
    assert str(at) == "abc_-1/0:-1,1:7"
    assert parse_vector(str(at)) == at
    assert parse_vector("2:9") == Vector("", {2: 9})
    assert merged("kafka://a/t", str(at), "1:3") == "abc_-1/0:-1,1:3"
    assert merged("kafka://a/t", str(at), "abc_-1/0:5") == "abc_-1/0:5,1:7"
    assert merged("kafka://a/t", str(at), "other/0:5") == "other/0:5"
    assert merged("kafka://a/t", str(at), "nonsense") == "nonsense"
    assert merged("redis://a/t", "1-0", "0-1") == "0-1"


def test_an_unknown_way_to_tell_a_password_is_refused():
    with pytest.raises(ConfigError, match="sasl must be one of"):

        @App().on("kafka://me:secret@localhost/x?sasl=GSSAPI")
        async def take(order: int) -> None: ...
