"""The conformance suite on PostgreSQL, and on a coordinator that knows nothing of PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from rota.lib.ids import new_id
from rota.scheduler.coordination import Grant, PostgresCoordination, PostgresFence, View
from rota.scheduler.shards import Shards
from rota.store.work import UpkeepStore
from tests.support.coordination_suite import CoordinationSuite, MakeNode, PassTime
from tests.support.fake_node import FakeNode


class RevisionCoordination:
    """As an etcd would do it: keys with leases in one place, numbered by one counter for everything."""

    def __init__(self) -> None:
        self.now = 0.0
        self._revision = 4_711
        self._members: dict[UUID, float] = {}
        self._keys: dict[int, tuple[UUID, int, float]] = {}

    def _live(self) -> dict[int, tuple[UUID, int, float]]:
        return {shard: key for shard, key in self._keys.items() if key[2] > self.now}

    async def acquire(self, node: UUID, ttl: float, shards: Sequence[int]) -> list[Grant]:
        granted = []
        for shard in shards:
            if shard not in self._live():
                self._revision += 1
                self._keys[shard] = (node, self._revision, self.now + ttl)
                granted.append(Grant(shard, self._revision))
        return granted

    async def renew(self, node: UUID, ttl: float) -> View:
        self._members[node] = self.now + ttl
        for shard, (owner, revision, _) in self._live().items():
            if owner == node:
                self._keys[shard] = (owner, revision, self.now + ttl)
        return await self.watch(node)

    async def watch(self, node: UUID) -> View:
        members = sorted(member for member, until in self._members.items() if until > self.now)
        owners = {shard: key[:2] for shard, key in sorted(self._live().items())}
        return View(tuple(members), owners)

    async def release(self, node: UUID, shards: Sequence[int] | None = None) -> None:
        for shard, (owner, _, _) in self._live().items():
            if owner == node and (shards is None or shard in shards):
                del self._keys[shard]
        if shards is None:
            self._members.pop(node, None)


class TestPostgres(CoordinationSuite):
    @pytest.fixture
    def coordination(self, hot):
        return PostgresCoordination(hot)

    @pytest.fixture
    def pass_time(self, sandbox) -> PassTime:
        return lambda seconds: sandbox.advance(seconds=seconds)

    @pytest.fixture
    def make_node(self, sandbox, hot) -> MakeNode:
        async def make() -> UUID:
            settings = sandbox.app.settings.replace(heartbeat=3600.0)
            return (await FakeNode(hot, settings).register(roles=["scheduler"])).id

        return make

    async def test_a_node_that_was_declared_dead_is_granted_nothing(
        self, coordination, make_node, hot
    ):
        node = await make_node()
        async with hot.connection() as connection:
            await connection.execute(f"update {hot.schema}.node set state = 'dead'")
        assert await coordination.acquire(node, 30.0, [1, 2]) == []
        await coordination.renew(node, 30.0)
        assert (await coordination.watch(node)).members == ()


class TestAnother(CoordinationSuite):
    @pytest.fixture
    def coordination(self):
        return RevisionCoordination()

    @pytest.fixture
    def pass_time(self, coordination) -> PassTime:
        async def pass_time(seconds: float) -> None:
            coordination.now += seconds

        return pass_time

    @pytest.fixture
    def make_node(self) -> MakeNode:
        async def make() -> UUID:
            return new_id()

        return make


async def test_the_database_enforces_the_numbers_of_another_coordinator(sandbox, hot):
    """Two schedulers that both believe in a grant: the older number can't write any more."""
    app, coordination, fence = sandbox.app, RevisionCoordination(), PostgresFence(hot)
    ids = [(await FakeNode(hot, app.settings).register(roles=["scheduler"])).id for _ in range(2)]
    old = Shards(coordination, 128, 3600.0, lambda: ids[0], fence)
    await old.tick()
    stale = old.held()
    assert len(stale) == 128
    coordination.now += 3601  # its lease is over, and it doesn't know
    new = Shards(coordination, 128, 3600.0, lambda: ids[1], fence)
    await new.tick()
    await app.submit("greet", delay=60)
    await sandbox.advance(seconds=60)
    store = UpkeepStore(hot)
    shards = [grant.shard for grant in stale]
    released, lost = await store.release(shards, [grant.epoch for grant in stale], 100)
    assert (released, sorted(lost)) == (0, shards)
    current = new.held()
    released, lost = await store.release(
        [grant.shard for grant in current], [grant.epoch for grant in current], 100
    )
    assert (released, lost) == (1, [])


async def test_a_number_that_does_not_rise_is_refused(sandbox, hot):
    """A coordinator that has lost its memory starts counting anew."""
    fence = PostgresFence(hot)
    settings = sandbox.app.settings
    one, other = [
        (await FakeNode(hot, settings).register(roles=["scheduler"])).id for _ in range(2)
    ]
    assert await fence.enforce(one, 60.0, [Grant(3, 100)]) == [Grant(3, 100)]
    assert await fence.enforce(one, 60.0, [Grant(3, 100)]) == [Grant(3, 100)]  # repeated
    assert await fence.enforce(other, 60.0, [Grant(3, 100)]) == []
    assert await fence.enforce(other, 60.0, [Grant(3, 99)]) == []
    assert await fence.enforce(other, 60.0, [Grant(3, 101)]) == [Grant(3, 101)]
