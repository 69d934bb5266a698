"""What must hold with a coordinator, whatever it does; and what must hold of its driver.

1. A row of `shard` goes from one owner to another only when it has expired, was given up, or by a grant
   with a higher number; and then its epoch rises. (A trigger looks at every change.)
2. A renewal that was answered has made the node a member: a session that is over is replaced by then.
3. Whatever a driver returns was answered by the service after it was asked; if it can't ask, it fails.
4. Two nodes never both believe in a shard by grants of the service, unless it has broken its word (it
   was wiped, restored, split, its clock was set, it ended sessions early, or answered from the past).
5. A driver fails with `CoordinatorUnavailable`, and with nothing else.
6. When all is mended, every scheduler uses the service, shards are shared evenly, and those of one that
   is killed get a new owner within its lease.

The fences of `fences.py` look at what is written as an owner, as without a coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from proof.simulation.coordinator.service import Service
from proof.simulation.engine import Engine
from proof.simulation.loop import PROCESS, Process
from proof.simulation.patches import Patches, current
from rota.scheduler.coordination import Coordination, CoordinatorUnavailable, Grant, View
from rota.scheduler.coordination.guarded import GuardedCoordination
from rota.scheduler.shards import Shards

T = TypeVar("T")

INSTALL = """
create table {schema}.seized (
    shard int, old_epoch bigint, epoch bigint, old_granted bigint, granted bigint);
create function {schema}.note_seized() returns trigger language plpgsql as $$
begin
    insert into {schema}.seized values (new.shard, old.epoch, new.epoch, old.granted, new.granted);
    return null;
end $$;
create trigger seized after update on {schema}.shard for each row when (
    new.owner is distinct from old.owner and new.owner is not null and (
        new.epoch <= old.epoch
        or old.owner is not null and old.expires_at > {schema}.now()
           and not coalesce(new.granted > old.granted, false)))
    execute function {schema}.note_seized();
"""

_LIMIT = 40  # seconds in which a mended cluster has settled


class Rules:
    def __init__(self, service: Service, engine: Engine, schema: str) -> None:
        self.service, self._engine, self._schema = service, engine, schema
        self.problems: list[str] = []
        self.counts = {"renewals": 0, "beliefs": 0, "fallbacks": 0}
        self._shards: dict[Process, Shards] = {}
        self._by_service: dict[Shards, bool] = {}

    def add(self, sentence: str) -> None:
        if len(self.problems) < 20:
            self.problems.append(
                f"{sentence} ({self.service.name}, {self.service.loop.time():.3f})"
            )

    def shards_of(self, process: Process) -> Shards:
        return self._shards[process]

    # -- what drivers do

    async def asked(self, node: UUID, call: Callable[[], Awaitable[T]]) -> T:
        process, service = current(), self.service
        served = service.served[process]
        try:
            answer = await call()
        except CoordinatorUnavailable:
            raise
        except Exception as error:
            self.add(f"a driver raises only CoordinatorUnavailable: {process.name}: {error!r}")
            raise
        if service.served[process] == served and isinstance(answer, View):
            self.add(f"a view is the service's: {process.name} was answered without asking it")
        return answer

    def renewed(self, node: UUID, sent: float, view: View) -> None:
        now = self.service.loop.time()
        self.counts["renewals"] += 1
        undisturbed = self.service.disturbed_at < sent and self.service.lag == 0
        if undisturbed and node not in view.members and now - sent < 0.9 * (view.ttl or 2.0):
            self.add(f"a renewal makes a member: {current().name} is none")

    # -- what schedulers believe

    def watch(self, patches: Patches) -> None:
        honest = Shards.tick

        async def tick(myself: Shards) -> float:
            process = PROCESS.get()
            assert process is not None
            self._shards[process] = myself
            pause = await honest(myself)
            coordination: Any = myself._coordination
            assert isinstance(coordination, GuardedCoordination)
            self._by_service[myself] = coordination.fault is None
            self.counts["fallbacks"] += coordination.fault is not None
            self._compare(process, myself)
            return pause

        patches.set(Shards, "tick", tick)

    def _compare(self, process: Process, own: Shards) -> None:
        service, now = self.service, self.service.loop.time()
        mine = {grant.shard for grant in own.held()}
        self.counts["beliefs"] += len(mine)
        # A lie is believed for as long as a lease, and Consul's may be of twice its length.
        if now - service.disturbed_at < 45 or not self._by_service[own]:
            return
        for other_process, other in self._shards.items():
            if other is own or other_process.dead or not self._by_service.get(other, False):
                continue
            both = sorted(mine & {grant.shard for grant in other.held()})
            if both and other._me != own._me:
                self.add(
                    f"a shard has one believer: {process.name} and {other_process.name} both believe"
                    f" in {both}"
                )

    # -- the end

    async def settled(self, nodes: int, seconds: float = _LIMIT) -> float | None:
        """Wait until every scheduler has its share, by the service's grants. Return how long it took."""
        begun = self.service.loop.time()
        schema = self._schema
        while self.service.loop.time() < begun + seconds:
            self._engine.set_clock(self.service.loop.time())
            counts = [row[0] for row in self._engine.ask(
                f"select count(*) from {schema}.shard where expires_at > {schema}.now()"
                " and owner is not null and granted is not null group by owner"
            )]  # fmt: skip
            faults = self._engine.ask(
                f"select name from {schema}.node where 'scheduler' = any(roles) and state = 'live'"
                f" and expires_at > {schema}.now() and coordinator_fault is not null"
            )
            even = len(counts) == nodes and max(counts) - min(counts) <= 1
            if even and not faults and sum(counts) == self._count():
                return self.service.loop.time() - begun
            await asyncio.sleep(0.5)
        said = f"after {seconds:.0f} s owners have {counts}, {len(faults)} have a fault"
        self.add(f"a mended cluster settles: {said}")
        return None

    def _count(self) -> int:
        return int(self._engine.ask(f"select count(*) from {self._schema}.shard")[0][0])

    def epochs(self) -> dict[int, tuple[UUID | None, int]]:
        rows = self._engine.ask(f"select shard, owner, epoch from {self._schema}.shard")
        return {row["shard"]: (row["owner"], row["epoch"]) for row in rows}

    def found(self) -> list[str]:
        rows = self._engine.ask(f"select * from {self._schema}.seized order by shard, epoch")
        return self.problems + [
            f"a shard is taken by a higher number, or when it has expired: {dict(row)}"
            for row in rows[:5]
        ]


class Watched:
    """A driver, of which every answer is looked at."""

    def __init__(self, driver: Coordination, rules: Rules) -> None:
        self._driver, self._rules = driver, rules

    async def acquire(self, node: UUID, ttl: float, shards: Sequence[int]) -> list[Grant]:
        return await self._rules.asked(node, lambda: self._driver.acquire(node, ttl, shards))

    async def renew(self, node: UUID, ttl: float) -> View:
        sent = self._rules.service.loop.time()
        view = await self._rules.asked(node, lambda: self._driver.renew(node, ttl))
        self._rules.renewed(node, sent, view)
        return view

    async def watch(self, node: UUID) -> View:
        return await self._rules.asked(node, lambda: self._driver.watch(node))

    async def release(self, node: UUID, shards: Sequence[int] | None = None) -> None:
        await self._rules.asked(node, lambda: self._driver.release(node, shards))

    async def close(self) -> None:
        await self._driver.close()


if TYPE_CHECKING:

    def _fits(watched: Watched) -> Coordination:
        return watched
