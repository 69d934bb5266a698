"""Tasks: what nodes have registered of them."""

from __future__ import annotations

from typing import Annotated

from litestar import get
from litestar.params import PathParameter, QueryParameter

from rota.client.wire import SignatureList, TaskList, TaskSignatures
from rota.model import RunStats, TaskInfo
from rota.server.policy import VIEWER
from rota.server.requests import TenantDep

TaskName = Annotated[str, PathParameter(max_length=100)]
_MOST = 1_000


@get("/v1/tasks", policy=VIEWER, summary="List the tasks that nodes have registered")
async def list_tasks(tenant: TenantDep) -> TaskList:
    """`arguments` and `returns` are JSON Schemas."""
    return TaskList(await tenant.registry.list(limit=_MOST))


@get("/v1/tasks/{name:str}", policy=VIEWER, summary="Get a registered task")
async def get_task(tenant: TenantDep, name: TaskName) -> TaskInfo:
    return await tenant.registry.get(name)


Names = Annotated[
    list[Annotated[str, QueryParameter(max_length=100)]],
    QueryParameter(name="name", description="Repeatable.", min_items=1, max_items=100),
]


@get("/v1/tasks:signatures", policy=VIEWER, summary="Get what tasks take")
async def get_signatures(tenant: TenantDep, names: Names) -> SignatureList:
    """The arguments' names and types, by which submits are checked; null: nobody knows the task."""
    signatures = await tenant.signatures()
    return SignatureList(
        [TaskSignatures(name, await signatures.of(tenant.namespace, name)) for name in names]
    )


@get("/v1/tasks/{name:str}/stats", policy=VIEWER, summary="Get statistics of a task's runs")
async def get_task_stats(
    tenant: TenantDep, name: TaskName,
    within: Annotated[
        str, QueryParameter(description="15m, 1h, 6h, 24h, 7d or 30d.", max_length=10)
    ] = "1h",
) -> RunStats:  # fmt: skip
    """Runs, failures, quantiles of duration and start lag, by period. Also of tasks that no node has."""
    return await tenant.statistics.task(name, within)


ROUTES = [list_tasks, get_task, get_signatures, get_task_stats]
