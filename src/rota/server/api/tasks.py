"""REST routes of tasks: what they take."""

from __future__ import annotations

from typing import Annotated

from litestar import get
from litestar.params import QueryParameter

from rota.client.wire import TaskList, TaskSignatures
from rota.server.policy import VIEWER
from rota.server.requests import TenantDep

Names = Annotated[
    list[Annotated[str, QueryParameter(max_length=100)]],
    QueryParameter(name="name", description="Repeatable.", min_items=1, max_items=100),
]


@get("/v1/tasks", policy=VIEWER, summary="Get the signatures of tasks")
async def get_tasks(tenant: TenantDep, names: Names) -> TaskList:
    """The names and JSON types of the arguments, by which submits are checked."""
    signatures = await tenant.signatures()
    return TaskList(
        [TaskSignatures(name, await signatures.of(tenant.namespace, name)) for name in names]
    )


ROUTES = [get_tasks]
