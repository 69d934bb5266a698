"""The page of a queue: its state over time, policy, shares and limits; their changes, and undo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from litestar.params import FromPath

from rota.model import LimitHolder, LimitStatus, QueuePolicy, QueueStatus, ShareService
from rota.operations.queues import DEFAULTS, rate_of
from rota.operations.rota import Rota
from rota.operations.statistics import WITHIN
from rota.server.api.queues import QueueName
from rota.server.dashboard import charts, pages
from rota.server.dashboard.form_errors import NO_ERRORS, Errors
from rota.server.dashboard.forms import Fields
from rota.server.dashboard.queues import Within
from rota.server.dashboard.tasks import draw, label_of
from rota.server.dashboard.words import span
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.store.changes import last_recorded
from rota.store.dashboard import DashboardStore, QueueNow

_LIMITS, _HOLDERS = 20, 5
_COLOURS = 7  # of the chart of shares: rota.css has k0 to k6
_POLICIES: Mapping[QueuePolicy, str] = {
    "priority": "by priority, then due time",
    "fair": "shared between fairness keys",
    "fifo": "by due time",
    "edf": "by deadline",
}
_LABELS = {
    "policy": "Policy", "concurrency": "Jobs at a time",
    "concurrency_per_key": "Jobs at a time, per key", "rate": "Rate",
    "rate_burst": "At once", "max_run_time": "Maximum run time", "max_depth": "Maximum depth",
    "history": "History",
    "weight": "Weight", "key": "Fairness key",
}  # fmt: skip


class Limit(msgspec.Struct, frozen=True):
    status: LimitStatus
    holders: Sequence[LimitHolder]


@pages.page("/queues/{name:str}", policy=VIEWER)
async def show_queue(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, name: QueueName, within: Within = "1h"
) -> pages.Html:
    return await _show(request, tenant, stats, name, within)


async def _show(
    request: RotaRequest, tenant: Rota, stats: DashboardStore, name: str, within: str = "1h", *,
    fields: Fields | None = None, errors: Errors = NO_ERRORS,
) -> pages.Html:  # fmt: skip
    queue, here = await tenant.queues.settings(name), pages.Here(request)
    held = await stats.queues(names=[name])
    now = held[0] if held else QueueNow(name=name, paused_at=None, max_run_time=None)
    runs = await tenant.statistics.queue(name, within)
    shares = await tenant.queues.shares(name) if queue.policy == "fair" else ()
    service = await tenant.queues.service(name) if queue.policy == "fair" else ()
    workers = [one for one in await stats.workers() if one.serve(name)]
    return await pages.show(
        request, "queue.html", queue=queue, held=now, within=within, withins=[*WITHIN], runs=runs,
        **draw(runs, here, queue=name), depth=_depth(runs.periods, runs.step),
        shares=shares[:100], more_shares=max(len(shares) - 100, 0), service=_service(service),
        served=service, limits=await _limits(tenant, name),
        serving=await stats.workers_of(name, 20), slots=sum(one.slots for one in workers),
        rate=rate_of(queue),
        installation_max=tenant.settings.max_run_time, said=fields or Fields({}), errors=errors,
        policies=_POLICIES, status=422 if errors else 200, how=_how(queue),
    )  # fmt: skip


def _depth(periods: Sequence[Any], step: int) -> str:
    """Draw how many jobs were ready, and for how long the first had been due."""
    labels = [label_of(one.at, step) for one in periods]
    bars = [
        charts.Bar(
            (("idle", float(one.ready or 0)),), "#depth",
            f"{labels[place]}: {one.ready or 0:,} ready, late by {span(one.ready_lag)}",
        )
        for place, one in enumerate(periods)
    ]  # fmt: skip
    most = max((one.ready or 0 for one in periods), default=0)
    return charts.columns(
        bars, labels, lambda value: f"{value:,.0f}", f"Ready jobs: at most {most:,}"
    )


def _service(shares: Sequence[ShareService]) -> str:
    """Draw the seconds of service by minute, a part of each column for a key."""
    if not shares:
        return ""
    minutes = range(len(shares[0].seconds))
    labels = [label_of(moment, 60) for moment in shares[0].minutes]
    bars = []
    for minute in minutes:
        parts = [(f"k{n % _COLOURS}", one.seconds[minute]) for n, one in enumerate(shares)]
        told = ", ".join(
            f"{key_text(one.key)} {span(one.seconds[minute])}" for one in shares if one.seconds[minute]
        )  # fmt: skip
        bars.append(charts.Bar(parts, "#shares", f"{labels[minute]}: {told}"))
    return charts.columns(bars, labels, span, "Seconds of service by minute and fairness key")


def key_text(key: str | None) -> str:
    return "all others" if key is None else key or "without a key"


async def _limits(tenant: Rota, name: str) -> list[Limit]:
    """The limits of the queue itself, those of its keys that are full first."""
    found = [
        one for one in await tenant.queues.limits()
        if one.name == f"queue:{name}" or one.name.startswith(f"queue:{name}/")
    ]  # fmt: skip
    found.sort(key=lambda one: (-one.waiting, one.name))
    return [
        Limit(one, (await tenant.queues.holders(one.name))[:_HOLDERS] if one.running else ())
        for one in found[:_LIMITS]
    ]


def _how(queue: QueueStatus) -> list[pages.Copyable]:
    word = "resume" if queue.paused_at else "pause"
    return [
        pages.Copyable("Show this queue", curl=pages.curl("GET", f"/v1/queues/{queue.name}"),
                       python=f"await app.queues.get({queue.name!r})"),
        pages.Copyable("List the shares", cli=pages.cli("queues", "shares", queue.name),
                       curl=pages.curl("GET", f"/v1/queues/{queue.name}/shares")),
        pages.Copyable("List the limits", cli=pages.cli("queues", "limits"),
                       curl=pages.curl("GET", "/v1/limits")),
        pages.Copyable(f"{word.capitalize()} this queue", cli=pages.cli("queues", word, queue.name),
                       curl=pages.curl("POST", f"/v1/queues/{queue.name}/{word}"),
                       python=f"await app.queues.{word}({queue.name!r})"),
        pages.Copyable("Set a limit", cli=pages.cli("queues", "set", queue.name, "--concurrency", 10),
                       curl=pages.curl("PUT", f"/v1/queues/{queue.name}", {"concurrency": 10})),
    ]  # fmt: skip


@pages.action("/queues/{name:str}/settings", policy=OPERATOR)
async def change_settings(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, name: QueueName
) -> pages.Back | pages.Html:
    """Set what differs from what it is, as one change, which can be undone."""
    fields, errors = await Fields.of(request), Errors(_LABELS)
    values = fields.read(
        {"concurrency": Fields.whole, "concurrency_per_key": Fields.whole, "rate": Fields.text,
         "rate_burst": Fields.whole, "max_run_time": Fields.seconds, "max_depth": Fields.whole,
         "policy": Fields.text, "history": Fields.text}, errors,
    )  # fmt: skip
    before = await tenant.queues.get(name)
    after = before
    if not errors:
        with errors.at("rate"):
            values["policy"] = values["policy"] or before.policy
            values["history"] = values["history"] or before.history
            after = await tenant.queues.configure(name, **values, must_exist=True)
    if errors:
        return await _show(request, tenant, stats, name, fields=fields, errors=errors)
    if _told(after) == _told(before):
        return pages.back(request, f"/queues/{name}", "Nothing has changed.", kind="warning")
    text = f"Queue {name}: {_told(after)}. It holds for jobs that wait, too."
    return pages.back(request, f"/queues/{name}", text, undo=_undo_path(name))


def _told(queue: QueueStatus) -> str:
    told = [f"policy {queue.policy}"]
    if queue.concurrency is not None:
        told.append(f"{queue.concurrency:,} jobs at a time")
    if queue.concurrency_per_key is not None:
        told.append(f"{queue.concurrency_per_key:,} per key")
    if rate := rate_of(queue):
        told.append(f"rate {rate}, {queue.rate_burst} at once")
    if queue.max_run_time is not None:
        told.append(f"maximum run time {span(queue.max_run_time)}")
    if queue.max_depth is not None:
        told.append(f"maximum depth {queue.max_depth:,}")
    if queue.history != DEFAULTS["history"]:
        told.append(f"history {queue.history}")
    return ", ".join(told)


def _undo_path(name: str) -> str | None:
    entry = last_recorded()
    return None if entry is None else f"/queues/{name}/undo/{entry}"


@pages.action("/queues/{name:str}/weight", policy=OPERATOR)
async def change_weight(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, name: QueueName
) -> pages.Back | pages.Html:
    fields, errors = await Fields.of(request), Errors(_LABELS)
    key = fields.raw("key")
    with errors.at("weight"):
        await tenant.queues.get(name)
        await tenant.queues.set_weight(name, key, fields.decimal("weight"))
    if errors:
        return await _show(request, tenant, stats, name, fields=fields, errors=errors)
    weight = fields.text("weight") or "1, the default"
    return pages.back(
        request, f"/queues/{name}", f"Weight of {key_text(key)}: {weight}.", undo=_undo_path(name)
    )


@pages.action("/queues/{name:str}/undo/{entry:int}", policy=OPERATOR, on_error="/queues/{name}")
async def undo(
    request: RotaRequest, tenant: TenantDep, name: QueueName, entry: FromPath[int]
) -> pages.Back:
    await tenant.queues.undo(name, entry)
    return pages.back(request, f"/queues/{name}", f"Undone: queue {name} is as it was before.")


@pages.action("/queues/{name:str}/pause", policy=OPERATOR)
async def pause(request: RotaRequest, tenant: TenantDep, name: QueueName) -> pages.Back:
    fields = await Fields.of(request)
    await tenant.queues.pause(name, must_exist=True)
    text = f"Queue {name} paused: none of its jobs starts until it is resumed."
    return pages.back(request, pages.returning(fields, "/queues"), text, undo=_undo_path(name))


@pages.action("/queues/{name:str}/resume", policy=OPERATOR)
async def resume(request: RotaRequest, tenant: TenantDep, name: QueueName) -> pages.Back:
    fields = await Fields.of(request)
    await tenant.queues.resume(name)
    return pages.back(
        request, pages.returning(fields, "/queues"), f"Queue {name} resumed.", undo=_undo_path(name)
    )


ROUTES = [show_queue, change_settings, change_weight, undo, pause, resume]
