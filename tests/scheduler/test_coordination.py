"""The conformance suite on PostgreSQL, and on a coordinator that knows nothing of PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from proof.waiting import eventually
from rota.lib.ids import new_id
from rota.scheduler.coordination import (
    CoordinatorUnavailable,
    Grant,
    PostgresCoordination,
    View,
)
from rota.scheduler.coordination.guarded import GuardedCoordination
from rota.scheduler.shards import Shards
from rota.store.work import UpkeepStore
from tests.support.coordination_suite import CoordinationSuite, MakeNode, PassTime
from tests.support.fake_node import FakeNode


class RevisionCoordination:
    """As an etcd would do it: keys with leases in one place, numbered by one counter for everything."""

    def __init__(self) -> None:
        self.now = 0.0
        self._revision = 4_711
        self.away = self.closed = False
        self._members: dict[UUID, float] = {}
        self._keys: dict[int, tuple[UUID, int, float]] = {}

    def _live(self) -> dict[int, tuple[UUID, int, float]]:
        return {shard: key for shard, key in self._keys.items() if key[2] > self.now}

    async def acquire(self, node: UUID, ttl: float, shards: Sequence[int]) -> list[Grant]:
        self._answer()
        granted = []
        for shard in shards:
            if shard not in self._live():
                self._revision += 1
                self._keys[shard] = (node, self._revision, self.now + ttl)
                granted.append(Grant(shard, self._revision))
        return granted

    async def renew(self, node: UUID, ttl: float) -> View:
        self._answer()
        self._members[node] = self.now + ttl
        for shard, (owner, revision, _) in self._live().items():
            if owner == node:
                self._keys[shard] = (owner, revision, self.now + ttl)
        return await self.watch(node)

    async def watch(self, node: UUID) -> View:
        self._answer()
        members = sorted(member for member, until in self._members.items() if until > self.now)
        owners = {shard: key[:2] for shard, key in sorted(self._live().items())}
        return View(tuple(members), owners)

    async def close(self) -> None:
        self.closed = True

    def _answer(self) -> None:
        if self.away:
            raise CoordinatorUnavailable("it was told to be away")

    def forget_everything(self, revision: int = 1) -> None:
        self._revision = revision
        self._members, self._keys = {}, {}

    async def release(self, node: UUID, shards: Sequence[int] | None = None) -> None:
        self._answer()
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


# -- behind the database's fence

TTL = 3600.0


async def node_of(sandbox, hot) -> UUID:
    settings = sandbox.app.settings.replace(heartbeat=36_000.0)
    return (await FakeNode(hot, settings).register(roles=["scheduler"])).id


@pytest.fixture
def service() -> RevisionCoordination:
    return RevisionCoordination()


@pytest.fixture
async def guard(hot, service):
    """One of these per scheduler, on one service."""
    made = []

    def make() -> GuardedCoordination:
        made.append(GuardedCoordination(service, hot, "test://service"))
        return made[-1]

    yield make
    for each in made:
        await each.close()


async def scheduler(sandbox, hot, guard) -> Shards:
    node = await node_of(sandbox, hot)
    return Shards(guard(), 128, TTL, lambda: node)


async def rows(hot, columns: str) -> list[Any]:
    async with hot.connection() as connection:
        return await connection.fetch(f"select {columns} from {hot.schema}.shard order by shard")


async def test_the_database_enforces_the_grants_of_another_coordinator(
    sandbox, hot, guard, service
):
    """Two schedulers that both believe in a grant: the older one can't write any more."""
    old = await scheduler(sandbox, hot, guard)
    await old.tick()
    stale = old.held()
    assert len(stale) == 128
    service.now += TTL + 1  # its lease is over, and it doesn't know
    new = await scheduler(sandbox, hot, guard)
    await new.tick()
    await sandbox.app.submit("greet", delay=60)
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


async def enforce(hot, node: UUID, number: int, ttl: float = 60.0) -> list[tuple[int, int]]:
    found = await hot.fetch("enforce_shards", node, ttl, [3], [number])
    return [tuple(row) for row in found]


async def test_our_epoch_rises_by_one_whatever_the_coordinator_counts(sandbox, hot):
    one, other = await node_of(sandbox, hot), await node_of(sandbox, hot)
    assert await enforce(hot, one, 100) == [(3, 1)]
    assert await enforce(hot, one, 100) == [(3, 1)]  # repeated
    assert await enforce(hot, other, 100) == []
    assert await enforce(hot, other, 99) == []
    assert await enforce(hot, other, 2**62) == [(3, 2)]


async def test_a_coordinator_that_counts_from_below_is_accepted_when_the_row_has_expired(
    sandbox, hot
):
    """It was restored from a backup, wiped, or exchanged for another."""
    one, other = await node_of(sandbox, hot), await node_of(sandbox, hot)
    assert await enforce(hot, one, 1_000_000) == [(3, 1)]
    assert await enforce(hot, other, 7) == []
    await sandbox.advance(seconds=61)
    assert await enforce(hot, other, 7) == [(3, 2)]
    assert await enforce(hot, one, 1_000_000) == [(3, 3)]  # higher again, by the old one's number


