"""Shards: shared evenly, fenced by their epochs, swept by everyone."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import asyncpg
import hypothesis
import pytest
from hypothesis import strategies as st

from rota import All
from rota.cli.cluster import ranges
from rota.config import Settings
from rota.core.shards import assign, moves_of
from rota.errors import ConfigError, StoreUnavailable
from rota.lib.ids import new_id
from rota.scheduler.coordination import PostgresCoordination
from rota.scheduler.firer import Firer
from rota.scheduler.releaser import Releaser
from rota.scheduler.shards import Shards
from rota.store.database import Database
from rota.store.migrate import migrate
from rota.store.schedules import ScheduleStore
from rota.store.work import UpkeepStore
from tests.support.fake_node import FakeNode

TTL = 30.0

# -- who should own what


def shares(assigned: dict[int, UUID]) -> list[int]:
    return sorted(Counter(assigned.values()).values())


@hypothesis.given(
    count=st.integers(1, 200), nodes=st.integers(1, 12), data=st.data(), gone=st.integers(0, 3)
)
def test_shares_are_even_and_whatever_can_stay_stays(count, nodes, data, gone):
    members = sorted(new_id() for _ in range(nodes))
    strangers = [new_id() for _ in range(gone)]
    holder = st.sampled_from([None, *members, *strangers])
    owners = {shard: owner for shard in range(count) if (owner := data.draw(holder)) is not None}
    assigned = assign(range(count), members, owners)
    assert sorted(assigned) == list(range(count))
    fair, larger = divmod(count, nodes)
    got = Counter(assigned.values())
    assert (
        sorted(got[member] for member in members) == [fair] * (nodes - larger) + [fair + 1] * larger
    )
    # The fewest moves that any even sharing could do with.
    held = sorted((Counter(owners.values())[member] for member in members), reverse=True)
    quotas = [fair + 1] * larger + [fair] * (nodes - larger)
    stay = sum(min(have, quota) for have, quota in zip(held, quotas, strict=True))
    assert sum(assigned[shard] == owner for shard, owner in owners.items()) == stay


def test_nobody_is_there_to_own_anything():
    assert assign(range(8), [], {}) == {}


def test_a_newcomer_takes_its_share_from_each_and_a_leaver_gives_to_each():
    a, b, c = sorted(new_id() for _ in range(3))
    two = assign(range(128), [a, b], {})
    assert shares(two) == [64, 64]
    three = assign(range(128), [a, b, c], two)
    assert shares(three) == [42, 43, 43]
    assert sum(three[shard] != two[shard] for shard in range(128)) == Counter(three.values())[c]
    again = assign(range(128), [a, b], {s: o for s, o in three.items() if o != c})
    assert sum(again[s] != three[s] for s in range(128)) == Counter(three.values())[c]


def test_what_is_held_by_another_is_not_taken():
    a, b = sorted([new_id(), new_id()])
    owners = dict.fromkeys(range(8), a)
    assert moves_of(b, range(8), [a, b], owners) == ([], [])  # first they must be handed over
    assert moves_of(a, range(8), [a, b], owners) == ([], [4, 5, 6, 7])


# -- the fence


async def scheduler(sandbox: Any, hot: Database, *, ttl: float = TTL) -> Shards:
    settings = sandbox.app.settings.replace(heartbeat=3600.0)
    node = await FakeNode(hot, settings).register(roles=["scheduler"])
    return Shards(PostgresCoordination(hot), 128, ttl, lambda: node.id)


async def take_over(sandbox: Any, hot: Database, old: Shards) -> Shards:
    """The old owner's leases have run out by the database's clock; it doesn't know."""
    await sandbox.advance(seconds=TTL + 1)
    new = await scheduler(sandbox, hot)
    await new.tick()
    assert len(new.held()) == 128
    assert len(old.held()) == 128
    return new


async def test_a_stale_owner_releases_nothing_and_steps_down(sandbox, hot):
    old = await scheduler(sandbox, hot)
    await old.tick()
    new = await take_over(sandbox, hot, old)
    handle = await sandbox.app.submit("greet", delay=60)
    await sandbox.advance(seconds=60)
    stale = Releaser(UpkeepStore(hot), old)
    await stale.tick()
    assert (await handle.status()).state == "scheduled"
    assert old.held() == []
    await Releaser(UpkeepStore(hot), new).tick()
    assert (await handle.status()).state == "ready"


