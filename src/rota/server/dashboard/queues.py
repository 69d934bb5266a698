"""The page of queues: their jobs, lag, throughput and workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from rota.model import NodeStatus
from rota.server.api.queues import QueueName
from rota.server.dashboard import pages
from rota.server.dashboard.words import rate
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.store.dashboard import FinishedMinute, QueueNow

_RECENT = timedelta(minutes=15)


class Row(msgspec.Struct, frozen=True):
    queue: QueueNow
    rate: str
    exact: bool
    slots: int
    workers: int


@pages.page("/queues", policy=VIEWER)
async def show_queues(request: RotaRequest, tenant: TenantDep, stats: StatsDep) -> pages.Html:
    now = await (await tenant.store()).now()
    finished = await stats.finished(now - _RECENT, now)
    nodes = await tenant.nodes.list()
    rows = [_row(queue, finished, nodes) for queue in await stats.queues()]
    return await pages.show(
        request, "queues.html", now=now, rows=rows, max_run_time=tenant.settings.max_run_time,
        how=_how([row.queue for row in rows]),
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


def _row(queue: QueueNow, finished: Sequence[FinishedMinute], nodes: Sequence[NodeStatus]) -> Row:
    own = [one for one in finished if one.queue == queue.name]
    serving = [
        node for node in nodes
        if "worker" in node.roles and node.state == "live"
        and (not node.queues or queue.name in node.queues)
    ]  # fmt: skip
    return Row(
        queue, rate(sum(one.jobs for one in own) / _RECENT.total_seconds()),
        all(one.exact for one in own), sum(node.slots for node in serving), len(serving),
    )  # fmt: skip


@pages.action("/queues/{name:str}/pause", policy=OPERATOR)
async def pause(request: RotaRequest, tenant: TenantDep, name: QueueName) -> pages.Back:
    await tenant.queues.pause(name, must_exist=True)
    return pages.back(
        request, "/queues", f"Queue {name} paused: none of its jobs starts until it is resumed."
    )


@pages.action("/queues/{name:str}/resume", policy=OPERATOR)
async def resume(request: RotaRequest, tenant: TenantDep, name: QueueName) -> pages.Back:
    await tenant.queues.resume(name)
    return pages.back(request, "/queues", f"Queue {name} resumed.")


ROUTES = [show_queues, pause, resume]