async def test_a_wiped_coordinator_is_used_again_at_once_where_the_owner_is_the_same(
    sandbox, hot, guard, service
):
    shards = await scheduler(sandbox, hot, guard)
    await shards.tick()
    service.forget_everything()
    await shards.tick()  # it finds that it was forgotten,
    await shards.tick()  # joins again, and takes everything again
    assert len(shards.held()) == 128
    assert {row["granted"] < 4_711 for row in await rows(hot, "granted")} == {True}


async def test_a_look_that_finds_nothing_new_costs_the_database_nothing(
    sandbox, hot, guard, monkeypatch
):
    shards = await scheduler(sandbox, hot, guard)
    await shards.tick()
    asked: list[str] = []
    fetch = hot.fetch

    async def counting(query: str, *values: Any) -> Any:
        asked.append(query)
        return await fetch(query, *values)

    monkeypatch.setattr(hot, "fetch", counting)
    for _ in range(5):
        await shards.tick()
    assert asked == []
    assert len(shards.held()) == 128
    shards._renew_at = 0.0
    await shards.tick()
    assert asked == ["enforce_shards"]


async def test_a_coordinator_that_is_away_is_replaced_by_postgresql(sandbox, hot, guard, service):
    a, b = [await scheduler(sandbox, hot, guard) for _ in range(2)]
    for _ in range(3):
        await a.tick()
        await b.tick()
    assert (len(a.held()), len(b.held())) == (64, 64)
    epochs = await rows(hot, "shard, epoch")
    service.away = True
    for _ in range(3):
        for each in (a, b):
            each._renew_at = 0.0
            await each.tick()
    assert (len(a.held()), len(b.held())) == (64, 64)
    assert await rows(hot, "shard, epoch") == epochs  # nobody had to take anything over
    await b.leave()  # gone for good, while the coordinator is away
    await a.tick()
    assert len(a.held()) == 128


async def test_when_the_coordinator_is_back_it_is_used_again(sandbox, hot, guard, service):
    shards = await scheduler(sandbox, hot, guard)
    service.away = True
    await shards.tick()
    assert len(shards.held()) == 128
    assert {row["granted"] for row in await rows(hot, "granted")} == {None}
    service.away = False
    await eventually(lambda: shards._coordination.fault is None, what="another question")
    shards._renew_at = 0.0
    await shards.tick()
    await shards.tick()
    assert len(shards.held()) == 128
    assert {row["granted"] > 4_711 for row in await rows(hot, "granted")} == {True}


async def test_the_node_s_row_says_which_coordinator_it_uses_and_whether_it_answers(
    sandbox, hot, guard, service
):
    shards = await scheduler(sandbox, hot, guard)

    async def noted() -> tuple[str, str | None]:
        async with hot.connection() as connection:
            row = await connection.fetchrow(
                f"select coordinator, coordinator_fault from {hot.schema}.node where id = $1",
                shards._me,
            )
            return tuple(row)

    await shards.tick()
    assert await noted() == ("test://service", None)
    service.away = True
    shards._renew_at = 0.0
    await shards.tick()
    assert await noted() == ("test://service", "it was told to be away")


async def test_a_lying_coordinator_never_makes_two_owners_in_the_database(sandbox, hot):
    """It grants at random: twice, with old numbers, to the dead. Each epoch has one owner."""
    chance = random.Random(4711)
    nodes = [await node_of(sandbox, hot) for _ in range(4)]
    granted: dict[tuple[int, int], UUID] = {}
    last: dict[int, int] = {}
    for _ in range(300):
        node = chance.choice(nodes)
        shards = sorted(chance.sample(range(8), chance.randint(1, 8)))
        numbers = [chance.randint(1, 50) for _ in shards]
        ttl = chance.choice([0.5, 5.0, 30.0])
        for shard, epoch in await hot.fetch("enforce_shards", node, ttl, shards, numbers):
            assert granted.setdefault((shard, epoch), node) == node
            assert epoch >= last.get(shard, 0)
            last[shard] = epoch
        await sandbox.advance(seconds=chance.choice([0, 0, 1, 10]))
    assert len(granted) > 100


async def test_an_epoch_that_was_refused_is_not_believed_again(sandbox, hot, guard):
    shards = await scheduler(sandbox, hot, guard)
    await shards.tick()
    shards.lost([7])
    await shards.tick()  # the coordinator still says that it is ours
    assert 7 not in {grant.shard for grant in shards.held()}


async def test_a_shard_with_a_refused_epoch_is_given_back_and_taken_anew(sandbox, hot, guard):
    """The coordinator goes on to grant it to this node: nobody else would ever have it."""
    shards = await scheduler(sandbox, hot, guard)
    await shards.tick()
    before = {grant.shard: grant.epoch for grant in shards.held()}
    shards.lost([7])
    await shards.tick()
    await shards.tick()
    after = {grant.shard: grant.epoch for grant in shards.held()}
    assert after.keys() == before.keys()
    assert after[7] > before[7]


async def test_leaving_closes_the_driver(sandbox, hot, guard, service):
    shards = await scheduler(sandbox, hot, guard)
    await shards.tick()
    await shards.leave()
    assert service.closed
    assert {row["owner"] for row in await rows(hot, "owner")} == {None}
