"""Alerts: acknowledge, silence and restore them. The overview shows them."""

from __future__ import annotations

import msgspec

from rota.model import Alert
from rota.operations.rota import Rota
from rota.server.dashboard import pages
from rota.server.dashboard.forms import Fields
from rota.server.dashboard.remedies import Button, buttons
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest, TenantDep

SILENCES = ("1h", "4h", "1d", "7d")


class Shown(msgspec.Struct, frozen=True):
    alert: Alert
    buttons: list[Button]


async def shown_alerts(tenant: Rota, here: pages.Here) -> tuple[list[Shown], list[Shown]]:
    """Return the active alerts, and those that are acknowledged or silenced."""
    found = [Shown(one, buttons(one.remedies, here)) for one in await tenant.alerts.list()]
    return [one for one in found if one.alert.active], [
        one for one in found if not one.alert.active
    ]


@pages.page("/alerts", policy=VIEWER)
async def show_alerts(request: RotaRequest, tenant: TenantDep) -> pages.Html:
    active, quiet = await shown_alerts(tenant, pages.Here(request))
    return await pages.show(
        request, "alerts.html", alerts=active, quiet=quiet, silences=SILENCES, how=[
            pages.Copyable(
                "List the alerts", cli=pages.cli("alerts"), curl=pages.curl("GET", "/v1/alerts"),
                python="await app.alerts.list()",
            ),
        ],
    )  # fmt: skip


@pages.action("/alerts/acknowledge", policy=OPERATOR, on_error="/alerts")
async def acknowledge(request: RotaRequest, tenant: TenantDep) -> pages.Back:
    fields = await Fields.of(request)
    key = fields.text("key") or ""
    await tenant.alerts.acknowledge(key, note=fields.text("note") or "")
    return pages.back(
        request, pages.returning(fields, "/"),
        "Alert acknowledged: it is active again when it happens again.",
    )  # fmt: skip


@pages.action("/alerts/silence", policy=OPERATOR, on_error="/alerts")
async def silence(request: RotaRequest, tenant: TenantDep) -> pages.Back:
    fields = await Fields.of(request)
    time = fields.text("for") or "1h"
    await tenant.alerts.silence(fields.text("key") or "", time, note=fields.text("note") or "")
    return pages.back(request, pages.returning(fields, "/"), f"Alert silenced for {time}.")


@pages.action("/alerts/restore", policy=OPERATOR, on_error="/alerts")
async def restore(request: RotaRequest, tenant: TenantDep) -> pages.Back:
    fields = await Fields.of(request)
    await tenant.alerts.restore(fields.text("key") or "")
    return pages.back(request, pages.returning(fields, "/"), "Alert restored.")


ROUTES = [show_alerts, acknowledge, silence, restore]
