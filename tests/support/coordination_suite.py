"""What every implementation of `rota.scheduler.coordination.Coordination` must do.

Subclass it, give it a `coordination` fixture, a `pass_time` fixture (an async function that lets seconds
pass for the coordinator) and a `make_node` fixture (an async function that gives a node's id).

Real services are asked with a TTL as short as they allow, and may be late to notice that one is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from proof.waiting import eventually
from rota.scheduler.coordination import Coordination, View

SHARDS = range(8)
MakeNode = Callable[[], Awaitable[UUID]]
PassTime = Callable[[float], Awaitable[Any]]


class CoordinationSuite:
    ttl = 30.0
    rounds = 3
    late = 0.0  # by how many seconds it may notice the end of a lease too late

    async def be_patient(
        self, coordination: Coordination, pass_time: PassTime, *renewing: UUID
    ) -> None:
        for _ in range(2 if self.late else 0):
            await pass_time(self.late / 2)
            for node in renewing:
                await coordination.renew(node, self.ttl)

    async def test_a_free_shard_is_granted_once(
        self, coordination: Coordination, make_node: MakeNode
    ) -> None:
        one, other = await make_node(), await make_node()
        granted = await coordination.acquire(one, self.ttl, SHARDS)
        assert [grant.shard for grant in granted] == list(SHARDS)
        assert await coordination.acquire(other, self.ttl, SHARDS) == []

    async def test_many_at_once_never_share_a_shard(
        self, coordination: Coordination, make_node: MakeNode
    ) -> None:
        nodes = [await make_node() for _ in range(6)]
        answers = await asyncio.gather(*(coordination.acquire(n, self.ttl, SHARDS) for n in nodes))
        granted = [grant.shard for answer in answers for grant in answer]
        assert len(granted) == len(set(granted))
        # Whoever was passed over in the race may ask again; in the end each has one owner.
        for node in nodes:
            await coordination.acquire(node, self.ttl, SHARDS)
        view = await coordination.watch(nodes[0])
        assert sorted(view.owners) == list(SHARDS)

    async def test_an_epoch_is_higher_than_all_before(
        self, coordination: Coordination, make_node: MakeNode, pass_time: PassTime
    ) -> None:
        epochs: list[int] = []
        for _ in range(self.rounds):
            for end in (self.hand_over, self.let_expire):
                node = await make_node()
                [grant] = await coordination.acquire(node, self.ttl, [3])
                epochs.append(grant.epoch)
                await end(coordination, node, pass_time)
        assert epochs == sorted(set(epochs))

    async def hand_over(self, coordination: Coordination, node: UUID, _: PassTime) -> None:
        await coordination.release(node, [3])

    async def let_expire(self, coordination: Coordination, node: UUID, pass_time: PassTime) -> None:
        await pass_time(self.ttl + 1)
        await self.be_patient(coordination, pass_time)

        async def is_gone() -> bool:
            return not (await coordination.watch(node)).grants_of(node)

        await eventually(is_gone, what="the end of the lease")

    async def test_what_is_renewed_stays_and_what_isnt_expires(
        self, coordination: Coordination, make_node: MakeNode, pass_time: PassTime
    ) -> None:
        diligent, silent = await make_node(), await make_node()
        await coordination.acquire(diligent, self.ttl, [0, 1])
        await coordination.acquire(silent, self.ttl, [2, 3])
        await pass_time(self.ttl * 0.6)
        before = (await coordination.renew(diligent, self.ttl)).grants_of(diligent)
        await pass_time(self.ttl * 0.6)
        await self.be_patient(coordination, pass_time, diligent)

        async def without_the_silent() -> View | None:
            found = await coordination.renew(diligent, self.ttl)
            return None if found.grants_of(silent) else found

        view = await eventually(without_the_silent, what="the end of the lease")
        assert view is not None
        assert view.grants_of(diligent) == before
        assert [grant.shard for grant in before] == [0, 1]
        taken = await coordination.acquire(diligent, self.ttl, [0, 2, 3])
        assert [grant.shard for grant in taken] == [2, 3]

    async def test_whoever_lost_a_shard_does_not_get_it_back_by_renewing(
        self, coordination: Coordination, make_node: MakeNode, pass_time: PassTime
    ) -> None:
        old, new = await make_node(), await make_node()
        [before] = await coordination.acquire(old, self.ttl, [5])
        await self.let_expire(coordination, old, pass_time)
        [after] = await coordination.acquire(new, self.ttl, [5])
        view = await coordination.renew(old, self.ttl)
        assert view.owners[5] == (new, after.epoch)
        assert after.epoch > before.epoch
        assert view.grants_of(old) == []

    async def test_releasing_what_is_another_s_changes_nothing(
        self, coordination: Coordination, make_node: MakeNode
    ) -> None:
        owner, other = await make_node(), await make_node()
        [grant] = await coordination.acquire(owner, self.ttl, [1])
        await coordination.release(other, [1])
        await coordination.release(other)
        assert (await coordination.watch(other)).owners == {1: (owner, grant.epoch)}

    async def test_members_are_those_who_renew_until_they_stop_or_fall_silent(
        self, coordination: Coordination, make_node: MakeNode, pass_time: PassTime
    ) -> None:
        a, b, c = sorted([await make_node(), await make_node(), await make_node()])
        for node in (a, b, c):
            assert node in (await coordination.renew(node, self.ttl)).members
        assert (await coordination.watch(a)).members == (a, b, c)
        await coordination.release(b)
        assert (await coordination.watch(a)).members == (a, c)
        await pass_time(self.ttl * 0.6)
        await coordination.renew(a, self.ttl)
        await pass_time(self.ttl * 0.6)
        await self.be_patient(coordination, pass_time, a)

        async def is_alone() -> bool:
            return (await coordination.renew(a, self.ttl)).members == (a,)

        await eventually(is_alone, what="the end of the silent member")

    async def test_it_says_for_how_long_a_renewal_holds(
        self, coordination: Coordination, make_node: MakeNode
    ) -> None:
        view = await coordination.renew(await make_node(), self.ttl)
        assert view.ttl is None or view.ttl >= self.ttl

    async def test_a_stop_hands_everything_over_at_once(
        self, coordination: Coordination, make_node: MakeNode
    ) -> None:
        old, new = await make_node(), await make_node()
        await coordination.acquire(old, self.ttl, SHARDS)
        await coordination.release(old)
        granted = await coordination.acquire(new, self.ttl, SHARDS)
        assert [grant.shard for grant in granted] == list(SHARDS)

    async def test_every_call_can_be_repeated(
        self, coordination: Coordination, make_node: MakeNode
    ) -> None:
        """An answer that was lost is found in the next view."""
        node = await make_node()
        [lost] = await coordination.acquire(node, self.ttl, [4])
        assert await coordination.acquire(node, self.ttl, [4]) == []
        assert (await coordination.renew(node, self.ttl)).grants_of(node) == [lost]
        for _ in range(2):
            await coordination.release(node, [4])
            await coordination.release(node)
        assert (await coordination.watch(node)).owners == {}
