"""The first page: what needs attention, how it went in the last hour, what comes in the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.core.time.calendars import NamedCalendar
from rota.core.time.schedule import compile_schedule
from rota.errors import ConfigError
from rota.model import NodeStatus, ShardStatus
from rota.operations.rota import Rota
from rota.server.calculation import Budget, off_loop
from rota.server.dashboard import charts
from rota.server.dashboard.pages import Html, page, show
from rota.server.dashboard.words import number, plural, rate, span
from rota.server.dependencies import TenantDep
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest
from rota.store.dashboard import Coming, DashboardStore, FinishedMinute, QueueNow
from rota.store.schedules import ScheduleStore, decode_spec
from rota.store.search import Count

_HOUR = timedelta(hours=1)
_MINUTES = 60
_ROWS = 12
_MOMENTS = 120  # of one schedule
_SECONDS = 0.2  # of computing in one request
_LATE = 60.0
_NAMED = 10
_KINDS = {
    "late": ("job", "started late"),
    "slow": ("job", "took unusually long"),
    "slower": ("task", "became consistently slower"),
    "timed_out": ("job", "stopped for taking too long or giving no sign of life"),
    "deadline_missed": ("job", "missed the deadline"),
    "missed": ("occurrence", "missed"),
    "overran": ("occurrence", "left out: the run before was not over"),
}


class Alert(msgspec.Struct, frozen=True):
    """Something that somebody should look at."""

    kind: str  # bad, warn
    text: str
    path: str
    word: str
    at: datetime | None = None


class Past(msgspec.Struct, frozen=True):
    """The last hour in figures and charts."""

    succeeded: Count
    failed: int
    rate: str
    lag: float | None
    bars: str
    curve: str
    most: str
    longest: str


class Row(msgspec.Struct, frozen=True):
    """A schedule's coming hour."""

    name: str
    count: int
    more: bool
    next_due: datetime
    ticks: str


@page("/", policy=VIEWER)
async def overview(request: RotaRequest, tenant: TenantDep) -> Html:
    job_store = await tenant.store()
    now = await job_store.now()
    store = DashboardStore(job_store.database, tenant.namespace)
    # One after the other: together they'd take a connection each from everybody else.
    queues = await store.queues()
    nodes = await tenant.nodes.list(ended=True)
    finished = await store.finished(now - _HOUR, now)
    failed = await store.failed(now - _HOUR)
    shards = await tenant.nodes.shards()
    alerts = [*_of_nodes(nodes), *_of_shards(shards), *_of_schedules(await store.set_aside())]
    alerts += _alerts(queues, sum(failed.values()), await store.events(now - _HOUR))
    return await show(
        request, "overview.html", now=now, alerts=alerts, queues=queues,
        live=[node for node in nodes if node.state in ("live", "draining")],
        past=_past(now, finished, failed), coming=await _coming(tenant, store, now, len(shards)),
        schedules=await store.schedule_count(), dead=await store.recent_dead(5),
    )  # fmt: skip


# -- what needs attention


def _alerts(queues: Sequence[QueueNow], failed: int, events: Sequence[Any]) -> list[Alert]:
    found: list[Alert] = []
    if failed:
        found.append(
            Alert("bad", f"{plural(failed, 'job')} failed in the last hour", "/dead", "See why")
        )
    for queue in queues:
        if queue.paused_at is not None:
            held = f", {plural(queue.ready, 'job')} in it" if queue.ready.value else ""
            found.append(
                Alert(
                    "warn",
                    f"Queue {queue.name} is paused{held}",
                    "/queues",
                    "Queues",
                    queue.paused_at,
                )
            )
        elif queue.lag is not None and queue.lag > _LATE:
            behind = span(queue.lag)
            told = f"Queue {queue.name} is late by {behind}, {plural(queue.ready, 'job')} ready"
            found.append(Alert("bad", told, "/queues", "Queues"))
    for row in events:
        if row["kind"] in _KINDS:
            noun, what = _KINDS[row["kind"]]
            told = f"{plural(row['count'], noun)} {what}, the latest of {row['task']}"
            path, word = "/schedules", "Schedules"
            if row["kind"] == "slower":
                path, word = "/jobs", "Jobs"
            if row["job_id"] is not None:
                path, word = f"/jobs/{row['job_id']}", "The latest"
            found.append(Alert("warn", told, path, word, row["last_at"]))
    return found


def _of_schedules(names: Sequence[str]) -> list[Alert]:
    if not names:
        return []
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    told = f"{plural(len(names), 'schedule')} can't be planned: {', '.join(names[:_NAMED])}{more}"
    return [Alert("bad", told, "/schedules", "Schedules")]


def _of_nodes(nodes: Sequence[NodeStatus]) -> list[Alert]:
    found = []
    if not any("worker" in node.roles for node in nodes if node.state in ("live", "draining")):
        found.append(Alert("bad", "No worker is alive to run jobs", "/cluster", "Cluster"))
    for state, kind in (("dead", "bad"), ("silent", "warn")):
        recent = [node for node in nodes if node.state == state and node.heartbeat_age < 3600]
        if recent:
            names = ", ".join(sorted({node.name for node in recent})[:3])
            what = "died" if state == "dead" else "went silent"
            told = f"{plural(len(recent), 'node')} {what}: {names}"
            found.append(Alert(kind, told, "/cluster", "Cluster"))
    return found


