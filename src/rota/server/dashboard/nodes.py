"""The page of a node: what runs there, its slots over the last minutes, and how to drain and stop it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from litestar.params import FromPath

from rota.core.resources import parse_node, said_one
from rota.model import NodeJob, NodeStatus, State
from rota.server.dashboard import charts, pages
from rota.server.dashboard.forms import Fields
from rota.server.dashboard.words import clock, plural, span
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep

_BACK = timedelta(minutes=10)
_ENDED = 500
_RUNNING = 100
_SOON = "It learns of it with its next heartbeat."

NodeId = FromPath[UUID]


@pages.page("/nodes/{node_id:uuid}", policy=VIEWER)
async def show_node(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, node_id: NodeId
) -> pages.Html:
    node = await tenant.nodes.get(node_id)
    now = await (await tenant.store()).now()
    running = await tenant.nodes.running(node_id, limit=_RUNNING)
    ended = await stats.ended_on(node_id, now - _BACK, _ENDED)
    here = pages.Here(request)
    return await pages.show(
        request, "node.html", now=now, node=node, running=running, more=len(running) == _RUNNING,
        gantt=_gantt(running, ended, now, here), can_drain=_can(node) and node.wish is None,
        can_undrain=_can(node) and node.wish == "drain", can_stop=_can(node) and node.wish != "stop",
        how=_how(node), resources=_resources(node),
    )  # fmt: skip


def _resources(node: NodeStatus) -> list[dict[str, Any]]:
    """Return what the node has for jobs that ask for it, and how much of it they hold."""
    has, used = parse_node(node.resources), parse_node(node.used)
    return [
        {
            "name": name, "has": said_one(name, units), "used": said_one(name, used.get(name, 0)),
            "share": min(used.get(name, 0) / units, 1) if units else 0,
        }
        for name, units in has.items()
    ]  # fmt: skip


def _can(node: NodeStatus) -> bool:
    return node.state in ("live", "draining", "silent") and not node.remote


def _how(node: NodeStatus) -> list[pages.Copyable]:
    show = pages.Copyable(
        "Show this node", cli=pages.cli("nodes"), curl=pages.curl("GET", f"/v1/nodes/{node.id}"),
        python=f"await app.nodes.get(UUID({str(node.id)!r}))",
    )  # fmt: skip
    verbs = ("undrain" if node.wish else "drain", "stop") if _can(node) else ()
    return [show, *(
        pages.Copyable(
            f"{verb.capitalize()} this node", cli=pages.cli("nodes", verb, node.id),
            curl=pages.curl("POST", f"/v1/nodes/{node.id}/{verb}"),
        )
        for verb in verbs
    )]  # fmt: skip


def _gantt(
    running: Sequence[NodeJob], ended: Sequence[Any], now: datetime, here: pages.Here
) -> str:
    """Draw the jobs of the last minutes in as few rows as they need: about the slots they had."""
    first = now - _BACK
    found = [
        (row["started_at"], row["finished_at"], State(row["state"]).label, row["task"], row["id"])
        for row in ended
    ]
    found += [(one.started_at, now, "running", one.task, one.id) for one in running]
    blocks = []
    for started, finished, state, task, id in sorted(found, key=lambda one: one[0]):
        title = (
            f"{task}, {state}, {span((finished - started).total_seconds())}, from {clock(started)}"
        )
        begin, end = max(started, first) - first, finished - first
        blocks.append(charts.Block(
            begin / _BACK, end / _BACK, _KINDS.get(state, "idle"), here.url(f"/jobs/{id}"), title
        ))  # fmt: skip
    labels = [clock(first + _BACK * part / 5) for part in range(6)]
    return (
        charts.gantt(blocks, labels, "The jobs of the last ten minutes, by slot") if blocks else ""
    )


_KINDS = {"succeeded": "good", "failed": "bad", "running": "live"}


@pages.action("/nodes/{node_id:uuid}/drain", policy=OPERATOR, on_error="/nodes/{node_id}")
async def drain(request: RotaRequest, tenant: TenantDep, node_id: NodeId) -> pages.Back:
    node = await tenant.nodes.drain(node_id)
    return pages.back(
        request, f"/nodes/{node_id}", f"Node {node.name} was asked to start no more jobs. {_SOON}"
    )


@pages.action("/nodes/{node_id:uuid}/undrain", policy=OPERATOR, on_error="/nodes/{node_id}")
async def undrain(request: RotaRequest, tenant: TenantDep, node_id: NodeId) -> pages.Back:
    node = await tenant.nodes.undrain(node_id)
    return pages.back(
        request, f"/nodes/{node_id}", f"Node {node.name} may start jobs again. {_SOON}"
    )


@pages.action("/nodes/{node_id:uuid}/stop", policy=OPERATOR, on_error="/nodes/{node_id}")
async def stop(request: RotaRequest, tenant: TenantDep, node_id: NodeId) -> pages.Back | pages.Html:
    """Ask for confirmation first. With `sure`, ask the node to stop."""
    if not (await Fields.of(request)).flag("sure"):
        node = await tenant.nodes.get(node_id)
        return await pages.confirm(
            request, f"Stop node {node.name}?",
            f"It starts no more jobs, lets its {plural(node.running, 'running job')} end within its "
            "grace period, gives back the rest, and ends its process. Whatever supervises the process "
            "may start it again.",
            "This can't be undone; Drain can.",
            path=f"/nodes/{node_id}/stop", word="Stop the node",
            target=pages.Here(request).url(f"/nodes/{node_id}"),
        )  # fmt: skip
    node = await tenant.nodes.stop(node_id)
    return pages.back(request, f"/nodes/{node_id}", f"Node {node.name} was asked to stop. {_SOON}")


ROUTES = [show_node, drain, undrain, stop]
