"""The conformance suite on real servers: coordination/etcd.py, zookeeper.py and consul.py.

A server that can't be had here leaves its tests out, and says why. Consul's are run on a recorded
conversation then.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import NAMESPACE_URL, UUID, uuid5

import httpx
import pytest

from bench.footprint import measure, programs
from proof.services import Consul, Etcd, Process, ZooKeeper
from proof.waiting import eventually
from rota import App, Node
from rota.errors import ConfigError
from rota.lib.ids import new_id
from rota.scheduler.coordination import Coordination, CoordinatorUnavailable, zookeeper
from rota.scheduler.coordination.consul import ConsulCoordination
from rota.scheduler.coordination.etcd import EtcdCoordination
from rota.scheduler.coordination.opening import open_driver, parse_coordination
from tests.support.certificates import make_certificate
from tests.support.coordination_suite import CoordinationSuite, MakeNode, PassTime
from tests.support.recording import Recorder, Replay, load, save


class DriverSuite(CoordinationSuite):
    service: type[Process]

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
        if reason := cls.service.missing():
            pytest.skip(reason)
        server = cls.service(tmp_path_factory.mktemp("service"))
        server.start()
        yield server
        server.stop()

    @pytest.fixture
    async def coordination(self, server: Process) -> AsyncIterator[Coordination]:
        driver = open_driver(parse_coordination(server.url), f"rota/{new_id()}")
        yield driver
        await driver.close()

    @pytest.fixture
    def pass_time(self) -> PassTime:
        return asyncio.sleep

    @pytest.fixture
    def make_node(self) -> MakeNode:
        async def make() -> UUID:
            return new_id()

        return make

    async def test_as_many_shards_as_there_can_be(
        self, coordination: Coordination, make_node: MakeNode
    ) -> None:
        node, other = await make_node(), await make_node()
        assert len(await coordination.acquire(other, self.ttl, [70, 900])) == 2
        granted = await coordination.acquire(node, 20.0, range(1024))
        assert [grant.shard for grant in granted] == [s for s in range(1024) if s not in (70, 900)]
        await coordination.release(node, range(1000))
        view = await coordination.watch(node)
        assert [grant.shard for grant in view.grants_of(node)] == list(range(1000, 1024))

    async def test_installations_that_share_it_do_not_meet(
        self, coordination: Coordination, server: Process, make_node: MakeNode
    ) -> None:
        node, stranger = await make_node(), await make_node()
        other = open_driver(parse_coordination(server.url), f"rota/{new_id()}")
        await coordination.renew(node, self.ttl)
        assert (await other.renew(stranger, self.ttl)).members == (stranger,)
        await coordination.acquire(node, self.ttl, [1])
        assert [grant.shard for grant in await other.acquire(stranger, self.ttl, [1])] == [1]
        await other.close()

    async def test_a_server_that_is_away_is_an_error_that_says_so(
        self, make_node: MakeNode
    ) -> None:
        driver = open_driver(parse_coordination(f"{self.service.name}://127.0.0.1:1"), "rota/x")
        with pytest.raises(CoordinatorUnavailable):
            await driver.watch(await make_node())
        await driver.close()

    async def test_a_server_that_lost_everything_is_used_again(
        self, coordination: Coordination, server: Process, make_node: MakeNode
    ) -> None:
        node = await make_node()
        await coordination.renew(node, self.ttl)
        await coordination.acquire(node, self.ttl, [1, 2])
        server.wipe()

        async def answers() -> bool:
            try:
                return (await coordination.renew(node, self.ttl)).members == (node,)
            except CoordinatorUnavailable:
                return False

        await eventually(answers, what="a new session")
        granted = await coordination.acquire(node, self.ttl, [1, 2])
        view = await coordination.renew(node, self.ttl)
        assert view.grants_of(node) == granted or len(view.grants_of(node)) == 2


class TestEtcd(DriverSuite):
    service, ttl = Etcd, 2.0

    async def test_a_lease_that_is_over_is_noticed_though_the_answer_is_200(
        self, coordination: Coordination, make_node: MakeNode
    ) -> None:
        node = await make_node()
        await coordination.renew(node, self.ttl)
        await coordination.acquire(node, self.ttl, [3])
        lease, _ = coordination._leases[node]
        await coordination._post("/v3/lease/revoke", {"ID": lease})
        view = await coordination.renew(node, self.ttl)
        assert (view.members, view.grants_of(node)) == ((node,), [])
        assert coordination._leases[node][0] != lease

    async def test_the_servers_that_answer_are_used(
        self, server: Process, make_node: MakeNode
    ) -> None:
        address = f"etcd://127.0.0.1:1,127.0.0.1:{server.port}"
        driver = open_driver(parse_coordination(address), f"rota/{new_id()}")
        node = await make_node()
        assert (await driver.renew(node, self.ttl)).members == (node,)
        await driver.close()


class TestZooKeeper(DriverSuite):
    service, ttl = ZooKeeper, 2.0

    @pytest.fixture(autouse=True)
    def _patience(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        """On a busy machine a server that isn't away may be slow."""
        if "coordination" in request.fixturenames:
            monkeypatch.setattr(zookeeper, "_PATIENCE", 30.0)

    async def test_a_session_that_nobody_renews_is_closed_though_kazoo_pings(
        self, coordination: Coordination, make_node: MakeNode, server: Process
    ) -> None:
        """As when our loop hangs: kazoo's own thread would keep the session for ever."""
        node = await make_node()
        await coordination.renew(node, self.ttl)
        observer = open_driver(parse_coordination(server.url), coordination._folder.strip("/"))
        other = await make_node()
        assert node in (await observer.renew(other, self.ttl)).members

        async def is_gone() -> bool:
            return node not in (await observer.renew(other, self.ttl)).members

        await eventually(is_gone, what="the end of the session")
        await observer.close()

    async def test_it_tells_the_timeout_that_the_server_granted(
        self, coordination: Coordination, make_node: MakeNode
    ) -> None:
        """The server of these tests has ticks of 1 s: sessions are from 2 to 20 s long."""
        assert (await coordination.renew(await make_node(), 0.5)).ttl == pytest.approx(2.0)
        assert (await coordination.renew(await make_node(), 60.0)).ttl == pytest.approx(20.0)


