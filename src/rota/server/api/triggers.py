"""REST routes of triggers: messages of a broker that start jobs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import Response, delete, get, post
from litestar.params import JSONBody, PathParameter
from msgspec import Meta

from rota.client.wire import TriggerList
from rota.core.administration import TriggerStatus
from rota.server.policy import ADMIN, OPERATOR, VIEWER
from rota.server.requests import TenantDep

TriggerName = Annotated[str, PathParameter(max_length=100)]


class RewindRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The position of the last message that is left out; null: the beginning of the stream."""

    to: Annotated[str, Meta(min_length=1, max_length=20_000)] | None = None


@get("/v1/triggers", policy=VIEWER, summary="List the triggers")
async def list_triggers(tenant: TenantDep) -> TriggerList:
    """List the triggers with their positions, their lag, and what became of their messages."""
    return TriggerList(await tenant.triggers.list())


@get("/v1/triggers/{name:str}", policy=VIEWER, summary="Get a trigger")
async def get_trigger(tenant: TenantDep, name: TriggerName) -> TriggerStatus:
    return await tenant.triggers.get(name)


@post("/v1/triggers/{name:str}/pause", policy=OPERATOR, summary="Pause a trigger", status_code=200)
async def pause_trigger(tenant: TenantDep, name: TriggerName) -> TriggerStatus:
    """Start no jobs until it is resumed. Its messages wait in the broker."""
    return await tenant.triggers.pause(name)


@post(
    "/v1/triggers/{name:str}/resume", policy=OPERATOR, summary="Resume a trigger", status_code=200
)
async def resume_trigger(tenant: TenantDep, name: TriggerName) -> TriggerStatus:
    """Go on where it was paused."""
    return await tenant.triggers.resume(name)


@post(
    "/v1/triggers/{name:str}/rewind", policy=OPERATOR, summary="Rewind a trigger", status_code=200
)
async def rewind_trigger(
    tenant: TenantDep, name: TriggerName, data: JSONBody[RewindRequest]
) -> TriggerStatus:
    """Go on after another position: messages after it become jobs, also those that did before."""
    return await tenant.triggers.rewind(name, data.to)


@delete("/v1/triggers/{name:str}", policy=ADMIN, summary="Remove a trigger", status_code=200)
async def remove_trigger(tenant: TenantDep, name: TriggerName) -> Response[TriggerStatus]:
    """Forget a trigger and its position. While code declares it, it is made anew."""
    return Response(await tenant.triggers.remove(name))


ROUTES = [
    list_triggers, get_trigger, pause_trigger, resume_trigger, rewind_trigger, remove_trigger,
]  # fmt: skip
