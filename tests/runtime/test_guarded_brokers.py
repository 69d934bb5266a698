"""Brokers as companies run them: encrypted, with passwords, virtual hosts, settings of their own, and
full: runtime/dispatch/, worker/targets/."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from proof.services import Nats, Process, RabbitMQ, Redis, free_port
from proof.waiting import eventually
from rota.core.cloudevents import CloudEvent
from rota.errors import ConfigError
from rota.lib.addresses import parse_address
from rota.lib.ids import new_id
from rota.operations.triggers import PORTS
from rota.runtime.dispatch import Broker, BrokerUnavailable, open_broker
from rota.worker.sources import SourceUnavailable
from rota.worker.targets import open_target
from tests.support.certificates import make_certificate
from tests.support.dispatch import heard, taken

PASSWORD = "p@ss:w/rd%?#& ü"
VHOST = "team a/b"


class Guarded:
    """A server with TLS and a user `rota`; `address` has its password."""

    def __init__(self, name: str, folder: Path) -> None:
        certificate, key = make_certificate(folder)
        for file in (certificate, key):
            file.chmod(0o644)
        folder.chmod(0o755)
        port = free_port()
        self.server: Process
        if name == "redis":
            self.server = Redis(folder)
            self.server.extra = (
                "--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
                "--tls-auth-clients", "no", "--aclfile", str(folder / "acl"),
            )  # fmt: skip
            (folder / "acl").write_text("user default on nopass ~* &* +@all\nuser rota off\n")
        elif name == "nats":
            self.server = Nats(folder)
            port = self.server.port
            self.server.extra = (
                f'tls {{ cert_file: "{certificate}", key_file: "{key}" }}',
                f'authorization {{ users: [{{ user: rota, password: "{PASSWORD}" }}] }}',
            )
        else:
            self.server = RabbitMQ(folder)
            self.server.extra = (
                f"listeners.ssl.1 = 127.0.0.1:{port}", f"ssl_options.certfile = {certificate}",
                f"ssl_options.keyfile = {key}",
            )  # fmt: skip
        self.server.start()
        if isinstance(self.server, Redis):
            asyncio.run(self._add_redis_user())
        if isinstance(self.server, RabbitMQ):
            for command in (
                ("await_startup",), ("add_user", "--", "rota", PASSWORD), ("add_vhost", "--", VHOST),
                ("set_permissions", "-p", VHOST, "rota", ".*", ".*", ".*"),
            ):  # fmt: skip
                self.server.control(*command)
        self.scheme, self.port, self._ca = self.server.name, port, certificate

    async def _add_redis_user(self) -> None:
        from redis.asyncio import Redis as Client

        async with Client(port=self.server.port) as client:
            await client.execute_command(
                "ACL", "SETUSER", "rota", "on", f">{PASSWORD}", "~*", "&*", "+@all"
            )

    def address(self, path: str = "", password: str = PASSWORD, user: str = "rota") -> str:
        vhost = f"&vhost={quote(VHOST, safe='')}" if self.scheme == "amqp" else ""
        secret = f"{user}:{quote(password, safe='')}"
        return f"{self.scheme}+tls://{secret}@127.0.0.1:{self.port}/{path}?ca={self._ca}{vhost}"


@pytest.fixture(scope="module", params=["redis", "nats", "rabbitmq"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Guarded]:
    kind: type[Process] = {"redis": Redis, "nats": Nats, "rabbitmq": RabbitMQ}[request.param]
    if reason := kind.missing():
        pytest.skip(reason)
    made = Guarded(request.param, tmp_path_factory.mktemp(request.param))
    yield made
    made.server.stop()


async def round_trip(address: str) -> None:
    relay, worker, me = open_broker(address, "default"), open_broker(address, "default"), new_id()
    try:
        await relay.take(1, 0.1)  # makes what calls go to
        await worker.answers(me, 0.01)  # listens from here on: NATS keeps no answer for later
        await worker.call([b"question"])
        [call] = await taken(relay, 1)
        assert call.body == b"question"
        await relay.reply([(me, b"x" * 1_000_000)], [call])
        assert [len(body) for body in await heard(worker, me, 1)] == [1_000_000]
    finally:
        await relay.close()
        await worker.close()


async def test_an_encrypted_line_with_a_password_of_odd_characters(guarded: Guarded):
    await round_trip(guarded.address("p1"))


@pytest.mark.parametrize("wrong", ["password", "user"])
async def test_a_wrong_password_is_refused_and_not_shown(guarded: Guarded, wrong: str):
    given = {wrong: "wrong%secret"}
    broker = open_broker(guarded.address("p2", **given), "default")
    try:
        with pytest.raises(BrokerUnavailable) as refused:
            await broker.take(1, 0.1)
        assert "wrong%secret" not in str(refused.value)
        assert PASSWORD not in str(refused.value)
    finally:
        await broker.close()


async def test_sinks_use_the_same_addresses(guarded: Guarded):
    if guarded.scheme != "redis":
        pytest.skip("a topic has to be made first: tests/worker/test_sinks.py")
    event = CloudEvent(id="1", type="rota.job.failed", subject="x", body=b"{}")
    good = open_target(parse_address("target", guarded.address("events"), PORTS, {}))
    await good.send([event])
    await good.close()
    wrong = open_target(parse_address("target", guarded.address("events", "no"), PORTS, {}))
    with pytest.raises(SourceUnavailable):
        await wrong.send([event])
    await wrong.close()


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    if reason := RabbitMQ.missing():
        pytest.skip(reason)
    server = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"))
    server.start()
    server.control("await_startup")
    yield server
    server.stop()


@pytest.mark.parametrize("arguments", [{}, {"x-queue-type": "quorum"}, {"x-max-length": 5_000}])
async def test_a_queue_that_somebody_else_has_made_is_used(rabbitmq: RabbitMQ, arguments: Any):
    """An administrator, or another version of Rota."""
    import aio_pika

    prefix = new_id().hex
    line = await aio_pika.connect(f"{rabbitmq.url}/")
    channel = await line.channel()
    await channel.declare_queue(f"{prefix}.default.calls", durable=True, arguments=arguments)
    await line.close()
    await round_trip(f"{rabbitmq.url}/{prefix}")


async def test_the_next_server_is_asked_when_one_is_away(rabbitmq: RabbitMQ):
    broker = open_broker(f"amqp://127.0.0.1:1,127.0.0.1:{rabbitmq.port}", "default")

    async def is_there() -> bool:
        try:
            await broker.take(1, 0.1)
        except BrokerUnavailable:
            return False
        return True

    await eventually(is_there, what="the server that is there")
    await broker.close()


async def test_a_memory_alarm_of_rabbitmq_delays_calls_and_loses_no_connection(rabbitmq: RabbitMQ):
    address, me = f"{rabbitmq.url}/{new_id().hex}", new_id()
    relay, worker = open_broker(address, "default"), open_broker(address, "default")
    await relay.take(1, 0.1)
    listening = asyncio.create_task(heard(worker, me, 1))
    await worker.call([b"before"])
    [call] = await taken(relay, 1)
    await asyncio.to_thread(rabbitmq.control, "set_vm_memory_high_watermark", "0")
    try:
        for _ in range(5):
            await try_to(worker.call([b"during"]))
        await try_to(relay.reply([], [call]))
    finally:
        await asyncio.to_thread(rabbitmq.control, "set_vm_memory_high_watermark", "0.6")
    await passes_again(relay, worker)
    await relay.reply([(me, b"answer")], [])
    assert await listening == [b"answer"]
    await relay.close()
    await worker.close()


async def try_to(doing: Any) -> None:
    with contextlib.suppress(BrokerUnavailable):
        await doing


async def passes_again(relay: Broker, worker: Broker) -> None:
    async def arrives() -> bool:
        try:
            await worker.call([b"after"])
            found = await relay.take(100, 0.5)
            await relay.reply([], found)
        except BrokerUnavailable:
            return False
        return any(delivery.body == b"after" for delivery in found)

    await eventually(arrives, what="a call that arrives")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    if reason := Redis.missing():
        pytest.skip(reason)
    server = Redis(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-lru", "volatile-ttl"])
async def test_a_redis_that_is_full_or_evicts_costs_time_only(redis: Redis, policy: str):
    """`volatile-ttl` removes the streams of workers alone, which expire."""
    from redis.asyncio import Redis as Client

    me = new_id()
    relay, worker = open_broker(redis.url, "default"), open_broker(redis.url, "default")
    async with Client(port=redis.port) as client:
        await worker.call([b"before"])
        [call] = await taken(relay, 1)
        await client.config_set("maxmemory-policy", policy)
        await client.config_set("maxmemory", 1)
        with pytest.raises(BrokerUnavailable, match="maxmemory"):
            await worker.call([b"during"] * 10)
        with pytest.raises(BrokerUnavailable, match="maxmemory"):
            await relay.reply([(me, b"answer")], [call])
        await client.config_set("maxmemory", 0)
        await passes_again(relay, worker)
        await relay.reply([(me, b"answer")], [])
        assert await heard(worker, me, 1) == [b"answer"]
    await relay.close()
    await worker.close()


def test_several_hosts_of_redis_are_refused():
    with pytest.raises(ConfigError, match="Redis is one host"):
        open_broker("redis://one,two", "default")


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[Nats]:
    if reason := Nats.missing():
        pytest.skip(reason)
    server = Nats(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("other", [{"max_msgs": 10}, {"max_bytes": 2_000_000}])
async def test_a_stream_that_somebody_else_has_made_is_used(nats: Nats, other: Any):
    import nats as client
    from nats.js.api import RetentionPolicy, StreamConfig

    line = await client.connect(nats.url)
    await line.jetstream().add_stream(
        StreamConfig(
            name="p_default",
            subjects=["p.default.calls"],
            retention=RetentionPolicy.WORK_QUEUE,
            **other,
        )
    )
    await line.close()
    await round_trip(f"{nats.url}/p")
