"""The coming week: the load of schedules against the slots of the workers, hour by hour."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import msgspec

from rota.core.time.week import HourAhead
from rota.core.time.zones import zone as zone_of
from rota.server.dashboard import pages
from rota.server.dashboard.words import plural, span
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest, TenantDep

_LEVELS = (0.0, 0.1, 0.4, 0.8)  # shares of the slots, for the strength of a colour


class Cell(msgspec.Struct, frozen=True):
    href: str
    level: int
    text: str
    title: str
    over: bool


class Row(msgspec.Struct, frozen=True):
    """A day, in the user's zone."""

    day: date
    cells: Sequence[Cell | None]
    runs: float


@pages.page("/forecast", policy=VIEWER)
async def show_forecast(request: RotaRequest, tenant: TenantDep) -> pages.Html:
    zone = zone_of(pages.zone_name(request))
    week = await tenant.schedules.coming_week(zone)
    here = pages.Here(request)
    by_day: dict[date, dict[int, HourAhead]] = {}
    for hour in week.hours:
        local = hour.at.astimezone(zone)
        by_day.setdefault(local.date(), {})[local.hour] = hour
    rows = [_row(day, hours, here) for day, hours in sorted(by_day.items())]
    worst = sorted((one for one in week.hours if one.wait >= 1), key=lambda one: -one.wait)[:8]
    return await pages.show(
        request, "forecast.html", week=week, rows=rows, worst=worst, zone=zone.key,
        how=[pages.Copyable(
            "Forecast the coming days", cli=pages.cli("schedules", "forecast"),
            python="await app.schedules.forecast()",
        )],
    )  # fmt: skip


def _row(day: date, hours: dict[int, HourAhead], here: pages.Here) -> Row:
    cells = [_cell(day, n, hours[n], here) if n in hours else None for n in range(24)]
    return Row(day, cells, sum(one.runs for one in hours.values()))


def _cell(day: date, hour: int, one: HourAhead, here: pages.Here) -> Cell:
    told = [plural(round(one.runs + 0.49), "run"), f"{one.busy:.0%} of the slots"]
    if one.wait >= 1:
        told.append(f"waits up to {span(one.wait)}")
    if one.names:
        told.append("most: " + ", ".join(one.names))
    level = sum(one.busy > share for share in _LEVELS) if one.runs else 0
    return Cell(
        here.url("/calendar", view="week", day=day), min(level, 4),
        f"{one.busy:.0%}" if one.busy >= 0.005 else ("·" if one.runs else ""),
        f"{day:%a %-d %b} {hour:02}:00: {'; '.join(told)}", one.wait >= 1,
    )  # fmt: skip


ROUTES = [show_forecast]
