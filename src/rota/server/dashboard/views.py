"""Saved views: save the page that is shown, under a name; list and remove them."""

from __future__ import annotations

from rota.server.dashboard import pages
from rota.server.dashboard.forms import Fields
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep

_ROWS = 50


@pages.page("/views", policy=VIEWER)
async def show_views(request: RotaRequest, stats: StatsDep, skip: pages.Skip = 0) -> pages.Html:
    rows = await stats.views(pages.Here(request).name, skip=skip, most=_ROWS + 1)
    found = pages.part(request, rows, skip, _ROWS)
    return await pages.show(
        request, "views.html", views=found, how=[pages.Copyable(
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
async def remove_view(request: RotaRequest, tenant: TenantDep) -> pages.Back | pages.Html:
    """Ask for confirmation first. With `sure`, remove the view."""
    fields = await Fields.of(request)
    name = fields.text("name") or ""
    if not fields.flag("sure"):
        return await pages.confirm(
            request, f"Remove view {name}?", "Only the name and its filters are removed, no jobs.",
            path="/views/remove", word="Remove the view", fields=[("name", name)],
            target=pages.Here(request).url("/views"),
        )  # fmt: skip
    removed = await tenant.views.remove(name)
    return pages.back(request, "/views", f"View {removed.name} removed.")


ROUTES = [show_views, save_view, remove_view]
