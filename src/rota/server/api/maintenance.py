"""REST routes of maintenance windows."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from litestar import delete, get, put
from litestar.params import JSONBody, PathParameter
from msgspec import Meta

from rota.client.wire import MaintenanceList
from rota.model import MaintenanceWindow
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest, TenantDep

WindowName = Annotated[str, PathParameter(max_length=100)]


class WindowDefinition(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`for`: how long, such as 30m or 4h, 31 days at most; `start`: now without one; `kinds`: of events,
    none named: all, and alerts; `note`: for others."""

    time: Annotated[str, Meta(max_length=40)] = msgspec.field(name="for")
    start: Annotated[datetime, Meta(tz=True)] | None = None
    kinds: Annotated[list[Annotated[str, Meta(max_length=40)]], Meta(max_length=50)] = []
    note: Annotated[str, Meta(max_length=500)] = ""


@get("/v1/maintenance", policy=VIEWER, summary="List maintenance windows")
async def list_windows(tenant: TenantDep) -> MaintenanceList:
    """Open ones, planned ones, and those that ended within a day."""
    return MaintenanceList(await tenant.maintenance.list())


@get("/v1/maintenance/{name:str}", policy=VIEWER, summary="Get a maintenance window")
async def get_window(tenant: TenantDep, name: WindowName) -> MaintenanceWindow:
    return await tenant.maintenance.get(name)


@put("/v1/maintenance/{name:str}", policy=OPERATOR, summary="Define a maintenance window")
async def put_window(
    tenant: TenantDep, request: RotaRequest, name: WindowName, data: JSONBody[WindowDefinition]
) -> MaintenanceWindow:
    """People are told of no events until it has ended. With `If-Match: *` only a window that exists is
    changed."""
    if request.headers.get("if-match") == "*":
        await tenant.maintenance.get(name)
    return await tenant.maintenance.put(
        name, start=data.start, time=data.time, kinds=data.kinds, note=data.note
    )


@delete(
    "/v1/maintenance/{name:str}",
    policy=OPERATOR,
    summary="End a maintenance window",
    status_code=200,
)
async def delete_window(tenant: TenantDep, name: WindowName) -> MaintenanceWindow:
    """Also one that is only planned."""
    return await tenant.maintenance.delete(name)


ROUTES = [list_windows, get_window, put_window, delete_window]
