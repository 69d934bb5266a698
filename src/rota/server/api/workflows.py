"""Workflows: list and read their definitions, and start runs."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Meta

from rota.client.wire import RunStarted, WorkflowList
from rota.lib import tracing
from rota.model import WorkflowInfo
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest, TenantDep

WorkflowName = Annotated[str, PathParameter(max_length=100)]


@get("/v1/workflows", policy=VIEWER, summary="List workflows, each in its newest version")
async def list_workflows(tenant: TenantDep) -> WorkflowList:
    """`running`: how many runs have not ended."""
    return WorkflowList(await tenant.workflows.list())


@get("/v1/workflows/{name:str}", policy=VIEWER, summary="Get a workflow")
async def get_workflow(
    tenant: TenantDep, name: WorkflowName,
    version: Annotated[int | None, QueryParameter(ge=1, le=2**31 - 1)] = None,
) -> WorkflowInfo:  # fmt: skip
    """The newest version, unless another is asked for."""
    return await tenant.workflows.get(name, version)


class NewRunRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A run to be started."""

    input: Annotated[dict[str, Any], Meta(description="The values that steps read, by name.")] = {}
    key: (
        Annotated[str, Meta(min_length=1, max_length=255, description="Idempotency key.")] | None
    ) = None
    version: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    priority: Annotated[int, Meta(ge=-1000, le=1000)] | None = None
    deadline: (
        Annotated[float, Meta(gt=0, lt=1e9, description="Seconds after its start.")] | None
    ) = None


@post("/v1/workflows/{name:str}/runs", policy=OPERATOR, summary="Start a run")
async def start_run(
    request: RotaRequest, tenant: TenantDep, name: WorkflowName, data: JSONBody[NewRunRequest]
) -> RunStarted:
    """With a key, the same key and input give the same run back, and `existed` is true."""
    run = await tenant.runs.start(
        name, data.input, version=data.version, key=data.key, priority=data.priority,
        deadline=data.deadline, headers=tracing.incoming(request.headers),
    )  # fmt: skip
    return RunStarted(run.id, name, run.existed)


@post(
    "/v1/workflows/{name:str}/retire", policy=OPERATOR, summary="Retire a workflow", status_code=200
)
async def retire_workflow(tenant: TenantDep, name: WorkflowName) -> WorkflowInfo:
    """No further runs start. Those under way go on."""
    return await tenant.workflows.retire(name)


@post(
    "/v1/workflows/{name:str}/restore", policy=OPERATOR, summary="Restore a retired workflow",
    status_code=200,
)  # fmt: skip
async def restore_workflow(tenant: TenantDep, name: WorkflowName) -> WorkflowInfo:
    return await tenant.workflows.retire(name, retired=False)


ROUTES = [list_workflows, get_workflow, start_run, retire_workflow, restore_workflow]
