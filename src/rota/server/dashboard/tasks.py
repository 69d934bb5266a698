"""The pages of tasks: how often they ran and failed, how long they took, how late they began."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec
from litestar.params import QueryParameter

from rota.core.histogram import bounds
from rota.core.resources import said_public
from rota.errors import NotFound
from rota.model import RunStats, TaskInfo
from rota.operations.statistics import WITHIN
from rota.server.api.tasks import TaskName
from rota.server.dashboard import charts, pages
from rota.server.dashboard.words import number, pretty, span, stamp, zone_shown
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.store.search import JobFilter

_ROWS = 25
_LATEST = 10
_SLOWEST = 10
_ERRORS = 8

Within = Annotated[str, QueryParameter(max_length=10)]
After = Annotated[str, QueryParameter(max_length=200)]


class Row(msgspec.Struct, frozen=True):
    name: str
    queue: str
    workers: int
    runs: int
    failed: int
    mean: float | None


@pages.page("/tasks", policy=VIEWER)
async def show_tasks(
    request: RotaRequest, tenant: TenantDep, within: Within = "24h", after: After = ""
) -> pages.Html:
    found = await tenant.registry.list(after=after, limit=_ROWS + 1)
    shown = found[:_ROWS]
    totals = {
        one.task: one
        for one in await tenant.statistics.tasks(within, names=[task.name for task in shown])
    }
    rows = []
    for task in shown:
        one = totals.get(task.name)
        mean = one.seconds / one.runs if one and one.runs else None
        rows.append(Row(
            task.name, task.queue, task.workers, one.runs if one else 0, one.failed if one else 0, mean
        ))  # fmt: skip
    return await pages.show(
        request, "tasks.html", rows=rows, within=within, withins=[*WITHIN], after=after,
        next=pages.Here(request).url("/tasks", within=within, after=shown[-1].name)
        if len(found) > _ROWS else None,
        how=[pages.Copyable(
            "List the tasks", cli=pages.cli("tasks"), curl=pages.curl("GET", "/v1/tasks"),
            python="await app.registry.list()",
        )],
    )  # fmt: skip


@pages.page("/tasks/{name:str}", policy=VIEWER)
async def show_task(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, name: TaskName, within: Within = "24h"
) -> pages.Html:
    found = await tenant.statistics.task(name, within)
    now = await (await tenant.store()).now()
    info: TaskInfo | None = None
    with contextlib.suppress(NotFound):  # its jobs may be there all the same
        info = await tenant.registry.get(name)
    latest = (await tenant.jobs.look(JobFilter(task=name), limit=_LATEST)).jobs
    schedules = await tenant.schedules.page(task=name, limit=20)
    dead = await stats.dead_groups(name)
    here = pages.Here(request)
    return await pages.show(
        request, "task.html", now=now, name=name, info=info,
        asked=said_public(info.resources) if info is not None else "", stats=found, within=within,
        withins=[*WITHIN], latest=latest, slowest=await stats.slowest(name, now, _SLOWEST),
        schedules=schedules,
        dead=dead, failed=sum(group.count for group in dead.groups),
        errors_by_kind=dead.groups[:_ERRORS],
        **draw(found, here, task=name),
        signature=pretty(info.arguments) if info and info.arguments else None,
        returns=pretty(info.returns) if info and info.returns else None, how=_how(name, within),
    )  # fmt: skip


def _how(name: str, within: str) -> list[pages.Copyable]:
    return [
        pages.Copyable(
            "Show the statistics", cli=pages.cli("tasks", "stats", name, "--within", within),
            curl=pages.curl("GET", f"/v1/tasks/{name}/stats?within={within}"),
            python=f"await app.statistics.task({name!r}, {within!r})",
        ),
        pages.Copyable("Show the task", cli=pages.cli("tasks", "show", name),
                       curl=pages.curl("GET", f"/v1/tasks/{name}")),
    ]  # fmt: skip


def draw(found: RunStats, here: pages.Here, **filters: str) -> dict[str, Any]:
    """Draw the charts of a task, a queue or the namespace. A column leads to the jobs that it counts."""
    labels = [label_of(one.at, found.step) for one in found.periods]
    step = timedelta(seconds=found.step)
    bars = []
    for one in found.periods:
        title = f"{stamp(one.at)}: {number(one.runs)} runs, {number(one.failed)} failed"
        href = here.url(
            "/jobs", **filters, state=["failed"] if one.failed == one.runs else ["succeeded", "failed"],
            ended_from=one.at.isoformat(), ended_to=(one.at + step).isoformat(),
        )  # fmt: skip
        parts = (("good", float(one.runs - one.failed)), ("bad", float(one.failed)))
        bars.append(charts.Bar(parts, href, title))
    return {
        "throughput": charts.columns(
            bars, labels, _count, f"Runs: {found.runs:,}, of which {found.failed:,} failed"
        ),
        "durations": _quantile_lines([one.duration for one in found.periods], labels, "Durations"),
        "lags": _quantile_lines([one.lag for one in found.periods], labels, "Start lags"),
        "histogram": _histogram(found.durations, here, filters),
    }


def _quantile_lines(
    periods: Sequence[dict[str, float] | None], labels: Sequence[str], what: str
) -> str:
    series = [
        (name, [one[name] if one else None for one in periods]) for name in ("p50", "p95", "p99")
    ]
    return charts.lines(series, labels, span, f"{what}: the quantiles p50, p95 and p99 by period")


def _histogram(counts: Sequence[int], here: pages.Here, filters: dict[str, str]) -> str:
    used = [place for place, count in enumerate(counts) if count]
    if not used:
        return ""
    bars, labels = [], []
    for place in range(used[0], used[-1] + 1):
        low, high = bounds(place)
        text = f"{span(low)} to {span(high)}" if high else f"over {span(low)}"
        labels.append(span(high) if high else "more")
        bars.append(charts.Bar(
            (("live", float(counts[place])),), here.url("/jobs", **filters),
            f"{text}: {number(counts[place])} runs",
        ))  # fmt: skip
    return charts.columns(bars, labels, _count, "Number of runs by their duration")


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def label_of(at: datetime, step: int) -> str:
    local = at.astimezone(zone_shown.get())
    if step < 3 * 3600:
        return f"{local:%H:%M}"
    return f"{local:%a %-d %H:%M}" if step < 12 * 3600 else f"{local:%-d %b}"


ROUTES = [show_tasks, show_task]
