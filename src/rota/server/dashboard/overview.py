"""The first page: alerts, the last hour, and the coming hour."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from litestar.params import QueryParameter

from rota.model import Count, NodeStatus, RunStats, ShardStatus
from rota.operations.rota import Rota
from rota.operations.schedule_forecasts import ComingSchedule
from rota.operations.statistics import WITHIN
from rota.server.dashboard import charts
from rota.server.dashboard.pages import Here, Html, page, show
from rota.server.dashboard.tasks import draw
from rota.server.dashboard.words import number, plural, rate, span
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.store.dashboard import DashboardStore, QueueNow

_HOUR = timedelta(hours=1)
_ROWS = 12
_LATE = 60.0
_NAMED = 10
_KINDS = {
    "late": ("job", "started late"),
    "slow": ("job", "took unusually long"),
    "slower": ("task", "became consistently slower"),
    "timed_out": ("job", "stopped after a timeout"),
    "deadline_missed": ("job", "missed the deadline"),
    "missed": ("occurrence", "missed"),
    "run_failed": ("run", "failed"),
    "run_late": ("run", "missed the deadline"),
    "run_parked": ("run", "paused because the code contradicts the history"),
    "overran": ("occurrence", "skipped because the previous run was not over"),
}


class Alert(msgspec.Struct, frozen=True):
    """A problem (`bad`) or a warning (`warn`), with a link."""

    kind: str
    text: str
    path: str
    word: str
    at: datetime | None = None
    ended: str | None = None  # a parameter of the page of the cluster


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
    queues = await stats.queues()
    nodes = await tenant.nodes.list(ended=True)
    runs = await tenant.statistics.all(within)
    failed = await stats.failed(now - _HOUR)
    shards = await tenant.nodes.shards()
    alerts = [*_of_nodes(nodes), *_of_shards(shards), *_of_schedules(await stats.set_aside())]
    alerts += _alerts(queues, sum(failed.values()), await stats.events(now - _HOUR))
    return await show(
        request, "overview.html", now=now, alerts=alerts, queues=queues,
        live=[node for node in nodes if node.state in ("live", "draining")],
        runs=runs, within=within, withins=[*WITHIN], rate=_rate(runs), **draw(runs, Here(request)),
        coming=await _coming(tenant, stats, now, len(shards)),
        schedules=await stats.schedule_count(), dead=await stats.recent_dead(5),
    )  # fmt: skip


def _alerts(queues: Sequence[QueueNow], failed: int, events: Sequence[Any]) -> list[Alert]:
    found: list[Alert] = []
    if failed:
        text = f"{plural(failed, 'job')} failed in the last hour"
        found.append(Alert("bad", text, "/dead", "See why"))
    for queue in queues:
        if queue.paused_at is not None:
            held = f", {plural(queue.ready, 'job')} in it" if queue.ready.value else ""
            text = f"Queue {queue.name} is paused{held}"
            found.append(Alert("warn", text, "/queues", "Queues", queue.paused_at))
        elif queue.lag is not None and queue.lag > _LATE:
            text = f"Queue {queue.name} is late by {span(queue.lag)}, {plural(queue.ready, 'job')} ready"
            found.append(Alert("bad", text, "/queues", "Queues"))
    for row in events:
        if row["kind"] in _KINDS:
            noun, what = _KINDS[row["kind"]]
            text = f"{plural(row['count'], noun)} {what}, the latest of {row['task']}"
            path, word = "/schedules", "Schedules"
            if row["kind"] == "slower":
                path, word = "/jobs", "Jobs"
            if row["kind"].startswith("run_"):
                path, word = "/runs", "Runs"
            if row["job_id"] is not None:
                path, word = f"/jobs/{row['job_id']}", "The latest"
            found.append(Alert("warn", text, path, word, row["last_at"]))
    return found


def _of_schedules(names: Sequence[str]) -> list[Alert]:
    if not names:
        return []
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    text = f"{plural(len(names), 'schedule')} can't be planned: {', '.join(names[:_NAMED])}{more}"
    return [Alert("bad", text, "/schedules", "Schedules")]


def _of_nodes(nodes: Sequence[NodeStatus]) -> list[Alert]:
    found = []
    if not any("worker" in node.roles for node in nodes if node.state in ("live", "draining")):
        found.append(Alert("bad", "No worker is alive to run jobs", "/cluster", "Cluster"))
    for state, kind in (("dead", "bad"), ("silent", "warn")):
        recent = [node for node in nodes if node.state == state and node.heartbeat_age < 3600]
        if recent:
            names = ", ".join(sorted({node.name for node in recent})[:3])
            what = "died" if state == "dead" else "went silent"
            text = f"{plural(len(recent), 'node')} {what}: {names}"
            ended = "yes" if state == "dead" else None
            found.append(Alert(kind, text, "/cluster", "Cluster", ended=ended))
    return found


def _of_shards(shards: Sequence[ShardStatus]) -> list[Alert]:
    """Return an alert for shards without an owner: schedulers work for all namespaces."""
    free = sum(shard.owner is None for shard in shards)
    if not free:
        return []
    text = f"{plural(free, 'shard')} of {len(shards)} have no scheduler"
    if free == len(shards):
        text = "No scheduler is alive to release jobs and to fire schedules"
    return [Alert("bad", text, "/cluster", "Cluster")]


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
