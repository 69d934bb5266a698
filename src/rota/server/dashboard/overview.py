"""The first page: alerts, the last hour, and the coming hour."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from litestar.params import QueryParameter

from rota.model import Count, RunStats
from rota.operations.rota import Rota
from rota.operations.schedule_forecasts import ComingSchedule
from rota.operations.statistics import WITHIN
from rota.server.dashboard import charts
from rota.server.dashboard.alerts import SILENCES, shown_alerts
from rota.server.dashboard.pages import Here, Html, page, show
from rota.server.dashboard.tasks import draw
from rota.server.dashboard.words import number, plural, rate
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.store.dashboard import DashboardStore

_HOUR = timedelta(hours=1)
_ROWS = 12


class Row(msgspec.Struct, frozen=True):
    """The coming hour of a schedule."""

    name: str
    count: int
    more: bool
    next_due: datetime
    ticks: str


@page("/", policy=VIEWER)
async def overview(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep,
    within: Annotated[str, QueryParameter(max_length=10)] = "1h",
) -> Html:  # fmt: skip
    now = await (await tenant.store()).now()
    # One after the other: at the same time, each would take a connection from other requests.
    ready, lags = await stats.ready(), await stats.lags()
    runs = await tenant.statistics.all(within)
    shards = await tenant.nodes.shards()
    alerts, quiet = await shown_alerts(tenant, Here(request))
    return await show(
        request, "overview.html", now=now, alerts=alerts, quiet=quiet, silences=SILENCES, ready=ready,
        oldest=max(lags.values(), default=None),
        nodes=await stats.node_totals(),
        runs=runs, trends=_trends(runs, await tenant.statistics.before(within)),
        within=within, withins=[*WITHIN], rate=_rate(runs), **draw(runs, Here(request)),
        coming=await _coming(tenant, stats, now, len(shards)),
        schedules=await stats.schedule_count(1), dead=await stats.recent_dead(5),
    )  # fmt: skip


class Trend(msgspec.Struct, frozen=True):
    """The difference of a number from that of the same time before."""

    text: str
    kind: str = ""  # better, worse


def _trends(runs: RunStats, before: tuple[int, int]) -> dict[str, Trend]:
    found = {}
    for name, now, then in (("runs", runs.runs, before[0]), ("failed", runs.failed, before[1])):
        if not then:
            continue
        share = (now - then) / then
        if abs(share) < 0.005:
            continue
        arrow = "▲" if share > 0 else "▼"
        kind = (
            ("worse" if share > 0 else "better") if name == "failed" and abs(share) >= 0.1 else ""
        )
        change = f"{abs(share):.0%}" if share < 2 else f"{now / then:,.0f}-fold"
        found[name] = Trend(f"{arrow} {change}", kind)
    return found


def _rate(runs: RunStats) -> str:
    """Return the rate of the last periods that are over."""
    lately = runs.periods[-6:-1]
    return rate(sum(one.runs for one in lately) / (runs.step * max(len(lately), 1)))


class ComingHour(msgspec.Struct, frozen=True):
    rows: Sequence[Row]
    more: int  # schedules that have no row
    ticks: str  # of delayed jobs
    delayed_count: Count


async def _coming(tenant: Rota, stats: DashboardStore, now: datetime, shards: int) -> ComingHour:
    until = now + _HOUR
    delayed = await stats.coming_jobs(now, until, shards)
    coming, total = await tenant.schedules.coming(until, _ROWS)
    rows = [_row(one, now) for one in coming]
    count = Count(sum(delayed.by_minute.values()), delayed.exact)
    ticks = charts.ticks(
        [_share(minute, now) for minute in sorted(delayed.by_minute)],
        f"{number(count)} delayed jobs are due in the coming hour", "idle",
    )  # fmt: skip
    return ComingHour(rows, total - len(rows), ticks, count)


def _row(one: ComingSchedule, now: datetime) -> Row:
    label = f"{one.name}: {plural(len(one.moments), 'occurrence')} in the coming hour"
    ticks = charts.ticks([_share(moment, now) for moment in one.moments], label)
    return Row(one.name, len(one.moments), not one.exact, one.moments[0], ticks)


def _share(moment: datetime, now: datetime) -> float:
    return max((moment - now) / _HOUR, 0.0)


ROUTES = [overview]
