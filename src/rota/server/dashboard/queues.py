"""The page of queues: their jobs, lag, throughput and workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from litestar.params import QueryParameter

from rota.core.time.interval import seconds_of
from rota.model import QueuePeriod
from rota.operations.statistics import WITHIN
from rota.server.dashboard import charts, pages
from rota.server.dashboard.words import rate, span
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.store.dashboard import QueueNow
from rota.store.dashboard_lists import Workers

_ROWS = 20  # each has three small charts
Within = Annotated[str, QueryParameter(max_length=10)]


class Row(msgspec.Struct, frozen=True):
    queue: QueueNow
    rate: str
    slots: int
    workers: int
    ready_line: str
    lag_line: str
    runs_line: str


@pages.page("/queues", policy=VIEWER)
async def show_queues(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, within: Within = "1h",
    after: Annotated[str, QueryParameter(max_length=200)] = "",
) -> pages.Html:  # fmt: skip
    found = await stats.queues(after=after, most=_ROWS + 1)
    shown = found[:_ROWS]
    series = await tenant.statistics.queues(within, names=[queue.name for queue in shown])
    workers = await stats.workers()
    rows = [_row(queue, series.get(queue.name, ()), workers, within) for queue in shown]
    last = shown[-1].name if len(found) > _ROWS else None
    return await pages.show(
        request, "queues.html", rows=rows, after=after,
        next=pages.Here(request).url("/queues", within=within, after=last) if last else None,
        max_run_time=tenant.settings.max_run_time,
        within=within, withins=[*WITHIN], how=_how([row.queue for row in rows]),
    )  # fmt: skip


def _how(queues: Sequence[QueueNow]) -> list[pages.Copyable]:
    show = pages.Copyable(
        "List the queues", cli=pages.cli("queues"), curl=pages.curl("GET", "/v1/queues"),
        python="await app.queues.list()",
    )  # fmt: skip
    found = [show]
    for queue in queues[:1]:
        word = "resume" if queue.paused_at else "pause"
        found.append(pages.Copyable(
            f"{word.capitalize()} the queue {queue.name}", cli=pages.cli("queues", word, queue.name),
            curl=pages.curl("POST", f"/v1/queues/{queue.name}/{word}"),
            python=f"await app.queues.{word}({queue.name!r})",
        ))  # fmt: skip
    return found


def _row(
    queue: QueueNow, periods: Sequence[QueuePeriod], workers: Sequence[Workers], within: str
) -> Row:
    serving = [one for one in workers if one.serve(queue.name)]
    runs, seconds = sum(one.runs for one in periods), seconds_of(within, "within")
    ready = [one.ready for one in periods]
    lags = [one.ready_lag for one in periods]
    most, longest = (
        max([n for n in ready if n], default=0),
        max([n for n in lags if n], default=None),
    )
    return Row(
        queue, rate(runs / seconds), sum(one.slots for one in serving),
        sum(one.nodes for one in serving),
        charts.spark(ready, f"Ready, {within}: at most {most:,}", "idle"),
        charts.spark(lags, f"Lag, {within}: at most {span(longest)}", "warn"),
        charts.spark([float(one.runs) for one in periods], f"Runs, {within}: {runs:,}", "good"),
    )  # fmt: skip


ROUTES = [show_queues]