RECORDED = Path(__file__).parent.parent / "support" / "consul_conversations.json"


class TestConsul(CoordinationSuite):
    """On a real Consul (ROTA_TEST_CONSUL=program, or ROTA_TEST_CONSUL_URL), else on what one once said.

    ROTA_RECORD=1 writes what it says into the file of conversations.
    """

    ttl, rounds, late = 10.0, 1, 10.0

    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str | None]:
        if given := os.environ.get("ROTA_TEST_CONSUL_URL"):
            yield given
        elif Consul.missing():
            yield None
        else:
            server = Consul(tmp_path_factory.mktemp("service"))
            server.start()
            yield server.url
            server.stop()

    @pytest.fixture
    async def coordination(
        self, server: str | None, request: pytest.FixtureRequest
    ) -> AsyncIterator[Coordination]:
        name = request.node.name
        transport: Recorder | Replay
        transport = Replay(load(RECORDED)[name]) if server is None else Recorder()
        address = parse_coordination(server or "consul://127.0.0.1:8500")
        folder = f"rota/{uuid5(NAMESPACE_URL, name)}"
        driver = ConsulCoordination(address, folder, transport=transport)
        yield driver
        await driver.close()
        if isinstance(transport, Recorder) and os.environ.get("ROTA_RECORD"):
            save(RECORDED, {**load(RECORDED), name: transport.exchanges})

    @pytest.fixture
    def pass_time(self, server: str | None) -> PassTime:
        async def nothing(_: float) -> None:
            pass

        return nothing if server is None else asyncio.sleep

    @pytest.fixture
    def make_node(self, request: pytest.FixtureRequest) -> MakeNode:
        """The same ids as when the conversation was recorded."""
        numbers = itertools.count()

        async def make() -> UUID:
            return uuid5(NAMESPACE_URL, f"{request.node.name} {next(numbers)}")

        return make

    async def test_as_many_shards_as_there_can_be(
        self, coordination: Coordination, make_node: MakeNode
    ) -> None:
        node, other = await make_node(), await make_node()
        assert len(await coordination.acquire(other, self.ttl, [70, 100])) == 2
        granted = await coordination.acquire(node, 20.0, range(130))
        assert [grant.shard for grant in granted] == [s for s in range(130) if s not in (70, 100)]

    async def test_a_session_that_is_over_is_noticed(
        self, coordination: Coordination, make_node: MakeNode
    ) -> None:
        node = await make_node()
        await coordination.renew(node, self.ttl)
        await coordination.acquire(node, self.ttl, [3])
        session, _ = coordination._sessions[node]
        await coordination._ask("PUT", f"/v1/session/destroy/{session}")
        view = await coordination.renew(node, self.ttl)
        assert (view.members, view.grants_of(node)) == ((node,), [])

    async def test_the_shortest_lease_is_longer_than_ours(
        self, coordination: Coordination, make_node: MakeNode
    ) -> None:
        assert (await coordination.renew(await make_node(), 3.0)).ttl == 10.0


