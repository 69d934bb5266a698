"""Pools of workers: define them, and read how many slots they should have."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import delete, get, put
from litestar.params import JSONBody, PathParameter
from msgspec import Meta

from rota.client.wire import PoolList
from rota.model import PoolStatus
from rota.operations.pools import MOST_SLOTS
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest, TenantDep

PoolName = Annotated[str, PathParameter(max_length=100)]
_Names = Annotated[list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(max_length=100)]


class PoolDefinition(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`max_slots` and `min_slots`: jobs that its workers may run at a time, all together. `queues`: what
    they serve; none named: all. `capabilities`: what they offer. `slots_per_worker`: of one worker.
    `drain_target`: seconds within which what waits should be worked off."""

    max_slots: Annotated[int, Meta(ge=1, le=MOST_SLOTS)]
    min_slots: Annotated[int, Meta(ge=0, le=MOST_SLOTS)] = 0
    queues: _Names = []
    capabilities: _Names = []
    slots_per_worker: Annotated[int, Meta(ge=1, le=MOST_SLOTS)] = 1
    drain_target: Annotated[float, Meta(ge=1, le=86_400)] = 60.0


@get("/v1/pools", policy=VIEWER, summary="List pools of workers")
async def list_pools(tenant: TenantDep) -> PoolList:
    return PoolList(await tenant.pools.list())


@get("/v1/pools/{name:str}", policy=VIEWER, summary="Get a pool: how many slots it should have")
async def get_pool(tenant: TenantDep, name: PoolName) -> PoolStatus:
    """`slots` and `workers` are what an autoscaler reads: see KEDA's scaler `metrics-api`."""
    return await tenant.pools.get(name)


@put("/v1/pools/{name:str}", policy=OPERATOR, summary="Define a pool, or change it")
async def put_pool(
    tenant: TenantDep, request: RotaRequest, name: PoolName, data: JSONBody[PoolDefinition]
) -> PoolStatus:
    """With `If-Match: *` only a pool that exists is changed."""
    if request.headers.get("if-match") == "*":
        await tenant.pools.get(name)
    return await tenant.pools.put(name, **msgspec.structs.asdict(data))


@delete("/v1/pools/{name:str}", policy=OPERATOR, summary="Delete a pool", status_code=200)
async def delete_pool(tenant: TenantDep, name: PoolName) -> PoolStatus:
    """Its workers stay."""
    return await tenant.pools.delete(name)


ROUTES = [list_pools, get_pool, put_pool, delete_pool]
