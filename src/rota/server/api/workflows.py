"""Workflows: list and read their definitions, and start runs."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import get, post
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Meta

from rota.client.wire import RunStarted, WorkflowList
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import INLINE, Definition
from rota.errors import ConfigError, Conflict
from rota.lib import tracing
from rota.model import WorkflowInfo
from rota.server.calculation import compute_change
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


class WorkflowSet(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Workflows to store, as `GET /v1/workflows/{name}` has their definitions, and names of others to
    retire."""

    definitions: Annotated[list[Definition], Meta(max_length=1000)] = []
    retire: Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(max_length=1000)] = []


@post("/v1/workflows:apply", policy=OPERATOR, summary="Apply many workflows", status_code=200)
async def apply_workflows(tenant: TenantDep, data: JSONBody[WorkflowSet]) -> WorkflowList:
    """Store all of them in one transaction, or none. A changed workflow is a new version; runs that have
    started stay with theirs."""
    stored = {each.name: each for each in await tenant.workflows.list()}
    for each in data.definitions:
        if each.code_version is not None or each.name.startswith(INLINE):
            raise ConfigError(f"workflow {each.name!r} can only be declared in code")
        known = stored.get(each.name)
        if known is not None and known.source == "code" and known.retired_at is None:
            raise Conflict(
                f"workflow {each.name!r} is declared in code: change it there, or give this one "
                "another name", subject=each.name,
            )  # fmt: skip
    graphs = await compute_change(lambda _: [Graph(each) for each in data.definitions])
    await tenant.workflows.put_all(graphs, retire=data.retire, source="file")
    return WorkflowList([await tenant.workflows.get(each.name) for each in data.definitions])


ROUTES = [
    list_workflows, get_workflow, start_run, retire_workflow, restore_workflow, apply_workflows,
]  # fmt: skip