class TestEtcdWithPasswords:
    """TLS and users, as a company's etcd has them."""

    async def test_it_logs_in_over_an_encrypted_line_and_again_when_its_token_is_over(
        self, tmp_path: Path
    ) -> None:
        if reason := Etcd.missing():
            pytest.skip(reason)
        certificate, key = make_certificate(tmp_path)
        server = Etcd(tmp_path)
        server.scheme = "https"
        server.extra = ("--cert-file", str(certificate), "--key-file", str(key),
                        "--auth-token-ttl", "1")  # fmt: skip
        server.start()
        try:
            place = f"127.0.0.1:{server.port}/team?ca={certificate}"
            open_door = open_driver(parse_coordination(f"etcd+tls://{place}"), "rota/a")
            assert isinstance(open_door, EtcdCoordination)
            for path, body in (
                ("/v3/auth/user/add", {"name": "root", "password": "s3cret"}),
                ("/v3/auth/user/grant", {"user": "root", "role": "root"}),
                ("/v3/auth/enable", {}),
            ):
                await eventually(lambda p=path, b=body: _done(open_door, p, b), what=path)
            node = new_id()
            with pytest.raises(CoordinatorUnavailable, match="refused"):
                await open_door.renew(node, 5.0)
            await open_door.close()
            wrong = open_driver(parse_coordination(f"etcd+tls://root:wrong@{place}"), "rota/a")
            with pytest.raises(CoordinatorUnavailable, match="refused the user 'root'"):
                await wrong.renew(node, 5.0)
            await wrong.close()
            driver = open_driver(parse_coordination(f"etcd+tls://root:s3cret@{place}"), "rota/a")
            assert isinstance(driver, EtcdCoordination)
            assert (await driver.renew(node, 5.0)).members == (node,)
            driver._token = "over.1"
            assert (await driver.renew(node, 5.0)).members == (node,)
            assert driver._token != "over.1"
            await driver.close()
        finally:
            server.stop()


async def _done(driver: EtcdCoordination, path: str, body: dict[str, str]) -> bool:
    try:
        await driver._post(path, body)
    except CoordinatorUnavailable as error:
        return "already" in str(error)
    return True


def test_an_address_that_makes_no_sense_is_refused_by_name() -> None:
    for text, says in (
        ("redis://localhost", "unknown scheme 'redis'"),
        ("etcd", "is not an address"),
        ("etcd://", "is not a host"),
        ("etcd://one:99999", "is not a host"),
        ("etcd://one?ca=/etc/passwd", "needs +tls"),
        ("etcd+tls://one?ca=/nowhere", "names no file"),
        ("etcd://one?colour=blue", "unknown option 'colour'"),
    ):
        with pytest.raises(ConfigError, match="coordination") as refused:
            parse_coordination(text)
        assert says in str(refused.value)


def test_an_address_is_shown_without_its_password() -> None:
    address = parse_coordination("etcd+tls://me:s3cret%40@one,two:4444/team")
    assert (address.user, address.password) == ("me", "s3cret@")
    assert address.shown == "etcd+tls://one:2379,two:4444/team"
    assert "s3cret" not in repr(address)


async def test_a_node_uses_the_coordinator_that_its_settings_name_and_says_so(
    app: App, tmp_path: Path
) -> None:
    """Killed in the middle, it is missed by nobody; everything that shows the cluster says so."""
    if reason := Etcd.missing():
        pytest.skip(reason)
    server = Etcd(tmp_path)
    server.start()

    @app.task
    async def greet() -> str:
        return "hello"

    try:
        settings = app.settings.replace(coordination=server.url, metrics_port=0, shard_lease=2.0)
        async with app.using(settings):
            await app.migrate()
            node = Node(app)
            async with node.running():
                assert node._shards is not None
                await eventually(lambda: len(node._shards.held()) == 128, what="all shards")
                [status] = await app.nodes.list()
                assert (status.coordinator, status.coordinator_fault) == (server.url, None)
                assert f"{server.url} shares the shards, and answers" in await _check_up(app)
                server.kill()
                handle = await greet.options(delay=1).submit()
                assert await handle.result(timeout=60) == "hello"

                async def is_noticed() -> bool:
                    return (await app.nodes.list())[0].coordinator_fault is not None

                await eventually(is_noticed, what="the fault in the node's row")
                assert len(node._shards.held()) == 128
                assert "does not answer" in " ".join(await _check_up(app))
                port = node.metrics_port.port
                text = (await httpx.AsyncClient().get(f"http://127.0.0.1:{port}/metrics")).text
                state = f'coordinator="{server.url}",state="away"'
                assert f"rota_coordinator_schedulers{{{state}}} 1.0" in text
    finally:
        server.stop()


async def _check_up(app: App) -> list[str]:
    return [each.says for each in (await app.connector.diagnose()).findings]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("name", list(programs()))
async def test_a_plain_installation_loads_nothing_optional(app: App, name: str) -> None:
    """Neither drivers nor clients of brokers, nor httpx: not by an import, nor by a node at work."""
    url, schema = app.settings.database_url, app.settings.schema
    assert url is not None
    found = await asyncio.to_thread(measure, programs()[name], url, schema)
    assert found.optional == []


def test_what_is_not_used_is_not_loaded() -> None:
    code = (
        "import sys, rota.node, rota.scheduler.coordination.opening; print([m for m in sys.modules if "
        "m.split('.')[0] in ('kazoo', 'redis', 'aio_pika', 'nats', 'aiokafka') or m in ("
        "'rota.scheduler.coordination.' + each for each in ('etcd', 'consul', 'zookeeper', 'guarded', "
        "'http'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr
