"""The conformance suite on real servers: coordination/etcd.py, zookeeper.py and consul.py.

A server that can't be had here leaves its tests out, and says why. Consul's are run on a recorded
conversation then.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from uuid import UUID

import pytest

from proof.services import Etcd, Process, ZooKeeper
from proof.waiting import eventually
from rota.lib.ids import new_id
from rota.scheduler.coordination import Coordination, CoordinatorUnavailable
from rota.scheduler.coordination.opening import open_driver, parse_coordination
from tests.support.coordination_suite import CoordinationSuite, MakeNode, PassTime


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


def test_an_address_that_makes_no_sense_is_refused_by_name() -> None:
    from rota.errors import ConfigError

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


