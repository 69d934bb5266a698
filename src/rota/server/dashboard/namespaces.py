"""The page of namespaces and their limits."""

from __future__ import annotations

from litestar.params import FromPath

from rota.server.api.namespaces import LimitsRequest
from rota.server.dashboard.commands import Copyable, cli, curl
from rota.server.dashboard.forms import Fields, Wrong, convert, telling_why
from rota.server.dashboard.pages import Back, Html, action, back, page, show
from rota.server.dependencies import ContextDep, PrincipalDep
from rota.server.policy import EVERYWHERE, VIEWER
from rota.server.requests import RotaRequest


@page("/namespaces", policy=VIEWER)
async def list_namespaces(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep
) -> Html:
    found = await context.installation.namespaces.list(principal)
    own = {name for name in principal.identity.memberships if name != "*"}
    own |= {principal.namespace, context.settings.namespace}
    roles = {
        name: role.label
        for name in own | {one.name for one in found}
        if (role := principal.identity.role_in(name)) is not None
    }
    known = {one.name: one for one in found}
    return await show(
        request, "namespaces.html", namespaces=[(name, known.get(name)) for name in sorted(roles)],
        roles=roles,
        how=Copyable(
            cli=cli("namespaces", "limit", "NAME", "--max-jobs", 100_000),
            curl=curl("PUT", "/v1/namespaces/NAME", {"max_jobs": 100_000}),
        ),
    )  # fmt: skip


@action("/namespaces/{name:str}/limits", policy=EVERYWHERE)
async def set_limits(request: RotaRequest, context: ContextDep, name: FromPath[str]) -> Back:
    """Set all limits at once: a blank field is no limit."""
    fields = await Fields.of(request)
    try:
        with telling_why():
            said = convert(
                {"max_jobs": fields.whole("max_jobs"),
                 "max_payload_bytes": fields.whole("max_payload_bytes"),
                 "submits_per_second": fields.decimal("submits_per_second")},
                LimitsRequest,
            )  # fmt: skip
            await context.installation.namespaces.set_limits(name, said.limits())
    except Wrong as wrong:
        return back(request, "/namespaces", str(wrong), kind="problem")
    return back(request, "/namespaces", f"Limits of {name} set.")


ROUTES = [list_namespaces, set_limits]
