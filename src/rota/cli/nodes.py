"""`rota nodes`: the nodes of the cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.jobs import database_now
from rota.cli.output import plain, state, table
from rota.cli.session import Session
from rota.cli.times import relative
from rota.core.durations import format_duration
from rota.model import NodeStatus


def list_nodes(
    session: Session,
    ended: Annotated[
        bool, typer.Option("--all", help="Include nodes that stopped or died recently.")
    ] = False,
) -> None:
    """List the nodes of the cluster."""
    screen = session.screen
    nodes = session.run(session.app.nodes.list(ended=ended))
    if not screen.listing(nodes, "No node is alive. Start one: rota dev, or rota start module:app"):
        return
    now = session.run(database_now(session))
    rows = table("name", "state", "roles", "queues", "running", "slots", "load", "waits", "shards",
                 "heard", "started", "version",
                 right=["running", "slots", "load", "shards", "heard"], whole=["name"])  # fmt: skip
    for node in nodes:
        serves = ", ".join(node.queues) or "all"
        rows.add_row(
            plain(node.name), state(node.state), _roles(node),
            "+".join((serves, *node.capabilities)), f"{node.running:,}", f"{node.slots:,}",
            "-" if node.load is None else f"{node.load:.0%}",
            "-" if node.idle_slots is None else "for work",
            "-" if node.shards is None else f"{node.shards:,}",
            f"{format_duration(max(node.heartbeat_age, 0))} ago", relative(node.started_at, now),
            node.version,
        )  # fmt: skip
    screen.show(rows)


def _roles(node: NodeStatus) -> str:
    return ", ".join(node.roles) + (" (http)" if node.remote else "")
