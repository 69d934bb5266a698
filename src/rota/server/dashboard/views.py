"""Saved views: save the page that is shown, under a name; list and remove them."""

from __future__ import annotations

from rota.server.dashboard import pages
from rota.server.dashboard.forms import Fields
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest, TenantDep


@pages.page("/views", policy=VIEWER)
async def show_views(request: RotaRequest, tenant: TenantDep) -> pages.Html:
    return await pages.show(
        request, "views.html", views=await tenant.views.list(), how=[pages.Copyable(
            "List the views", curl=pages.curl("GET", "/v1/views"), python="await app.views.list()"
        )],
    )  # fmt: skip


@pages.action("/views", policy=VIEWER, on_error="/views")
async def save_view(request: RotaRequest, tenant: TenantDep) -> pages.Back:
    fields = await Fields.of(request)
    address = fields.text("address") or ""
    saved = await tenant.views.save(
        fields.text("name") or "", address, shared=fields.flag("shared")
    )
    whose = "for everybody" if saved.shared else "for you"
    return pages.back(request, saved.address, f"View {saved.name} saved {whose}.")


@pages.action("/views/remove", policy=VIEWER, on_error="/views")
async def remove_view(request: RotaRequest, tenant: TenantDep) -> pages.Back:
    removed = await tenant.views.remove((await Fields.of(request)).text("name") or "")
    return pages.back(request, "/views", f"View {removed.name} removed.")


ROUTES = [show_views, save_view, remove_view]