def _of_shards(shards: Sequence[ShardStatus]) -> list[Alert]:
    """Schedulers work for all namespaces: what they hold tells whether there are any."""
    free = sum(shard.owner is None for shard in shards)
    if not free:
        return []
    told = f"{plural(free, 'shard')} of {len(shards)} have no scheduler to look after them"
    if free == len(shards):
        told = "No scheduler is alive to release jobs and to fire schedules"
    return [Alert("bad", told, "/cluster", "Cluster")]


# -- the last hour


def _past(now: datetime, finished: Sequence[FinishedMinute], failed: dict[datetime, int]) -> Past:
    this = now.replace(second=0, microsecond=0)
    minutes = [this - timedelta(minutes=ahead) for ahead in range(_MINUTES - 1, -1, -1)]
    good: dict[datetime, float] = {}
    lags: dict[datetime, float] = {}
    for one in finished:
        good[one.minute] = good.get(one.minute, 0.0) + one.jobs
        if one.lag is not None:
            lags[one.minute] = max(lags.get(one.minute, 0.0), one.lag)
    exact = all(one.exact for one in finished)
    total, bad = round(sum(good.values())), sum(failed.values())
    columns = [(good.get(minute, 0.0), float(failed.get(minute, 0))) for minute in minutes]
    titles = [
        f"{minute:%H:%M} UTC: {g:,.0f} succeeded" + (f", {b:,.0f} failed" if b else "")
        for minute, (g, b) in zip(minutes, columns, strict=True)
    ]
    most = max((g + b for g, b in columns), default=0.0)
    values = [lags.get(minute) for minute in minutes]
    known = [max(value, 0.0) for value in values if value is not None]
    worst = max(known, default=None)
    succeeded = Count(total, exact)
    lately = sum(g for g, _ in columns[-6:-1]) / 300
    return Past(
        succeeded=succeeded, failed=bad, rate=rate(lately), lag=known[-1] if known else None,
        bars=charts.bars(
            columns, f"Jobs by minute over the last hour: {number(succeeded)} succeeded, "
            f"{bad:,} failed; {most:,.0f} in the busiest minute.", titles,
        ),
        curve=charts.curve(
            [None if value is None else max(value, 0.0) for value in values],
            f"How late jobs started, by minute over the last hour: at most {span(worst)}.",
        ),
        most=number(Count(round(most), exact)), longest=span(worst),
    )  # fmt: skip


# -- the coming hour


class ComingHour(msgspec.Struct, frozen=True):
    rows: Sequence[Row]
    more: int  # schedules that have no row
    delayed: Coming
    ticks: str
    delayed_count: Count


async def _coming(tenant: Rota, store: DashboardStore, now: datetime, shards: int) -> ComingHour:
    until = now + _HOUR
    delayed = await store.coming_jobs(now, until, shards)
    found = await store.coming_schedules(until, 200)
    rows: list[Row] = []
    if found:
        known = await ScheduleStore((await tenant.store()).database).calendars()
        calendars = known.get(tenant.namespace, {})
        rows = await off_loop(lambda budget: _coming_rows(found, calendars, now, budget))
    counted = sum(delayed.by_minute.values())
    return ComingHour(
        rows, len(found) - len(rows), delayed,
        charts.ticks(
            [_share(minute, now) for minute in sorted(delayed.by_minute)],
            f"{number(Count(counted, delayed.exact))} delayed jobs are due in the coming hour", "idle",
        ),
        Count(counted, delayed.exact),
    )  # fmt: skip


def _coming_rows(
    found: Sequence[Any], calendars: Mapping[str, NamedCalendar], now: datetime, budget: Budget
) -> list[Row]:
    """As many as can be computed in a short while."""
    rows: list[Row] = []
    for row in found[:_ROWS]:
        if budget.spent > _SECONDS:
            break
        try:
            recurrence = compile_schedule(decode_spec(row["spec"]), calendars)
        except (ConfigError, OverflowError):
            continue  # it can't be planned: an alert says so
        moments = [row["next_due"]]
        for one in recurrence.after(row["next_due"], _MOMENTS):
            if one.due_at >= now + _HOUR or budget.spent > _SECONDS:
                break
            if one.excluded_by is None and one.due_at > row["next_due"]:
                moments.append(one.due_at)
        rows.append(_row(row, moments, now))
    return rows


def _row(row: Any, moments: Sequence[datetime], now: datetime) -> Row:
    many = len(moments) > _MOMENTS
    told = f"{row['name']}: {plural(len(moments), 'occurrence')} in the coming hour"
    shares = [_share(moment, now) for moment in moments]
    return Row(row["name"], len(moments), many, moments[0], charts.ticks(shares, told))


def _share(moment: datetime, now: datetime) -> float:
    return max((moment - now) / _HOUR, 0.0)


ROUTES = [overview]
