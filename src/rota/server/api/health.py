"""REST routes about the state of the installation: health, metrics and nodes."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, HeaderParameter, QueryParameter

from rota.client.wire import NodeList, ShardList
from rota.errors import RotaError, SchemaMismatch, StoreUnavailable
from rota.model import NodeStatus
from rota.observe import Metrics, shared_metrics
from rota.server.context import ServerContext
from rota.server.policy import OPERATOR, PUBLIC, VIEWER
from rota.server.requests import ContextDep, PrincipalDep, TenantDep
from rota.store.migrate import check_schema, pending_names
from rota.store.quotas import QuotaStore


class Health(msgspec.Struct):
    status: str


class Check(msgspec.Struct):
    """A condition of readiness."""

    name: str
    ok: bool
    reason: str = ""


class Readiness(msgspec.Struct):
    """The server is ready when all checks are ok."""

    ready: bool
    checks: list[Check]


@get("/healthz", policy=PUBLIC, summary="Check that the server answers")
async def healthz() -> Health:
    """Answer without asking the database."""
    return Health("ok")


_NOT_READY = ResponseSpec(
    data_container=Readiness,
    description="Not ready; the checks have the reasons",
    generate_examples=False,
)


@get(
    "/readyz", policy=PUBLIC, summary="Check that jobs will be run", responses={503: _NOT_READY}
)  # fmt: skip
async def readyz(context: ContextDep) -> Response[Readiness]:
    """Answer 200 if a job that is submitted now will be run, else 503 with the reasons."""
    checks = await check_readiness(context)
    ready = all(check.ok for check in checks)
    return Response(Readiness(ready, checks), status_code=200 if ready else 503)


async def check_readiness(context: ServerContext) -> list[Check]:
    """Return what a job needs to be run, and whether it is there."""
    checks = [await _check_database(context)]
    if checks[0].ok:
        checks += [await _check_schema(context), *await _check_nodes(context)]
    return checks


async def _check_database(context: ServerContext) -> Check:
    try:
        await context.database.fetchval("now")
    except RotaError:
        return Check("database", False, "the database can't be reached")
    return Check("database", True)


async def _check_schema(context: ServerContext) -> Check:
    schema = context.settings.schema
    try:
        async with context.database.connection() as connection:
            await check_schema(connection, schema)
            waiting = await pending_names(connection, schema, include_post=False)
    except SchemaMismatch:
        return Check("schema", False, "the schema doesn't fit this release: run `rota migrate`")
    except StoreUnavailable:
        return Check("schema", False, "the database can't be reached")
    if waiting:
        return Check("schema", False, f"run `rota migrate` to apply: {', '.join(waiting)}")
    return Check("schema", True)


async def _check_nodes(context: ServerContext) -> list[Check]:
    try:
        schedulers, workers = await QuotaStore(context.database).readiness()
    except StoreUnavailable:
        return [Check("nodes", False, "the database can't be reached")]
    return [
        Check("scheduler", schedulers > 0, "" if schedulers else "no scheduler is alive"),
        Check("worker", workers > 0, "" if workers else "no worker is alive"),
    ]


@get("/metrics", policy=VIEWER, summary="Stats for Prometheus", media_type="text/plain")
async def metrics(
    context: ContextDep,
    principal: PrincipalDep,
    accept: Annotated[str | None, HeaderParameter(name="Accept", required=False)] = None,
) -> Response[bytes]:
    """Return the metrics of the namespace; for admins of all namespaces those of all, and of the shards.

    The database is queried at most every few seconds.
    """
    known = shared_metrics.get(context.app)
    if known is None:
        known = shared_metrics[context.app] = Metrics(context.database)
    namespace = None if principal.everywhere else principal.namespace
    body, content_type = await known.render(accept or "", namespace)
    return Response(body, headers={"Content-Type": content_type})


@get("/v1/nodes", policy=VIEWER, summary="List nodes")
async def list_nodes(
    tenant: TenantDep,
    ended: Annotated[
        bool, QueryParameter(description="Also nodes that ended within the last day.")
    ] = False,
) -> NodeList:
    shards = await tenant.nodes.shards()
    unowned = sum(shard.owner is None for shard in shards)
    return NodeList(await tenant.nodes.list(ended=ended), len(shards), unowned)


@get("/v1/nodes/{node_id:uuid}", policy=VIEWER, summary="Get a node")
async def get_node(tenant: TenantDep, node_id: FromPath[UUID]) -> NodeStatus:
    return await tenant.nodes.get(node_id)


@get("/v1/shards", policy=VIEWER, summary="List shards, their owners, and recent takeovers")
async def list_shards(
    context: ContextDep,
    tenant: TenantDep,
    principal: PrincipalDep,
    hours: Annotated[float, QueryParameter(ge=0, le=168, description="Of takeovers.")] = 24,
) -> ShardList:
    """A takeover is a scheduler that became the owner of shards; they are kept for a week. They and the
    owners of other namespaces are shown to who has a role in all namespaces."""
    if not principal.everywhere:
        return ShardList(await tenant.nodes.shards(), [])
    nodes = context.app.nodes
    return ShardList(await nodes.shards(), await nodes.takeovers(hours * 3600))


@post("/v1/nodes/{node_id:uuid}/drain", policy=OPERATOR, summary="Drain a node", status_code=200)
async def drain_node(tenant: TenantDep, node_id: FromPath[UUID]) -> NodeStatus:
    """Let it start no more jobs. What runs there ends. It learns of it with its next heartbeat."""
    return await tenant.nodes.drain(node_id)


@post(
    "/v1/nodes/{node_id:uuid}/undrain", policy=OPERATOR, summary="Undrain a node", status_code=200
)
async def undrain_node(tenant: TenantDep, node_id: FromPath[UUID]) -> NodeStatus:
    return await tenant.nodes.undrain(node_id)


@post("/v1/nodes/{node_id:uuid}/stop", policy=OPERATOR, summary="Stop a node", status_code=200)
async def stop_node(tenant: TenantDep, node_id: FromPath[UUID]) -> NodeStatus:
    """Let it drain and end its process, as SIGTERM does."""
    return await tenant.nodes.stop(node_id)


ROUTES = [
    healthz, readyz, metrics, list_nodes, get_node, drain_node, undrain_node, stop_node, list_shards,
]  # fmt: skip
