"""REST routes of sinks: topics of brokers that events go to."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Response, delete, get, post
from litestar.params import JSONBody, PathParameter
from msgspec import Meta

from rota.client.wire import SinkList
from rota.core.administration import SinkStatus
from rota.server.policy import ADMIN, OPERATOR, VIEWER
from rota.server.requests import TenantDep

SinkName = Annotated[str, PathParameter(max_length=100)]


class SinkRewind(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The position in the stream of events after which they are sent again; null: all that are kept."""

    to: Annotated[str, Meta(min_length=1, max_length=3_000)] | None = None


@get("/v1/sinks", policy=VIEWER, summary="List the sinks")
async def list_sinks(tenant: TenantDep) -> SinkList:
    """List the sinks with their positions, and why one doesn't send if it doesn't."""
    return SinkList(await tenant.sinks.list())


@get("/v1/sinks/{name:str}", policy=VIEWER, summary="Get a sink")
async def get_sink(tenant: TenantDep, name: SinkName) -> SinkStatus:
    return await tenant.sinks.get(name)


@post("/v1/sinks/{name:str}/pause", policy=OPERATOR, summary="Pause a sink", status_code=200)
async def pause_sink(tenant: TenantDep, name: SinkName) -> SinkStatus:
    """Send nothing until it is resumed. Events wait, for as long as events are kept."""
    return await tenant.sinks.pause(name)


@post("/v1/sinks/{name:str}/resume", policy=OPERATOR, summary="Resume a sink", status_code=200)
async def resume_sink(tenant: TenantDep, name: SinkName) -> SinkStatus:
    """Go on where it was paused."""
    return await tenant.sinks.resume(name)


@post("/v1/sinks/{name:str}/rewind", policy=OPERATOR, summary="Rewind a sink", status_code=200)
async def rewind_sink(tenant: TenantDep, name: SinkName, data: JSONBody[SinkRewind]) -> SinkStatus:
    """Send the events after a position again."""
    return await tenant.sinks.rewind(name, data.to)


@delete("/v1/sinks/{name:str}", policy=ADMIN, summary="Remove a sink", status_code=200)
async def remove_sink(tenant: TenantDep, name: SinkName) -> Response[SinkStatus]:
    """Forget a sink and its position. While code declares it, it is made anew."""
    return Response(await tenant.sinks.remove(name))


ROUTES = [
    list_sinks, get_sink, pause_sink, resume_sink, rewind_sink, remove_sink,
]  # fmt: skip
