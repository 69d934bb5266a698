"""Queues: list, pause, resume and configure them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get, post, put
from litestar.params import FromPath, JSONBody, PathParameter, QueryParameter
from msgspec import Meta

from rota.client.wire import HolderList, LimitList, QueueList, ShareList, ShareServiceList
from rota.core.keys import MOST
from rota.model import QueuePolicy, QueueStatus
from rota.operations.queues import MOST_DEPTH
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import TenantDep

QueueName = Annotated[str, PathParameter(max_length=100)]
New = Annotated[
    bool, QueryParameter(description="Allow a queue that no job and no task has used yet.")
]


@get("/v1/queues", policy=VIEWER, summary="List queues, with their jobs and lag")
async def list_queues(tenant: TenantDep) -> QueueList:
    """`lag`: the seconds for which the oldest ready job has been due."""
    return QueueList(await tenant.queues.list())


@get("/v1/queues/{name:str}", policy=VIEWER, summary="Get a queue")
async def get_queue(tenant: TenantDep, name: QueueName) -> QueueStatus:
    return await tenant.queues.get(name)


@post("/v1/queues/{name:str}/pause", policy=OPERATOR, summary="Pause a queue", status_code=200)
async def pause_queue(tenant: TenantDep, name: QueueName, new: New = False) -> QueueStatus:
    """Start none of its jobs until it is resumed. Running jobs are not affected."""
    return await tenant.queues.pause(name, must_exist=not new)


@post("/v1/queues/{name:str}/resume", policy=OPERATOR, summary="Resume a queue", status_code=200)
async def resume_queue(tenant: TenantDep, name: QueueName) -> QueueStatus:
    return await tenant.queues.resume(name)


_Seconds = Annotated[float, Meta(ge=1, lt=1e9)]
_Most = Annotated[int, Meta(ge=1, le=MOST)]


class QueueSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Settings to change. A field that is left out keeps its value; null: no limit.

    `max_run_time`: seconds that an attempt may take when its job has no timeout; null: that of the
    installation. `concurrency`: jobs that may run at a time, in the whole cluster;
    `concurrency_per_key`: of those, jobs with one concurrency_key. `rate`: starts in a period, such as
    100/minute, of which `rate_burst` may come at once. `policy`: which jobs start first, `priority`,
    `fair`, `fifo` or `edf` (earliest deadline first). `max_depth`: jobs that have not ended, from which
    on submits are answered with 429. `history`: what is kept of jobs that succeed, `all`, `failures`,
    `none`, or a sample such as `sample:1%`."""

    max_run_time: _Seconds | msgspec.UnsetType | None = msgspec.UNSET
    concurrency: _Most | msgspec.UnsetType | None = msgspec.UNSET
    concurrency_per_key: _Most | msgspec.UnsetType | None = msgspec.UNSET
    rate: Annotated[str, Meta(max_length=40)] | msgspec.UnsetType | None = msgspec.UNSET
    rate_burst: _Most | None = None
    policy: QueuePolicy | msgspec.UnsetType = msgspec.UNSET
    max_depth: Annotated[int, Meta(ge=1, le=MOST_DEPTH)] | msgspec.UnsetType | None = msgspec.UNSET
    history: Annotated[str, Meta(max_length=40)] | msgspec.UnsetType = msgspec.UNSET


@put("/v1/queues/{name:str}", policy=OPERATOR, summary="Set a queue's limits")
async def set_queue(
    tenant: TenantDep, name: QueueName, data: JSONBody[QueueSettings], new: New = False
) -> QueueStatus:
    """A new limit holds for jobs that wait already; what runs goes on."""
    return await tenant.queues.configure(
        name, policy=data.policy, max_run_time=data.max_run_time, concurrency=data.concurrency,
        concurrency_per_key=data.concurrency_per_key, rate=data.rate, rate_burst=data.rate_burst,
        max_depth=data.max_depth, history=data.history, must_exist=not new,
    )  # fmt: skip


class ShareWeight(msgspec.Struct, forbid_unknown_fields=True):
    """The weight of a fairness key; null: the default, 1. An empty key: jobs without one."""

    key: Annotated[str, Meta(max_length=255)]
    weight: Annotated[float, Meta(ge=0.000001, le=1_000_000)] | None


@get("/v1/queues/{name:str}/shares", policy=VIEWER, summary="List the shares of a fair queue")
async def list_shares(tenant: TenantDep, name: QueueName) -> ShareList:
    """`served`: the seconds in which jobs of the key have run, since it last had none for a minute."""
    return ShareList(await tenant.queues.shares(name))


@put("/v1/queues/{name:str}/shares", policy=OPERATOR, summary="Set the weight of a fairness key")
async def set_weight(tenant: TenantDep, name: QueueName, data: JSONBody[ShareWeight]) -> ShareList:
    await tenant.queues.get(name)
    await tenant.queues.set_weight(name, data.key, data.weight)
    return ShareList(await tenant.queues.shares(name))


@get(
    "/v1/queues/{name:str}/service", policy=VIEWER,
    summary="Get the service of a fair queue's shares in the last hour",
)  # fmt: skip
async def list_service(tenant: TenantDep, name: QueueName) -> ShareServiceList:
    """Seconds in which the jobs of each fairness key ran, by minute. The twelve that were served most;
    a null key: all others."""
    await tenant.queues.get(name)
    return ShareServiceList(await tenant.queues.service(name))


@post(
    "/v1/queues/{name:str}/undo/{entry:int}", policy=OPERATOR, summary="Undo a change of a queue",
    status_code=200,
)  # fmt: skip
async def undo_queue(tenant: TenantDep, name: QueueName, entry: FromPath[int]) -> QueueStatus:
    """Undo a pause, a resume, or a change of a setting or weight, unless it was changed again.

    `entry`: the change's id in the audit log."""
    return await tenant.queues.undo(name, entry)


@get("/v1/limits", policy=VIEWER, summary="List limits that are in use")
async def list_limits(tenant: TenantDep) -> LimitList:
    """`waiting`: the groups of jobs with the same keys that wait for a place."""
    return LimitList(await tenant.queues.limits())


@get("/v1/limits/holders", policy=VIEWER, summary="List jobs that run under a limit")
async def list_holders(
    tenant: TenantDep, name: Annotated[str, QueryParameter(min_length=1, max_length=1000)]
) -> HolderList:
    return HolderList(await tenant.queues.holders(name))


ROUTES = [
    list_queues, get_queue, set_queue, pause_queue, resume_queue, list_shares, set_weight,
    list_service, undo_queue, list_limits, list_holders,
]  # fmt: skip
