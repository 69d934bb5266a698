"""Whether the server is there (`/healthz`), and whether jobs will be run (`/readyz`)."""

from __future__ import annotations

import msgspec
from litestar import Response, get
from litestar.openapi.datastructures import ResponseSpec

from rota.errors import RotaError, SchemaMismatch, StoreUnavailable
from rota.server.context import ServerContext
from rota.server.dependencies import ContextDep
from rota.server.policy import PUBLIC
from rota.store.migrate import check_schema, pending_names
from rota.store.quotas import QuotaStore


class Health(msgspec.Struct):
    status: str


class Check(msgspec.Struct):
    """One thing that has to be so."""

    name: str
    ok: bool
    reason: str = ""


class Readiness(msgspec.Struct):
    """Ready when all of it is."""

    ready: bool
    checks: list[Check]


@get("/healthz", policy=PUBLIC, summary="Whether the server is there")
async def healthz() -> Health:
    """Answers as long as the process does. It asks nothing of the database."""
    return Health("ok")


_NOT_READY = ResponseSpec(
    data_container=Readiness, description="Not ready, and why", generate_examples=False
)


@get(
    "/readyz", policy=PUBLIC, summary="Whether jobs will be run", responses={503: _NOT_READY}
)  # fmt: skip
async def readyz(context: ContextDep) -> Response[Readiness]:
    """200 when a job submitted now will be run; else 503, with the reasons."""
    checks = [await _check_database(context)]
    if checks[0].ok:
        checks += [await _check_schema(context), *await _check_nodes(context)]
    ready = all(check.ok for check in checks)
    return Response(Readiness(ready, checks), status_code=200 if ready else 503)


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


ROUTES = (healthz, readyz)