async def test_a_stale_owner_fires_nothing_and_steps_down(sandbox, hot):
    old = await scheduler(sandbox, hot)
    await old.tick()
    await sandbox.app.schedule("hourly", "greet", every=3600, catch_up=All())
    new = await take_over(sandbox, hot, old)
    await sandbox.advance(hours=2)
    await Firer(ScheduleStore(hot), old).tick()
    assert await sandbox.jobs() == []
    assert old.held() == []
    await Firer(ScheduleStore(hot), new).tick()
    assert len(await sandbox.jobs()) == 2


async def test_what_another_owner_missed_is_swept_when_it_is_due_and_not_before(sandbox, hot):
    async with hot.connection() as connection:
        await connection.execute(
            f"update {hot.schema}.setting set value = 1000 where name = 'horizon_ms'"
        )
    owner, sweeper = await scheduler(sandbox, hot), await scheduler(sandbox, hot)
    await owner.tick()
    await sweeper.tick()
    assert (len(owner.held()), sweeper.held()) == (128, [])
    handle = await sandbox.app.submit("greet", delay=60)
    await sandbox.advance(seconds=59.5)
    await Releaser(UpkeepStore(hot), sweeper).tick()
    assert (await handle.status()).state == "scheduled"  # its owner's business
    await sandbox.advance(seconds=0.5)
    await Releaser(UpkeepStore(hot), sweeper).tick()
    assert (await handle.status()).state == "ready"


async def test_a_takeover_waits_for_what_the_old_owner_has_under_way(sandbox, hot):
    """The fence is a lock that lasts as long as the write: not a look before it."""
    old = await scheduler(sandbox, hot)
    await old.tick()
    await sandbox.app.schedule("hourly", "greet", every=3600, catch_up=All())
    await sandbox.advance(hours=2)
    grants = old.held()
    new = await scheduler(sandbox, hot)
    store = ScheduleStore(hot)
    async with hot.transaction() as firing:
        rows = await store.due_schedules(
            firing, [grant.shard for grant in grants], [grant.epoch for grant in grants], 10
        )
        assert len(rows) == 1
        await new.tick()  # everything has expired long ago
        # All but the one shard whose owner is in the middle of a write.
        assert len(new.held()) == 127
        # A renewal isn't held up by it.
        async with asyncio.timeout(60):
            await PostgresCoordination(hot).renew(old._me, TTL)
    await old.leave()
    await new.tick()
    assert len(new.held()) == 128


async def test_epochs_cannot_change_under_a_fence_by_any_update(sandbox, hot):
    """`epoch` is part of a unique key: even a plain update of it conflicts with FOR KEY SHARE."""
    owner = await scheduler(sandbox, hot)
    await owner.tick()
    async with hot.transaction() as fence, hot.connection() as other:
        query = f"select from {hot.schema}.shard where shard = 7 and epoch = 1 for key share"
        assert await fence.fetch(query)
        await other.execute("set lock_timeout = '100ms'")
        try:
            await other.execute(f"update {hot.schema}.shard set expires_at = now() where shard = 7")
            with pytest.raises(asyncpg.LockNotAvailableError):
                await other.execute(f"update {hot.schema}.shard set epoch = 2 where shard = 7")
        finally:
            await other.execute("reset lock_timeout")


# -- the service


async def test_shards_are_shared_and_handed_over(sandbox, hot):
    a, b, c = [await scheduler(sandbox, hot) for _ in range(3)]
    for _ in range(4):
        for each in (a, b, c):
            await each.tick()
    held = [len(each.held()) for each in (a, b, c)]
    assert sorted(held) == [42, 43, 43]
    assert sorted(g.shard for each in (a, b, c) for g in each.held()) == list(range(128))
    await b.leave()
    for each in (a, c):
        await each.tick()
    assert sorted(len(each.held()) for each in (a, c)) == [64, 64]
    assert b.held() == []


