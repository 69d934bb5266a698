"""Operations on pools of workers: define them, and see how many slots they should have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from rota.config import check_name
from rota.core.pools import Bounds, QueueLoad, Scaling, next_scaling, slots_needed, workers_for
from rota.errors import ConfigError, NotFound
from rota.model import PoolLoad, PoolStatus
from rota.operations.base import Operations
from rota.store.pools import PoolRow, PoolStore

MOST_SLOTS = 1_000_000
Statuses: TypeAlias = list[PoolStatus]  # inside Pools, `list` is its method


class Pools(Operations):
    """`app.pools`"""

    async def list(self) -> list[PoolStatus]:
        """List the pools, with how many slots they should have now."""
        return [_status(row) for row in await (await self._store()).list(self._namespace)]

    async def get(self, name: str) -> PoolStatus:
        """Return one pool."""
        rows = await (await self._store()).list(self._namespace, name)
        if not rows:
            raise NotFound(f"there is no pool {name!r}; `rota pools` lists them", subject=name)
        return _status(rows[0])

    async def put(
        self, name: str, *, max_slots: int, min_slots: int = 0, queues: Sequence[str] = (),
        capabilities: Sequence[str] = (), slots_per_worker: int = 1, drain_target: float = 60.0,
    ) -> PoolStatus:  # fmt: skip
        """Define a pool, or change it.

        Args:
            name: of the pool.
            max_slots: jobs that its workers may run at a time, all together.
            min_slots: slots that it has even when nothing is to be done.
            queues: the queues that its workers serve; none named: all.
            capabilities: what its workers offer (``gpu``). Jobs that need more are not counted.
            slots_per_worker: how many slots one worker has.
            drain_target: seconds within which what waits should be worked off.
        """
        _check(name, min_slots, max_slots, slots_per_worker, drain_target, queues, capabilities)
        store = await self._store()
        async with self._changing("put", f"pool {name}") as change:
            before = await store.list(self._namespace, name)
            change.before = _definition(before[0]) if before else None
            await store.put(
                self._namespace, name, queues, capabilities, min_slots, max_slots, slots_per_worker,
                float(drain_target),
            )  # fmt: skip
            [row] = await store.list(self._namespace, name)
            change.after = _definition(row)
        await decide_pool(store, row)
        return await self.get(name)

    async def delete(self, name: str) -> PoolStatus:
        """Delete a pool. Its workers stay."""
        store = await self._store()
        async with self._changing("delete", f"pool {name}") as change:
            before = await self.get(name)
            [row] = await store.list(self._namespace, name)
            change.before = _definition(row)
            await store.delete(self._namespace, name)
        return before

    async def _store(self) -> PoolStore:
        return PoolStore(await self._database())


async def decide_pool(store: PoolStore, pool: PoolRow) -> Scaling:
    """Decide how many slots a pool should have, and store it."""
    loads = await store.load(pool.namespace, pool.queues, pool.capabilities, pool.drain_target)
    needed = slots_needed(loads, pool.drain_target)
    bounds = Bounds(least=pool.min_slots, most=pool.max_slots, step=pool.slots_per_worker)
    scaling = next_scaling(pool.last_scaling(), pool.now, needed, bounds)
    await store.decide(pool, needed, loads, scaling)
    return scaling


def _status(row: PoolRow) -> PoolStatus:
    loads = row.load_list()
    return PoolStatus(
        namespace=row.namespace, name=row.name, queues=row.queues, capabilities=row.capabilities,
        min_slots=row.min_slots, max_slots=row.max_slots, slots_per_worker=row.slots_per_worker,
        drain_target=row.drain_target, slots=row.slots,
        workers=workers_for(row.slots, row.slots_per_worker), needed=row.needed,
        runnable=round(sum(load.runnable for load in loads)),
        running=sum(load.running for load in loads), decided_at=row.decided_at,
        loads=[_load(load) for load in loads],
    )  # fmt: skip


def _load(load: QueueLoad) -> PoolLoad:
    return PoolLoad(
        queue=load.queue, runnable=round(load.runnable), running=load.running,
        arrivals=load.arrivals, run_time=load.run_time,
    )  # fmt: skip


def _definition(row: PoolRow) -> dict[str, object]:
    return {
        "queues": list(row.queues), "capabilities": list(row.capabilities),
        "min_slots": row.min_slots, "max_slots": row.max_slots,
        "slots_per_worker": row.slots_per_worker, "drain_target": row.drain_target,
    }  # fmt: skip


def _check(
    name: str, least: int, most: int, per_worker: int, drain_target: float, queues: Sequence[str],
    capabilities: Sequence[str],
) -> None:  # fmt: skip
    check_name("pool", name)
    for field, value, lowest in (
        ("min_slots", least, 0), ("max_slots", most, 1), ("slots_per_worker", per_worker, 1)
    ):  # fmt: skip
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not lowest <= value <= MOST_SLOTS
        ):
            raise ConfigError(
                f"{field} must be a whole number from {lowest} to {MOST_SLOTS:,}, not {value!r:.100}",
                field=field,
            )
    if least > most:
        raise ConfigError(
            f"min_slots ({least}) must not be above max_slots ({most})", field="min_slots"
        )
    if (
        isinstance(drain_target, bool)
        or not isinstance(drain_target, int | float)
        or not 1 <= drain_target <= 86_400
    ):
        raise ConfigError(
            f"drain_target must be from 1 second to a day, not {drain_target!r:.100}",
            field="drain_target",
        )
    for field, names in (("queues", queues), ("capabilities", capabilities)):
        if isinstance(names, str) or len(names) > 100:
            raise ConfigError(f"{field} must be a list of up to 100 names", field=field)
        for each in names:
            check_name(f"a name in {field}", each)
