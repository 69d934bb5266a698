"""The pages of bulk actions: their progress, what became of their jobs, and their undo."""

from __future__ import annotations

from uuid import UUID

from litestar.params import FromPath

from rota.server.dashboard import pages
from rota.server.dashboard.words import plural
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest, TenantDep

_SHOWN = 50


@pages.page("/jobs/changes", policy=VIEWER)
async def show_changes(request: RotaRequest, tenant: TenantDep) -> pages.Html:
    return await pages.show(
        request, "changes.html", changes=await tenant.bulk.list(), how=[pages.Copyable(
            "List the bulk actions", cli=pages.cli("jobs", "changes"),
            curl=pages.curl("GET", "/v1/jobs/changes"), python="await app.bulk.list()",
        )],
    )  # fmt: skip


@pages.page("/jobs/changes/{change_id:uuid}", policy=VIEWER)
async def show_change(
    request: RotaRequest, tenant: TenantDep, change_id: FromPath[UUID]
) -> pages.Html:
    change = await tenant.bulk.get(change_id)
    ids = await tenant.bulk.jobs(change_id, _SHOWN)
    jobs = await (await tenant.store()).get_jobs(tenant.namespace, ids)
    return await pages.show(
        request, "change.html", change=change, jobs=jobs, more=change.jobs - len(jobs),
        how=[
            pages.Copyable("Show this action", curl=pages.curl("GET", f"/v1/jobs/changes/{change_id}")),
            pages.Copyable(
                "Undo it", cli=pages.cli("jobs", "undo", change_id),
                curl=pages.curl("POST", f"/v1/jobs/changes/{change_id}/undo"),
            ),
        ],
    )  # fmt: skip


@pages.action(
    "/jobs/changes/{change_id:uuid}/undo", policy=OPERATOR, on_error="/jobs/changes/{change_id}"
)
async def undo_change(
    request: RotaRequest, tenant: TenantDep, change_id: FromPath[UUID]
) -> pages.Back:
    done = await tenant.bulk.undo(change_id)
    back, rest = done.undone or 0, done.jobs - (done.undone or 0)
    text = f"Undone: {plural(back, 'job')} brought back."
    if rest:
        text += f" {plural(rest, 'job')} had moved on, or could not be brought back."
    return pages.back(request, f"/jobs/changes/{change_id}", text)


ROUTES = [show_changes, show_change, undo_change]