async def test_trust_in_a_lease_ends_by_the_node_s_own_monotonic_clock(sandbox, hot, monkeypatch):
    """The database's clock stands still here; the node's says that its lease is over."""
    import rota.scheduler.shards as module

    moment = 1000.0
    monkeypatch.setattr(module, "monotonic", lambda: moment)
    shards = await scheduler(sandbox, hot)
    await shards.tick()
    moment = 1000.0 + TTL * 0.89
    assert len(shards.held()) == 128
    moment = 1000.0 + TTL * 0.91
    assert shards.held() == []
    assert len(shards.others()) == 128  # which it still sweeps


async def test_a_slow_answer_does_not_stretch_the_trust(sandbox, hot, monkeypatch):
    import rota.scheduler.shards as module

    moment = 1000.0
    monkeypatch.setattr(module, "monotonic", lambda: moment)
    shards = await scheduler(sandbox, hot)
    see = shards._coordination.renew

    async def slowly(*arguments: Any) -> Any:
        nonlocal moment
        moment += TTL
        return await see(*arguments)

    monkeypatch.setattr(shards._coordination, "renew", slowly)
    await shards.tick()
    assert shards.held() == []


async def test_an_answer_that_was_lost_is_found_again(sandbox, hot, monkeypatch):
    shards = await scheduler(sandbox, hot)
    acquire = shards._coordination.acquire

    async def unanswered(*arguments: Any) -> Any:
        await acquire(*arguments)
        raise StoreUnavailable("the line was cut")

    monkeypatch.setattr(shards._coordination, "acquire", unanswered)
    with pytest.raises(StoreUnavailable):
        await shards.tick()
    monkeypatch.setattr(shards._coordination, "acquire", acquire)
    await shards.tick()
    assert {grant.epoch for grant in shards.held()} == {1}
    assert len(shards.held()) == 128


async def test_a_node_with_a_new_identity_owns_nothing_until_it_has_taken_it(sandbox, hot):
    settings = sandbox.app.settings.replace(heartbeat=3600.0)
    nodes = [await FakeNode(hot, settings).register(roles=["scheduler"]) for _ in range(2)]
    me = nodes[0].id
    shards = Shards(PostgresCoordination(hot), 128, TTL, lambda: me)
    await shards.tick()
    me = nodes[1].id
    assert shards.held() == []
    await sandbox.advance(seconds=TTL + 1)
    await shards.tick()
    assert {grant.epoch for grant in shards.held()} == {2}


# -- seen


async def test_the_map_and_the_takeovers_can_be_seen(sandbox, hot):
    old = await scheduler(sandbox, hot)
    await old.tick()
    await take_over(sandbox, hot, old)
    nodes = sandbox.app.nodes
    shards = await nodes.shards()
    assert [shard.shard for shard in shards] == list(range(128))
    assert {(shard.epoch, shard.node) for shard in shards} == {(2, "fake")}
    taken, first = await nodes.takeovers()
    assert (taken.shards, taken.owner, taken.previous) == (128, shards[0].owner, old._me)
    assert taken.gap == 1.0
    assert (first.previous, first.gap) == (None, None)
    await sandbox.advance(seconds=TTL + 1)
    assert {shard.owner for shard in await nodes.shards()} == {None}


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([3], "3"), ([0, 1, 2, 3], "0-3"), ([0, 2, 3, 4, 9, 11, 12], "0, 2-4, 9, 11-12")],
)
def test_ranges_of_shards_are_short(numbers, text):
    assert ranges(numbers) == text


# -- how many


async def test_the_number_of_shards_is_set_when_the_schema_is_made(database_url):
    connection = await asyncpg.connect(database_url)
    schema = f"rota_test_{new_id().hex[20:]}"
    try:
        await migrate(connection, schema, shards=1)
        count = await connection.fetchval(f"select count(*) from {schema}.shard")
        job = await connection.fetchval(f"select {schema}.shard_of({schema}.new_id(), 1)")
        assert (count, job) == (1, 0)
        await migrate(connection, schema)  # later, nobody needs to say it again
        with pytest.raises(ConfigError, match=r"made with 1, which can't be changed to 16"):
            await migrate(connection, schema, shards=16)
    finally:
        await connection.execute(f"drop schema {schema} cascade")
        await connection.close()


@pytest.mark.parametrize("shards", [0, -1, 1025])
def test_a_senseless_number_of_shards_is_refused(shards):
    with pytest.raises(ConfigError, match="shards must be from 1 to 1024"):
        Settings(shards=shards)
