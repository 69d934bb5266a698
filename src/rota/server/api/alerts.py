"""REST routes of alerts, of bulk actions on jobs, and of saved views."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from litestar import get, post
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta

from rota.client.wire import AlertList, BulkChangeList, SavedViewList
from rota.model import Alert, BulkChange, SavedView
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import TenantDep

_Key = Annotated[str, Meta(min_length=1, max_length=300)]
_Note = Annotated[str, Meta(max_length=500)]


class Acknowledgement(msgspec.Struct, forbid_unknown_fields=True):
    """`key`: of the alert. `note`: for others who look at it."""

    key: _Key
    note: _Note = ""


class Silence(msgspec.Struct, forbid_unknown_fields=True):
    """`key`: of the alert; `for`: how long, such as 30m or 4h, 31 days at most."""

    key: _Key
    time: Annotated[str, Meta(max_length=40)] = msgspec.field(name="for", default="1h")
    note: _Note = ""


class AlertKey(msgspec.Struct, forbid_unknown_fields=True):
    key: _Key


@get("/v1/alerts", policy=VIEWER, summary="List alerts: what needs attention now")
async def list_alerts(
    tenant: TenantDep,
    active: Annotated[
        bool, QueryParameter(description="Without those that are acknowledged or silenced.")
    ] = False,
) -> AlertList:
    """Each with its `remedies`: what somebody can do about it."""
    return AlertList(await tenant.alerts.list(active=active))


@post("/v1/alerts:acknowledge", policy=OPERATOR, summary="Acknowledge an alert", status_code=200)
async def acknowledge_alert(tenant: TenantDep, data: JSONBody[Acknowledgement]) -> Alert:
    """An acknowledgement covers what has happened so far: the next occurrence makes the alert active."""
    return await tenant.alerts.acknowledge(data.key, note=data.note)


@post("/v1/alerts:silence", policy=OPERATOR, summary="Silence an alert", status_code=200)
async def silence_alert(tenant: TenantDep, data: JSONBody[Silence]) -> Alert:
    """A silence covers everything until its end."""
    return await tenant.alerts.silence(data.key, data.time, note=data.note)


@post("/v1/alerts:restore", policy=OPERATOR, summary="Restore an alert", status_code=204)
async def restore_alert(tenant: TenantDep, data: JSONBody[AlertKey]) -> None:
    """Forget that it was acknowledged or silenced."""
    await tenant.alerts.restore(data.key)


@get("/v1/jobs/changes", policy=VIEWER, summary="List bulk actions on jobs")
async def list_changes(tenant: TenantDep) -> BulkChangeList:
    """The newest twenty, with the states of their jobs now. They are kept for a week."""
    return BulkChangeList(await tenant.bulk.list())


@get("/v1/jobs/changes/{change_id:uuid}", policy=VIEWER, summary="Get a bulk action")
async def get_change(tenant: TenantDep, change_id: FromPath[UUID]) -> BulkChange:
    """`sentence` says what became of its jobs, `states` counts them."""
    return await tenant.bulk.get(change_id)


@post(
    "/v1/jobs/changes/{change_id:uuid}/undo", policy=OPERATOR, summary="Undo a bulk action",
    status_code=200,
)  # fmt: skip
async def undo_change(tenant: TenantDep, change_id: FromPath[UUID]) -> BulkChange:
    """Brings back the jobs that are still as the action left them: cancelled ones that had not started,
    retried ones that no node has claimed, discarded ones. It can be done once."""
    return await tenant.bulk.undo(change_id)


class ViewBody(msgspec.Struct, forbid_unknown_fields=True):
    """`address`: a path of the dashboard with its query; `shared`: show it to everybody."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    address: Annotated[str, Meta(min_length=1, max_length=2000)]
    shared: bool = False


class ViewName(msgspec.Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1, max_length=100)]


@get("/v1/views", policy=VIEWER, summary="List saved views of the dashboard")
async def list_views(tenant: TenantDep) -> SavedViewList:
    """One's own, then those that others share."""
    return SavedViewList(await tenant.views.list())


@post("/v1/views", policy=VIEWER, summary="Save a view", status_code=200)
async def save_view(tenant: TenantDep, data: JSONBody[ViewBody]) -> SavedView:
    """A view of one's own with this name is replaced."""
    return await tenant.views.save(data.name, data.address, shared=data.shared)


@post("/v1/views:remove", policy=VIEWER, summary="Remove a view of one's own", status_code=200)
async def remove_view(tenant: TenantDep, data: JSONBody[ViewName]) -> SavedView:
    return await tenant.views.remove(data.name)


ROUTES = [
    list_alerts, acknowledge_alert, silence_alert, restore_alert, list_changes, get_change,
    undo_change, list_views, save_view, remove_view,
]  # fmt: skip
