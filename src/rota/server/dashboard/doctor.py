"""The page of the check-up: what `rota doctor` finds, as this server sees it."""

from __future__ import annotations

from rota.operations.doctor import examine
from rota.server.dashboard.pages import Copyable, Html, cli, curl, page, show
from rota.server.policy import EVERYWHERE
from rota.server.requests import ContextDep, RotaRequest

_ORDER = ("problem", "warning", "ok")


@page("/doctor", policy=EVERYWHERE)
async def show_doctor(request: RotaRequest, context: ContextDep) -> Html:
    diagnosis = await examine(context.database, context.settings)
    findings = sorted(diagnosis.findings, key=lambda each: _ORDER.index(each.level))
    return await show(
        request, "doctor.html", findings=findings, healthy=diagnosis.healthy,
        how=[Copyable("Check the installation", cli=cli("doctor"), curl=curl("GET", "/v1/doctor"))],
    )  # fmt: skip


ROUTES = [show_doctor]
