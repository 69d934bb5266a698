"""Queues: how full and how late they are, how quickly they move, who serves them; and pausing them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec

from rota.model import NodeStatus
from rota.server.api.queues import QueueName
from rota.server.dashboard.commands import Copyable, cli, curl, python
from rota.server.dashboard.pages import Back, Html, action, back, page, show
from rota.server.dashboard.words import rate
from rota.server.dependencies import TenantDep
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest
from rota.store.dashboard import DashboardStore, FinishedMinute, QueueNow

_LATELY = timedelta(minutes=15)


class Row(msgspec.Struct, frozen=True):
    queue: QueueNow
    rate: str
    exact: bool
    slots: int
    workers: int
    how: Copyable


@page("/queues", policy=VIEWER)
async def list_queues(request: RotaRequest, tenant: TenantDep) -> Html:
    job_store = await tenant.store()
    now = await job_store.now()
    store = DashboardStore(job_store.database, tenant.namespace)
    finished = await store.finished(now - _LATELY, now)
    nodes = await tenant.nodes.list()
    rows = [_row(queue, finished, nodes) for queue in await store.queues()]
    return await show(
        request, "queues.html", now=now, rows=rows, max_run_time=tenant.settings.max_run_time
    )


def _row(queue: QueueNow, finished: Sequence[FinishedMinute], nodes: Sequence[NodeStatus]) -> Row:
    own = [one for one in finished if one.queue == queue.name]
    serving = [
        node for node in nodes
        if "worker" in node.roles and node.state == "live"
        and (not node.queues or queue.name in node.queues)
    ]  # fmt: skip
    word = "resume" if queue.paused_at else "pause"
    return Row(
        queue, rate(sum(one.jobs for one in own) / _LATELY.total_seconds()),
        all(one.exact for one in own), sum(node.slots for node in serving), len(serving),
        Copyable(
            cli=cli("queues", word, queue.name), curl=curl("POST", f"/v1/queues/{queue.name}/{word}"),
            python=python(f"await app.queues.{word}({queue.name!r})"),
        ),
    )  # fmt: skip


@action("/queues/{name:str}/pause", policy=OPERATOR)
async def pause(request: RotaRequest, tenant: TenantDep, name: QueueName) -> Back:
    await tenant.queues.pause(name, must_exist=True)
    return back(
        request, "/queues", f"Queue {name} paused: none of its jobs starts until it is resumed."
    )


@action("/queues/{name:str}/resume", policy=OPERATOR)
async def resume(request: RotaRequest, tenant: TenantDep, name: QueueName) -> Back:
    await tenant.queues.resume(name)
    return back(request, "/queues", f"Queue {name} resumed.")


ROUTES = [list_queues, pause, resume]
