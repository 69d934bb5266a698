"""`rota nodes` and `rota shards`: the nodes of the cluster, and the owners of shards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import typer

from rota.cli.options import argument, option
from rota.cli.output import state, table
from rota.cli.session import Session, callback, command
from rota.cli.times import relative
from rota.core.durations import format_duration
from rota.core.resources import said_public
from rota.errors import ConfigError, NotFound
from rota.model import ShardStatus, Takeover

_NOBODY = "nobody"


nodes = typer.Typer(help="List, drain and stop nodes.")
NodeName = Annotated[str, argument("NODE", "Name or id of the node.")]


@callback(nodes)
@command(nodes, "list")
def list_nodes(
    session: Session,
    ended: Annotated[bool, option("Include nodes that stopped or died recently.", "--all")] = False,
) -> None:
    """List the nodes of the cluster."""
    found = session.run(session.app.nodes.list(ended=ended))
    session.screen.listing(
        found, "No node is alive. Start one: rota dev, or rota start module:app",
        ("name", "state", "roles", "queues", "resources", "running", "slots", "idle", "load", "shards",
         "heartbeat", "started", "version"),
        (
            (
                node.name, state(node.state),
                ", ".join(node.roles) + (" (http)" if node.remote else ""),
                "+".join((", ".join(node.queues) or "all", *node.capabilities))
                + "".join(f" ~{label}" for label in node.labels),
                said_public(node.resources, node.used) or "-",
                f"{node.running:,}", f"{node.slots:,}",
                "-" if node.idle_slots is None else f"{node.idle_slots:,}",
                "-" if node.load is None else f"{node.load:.0%}",
                "-" if node.shards is None else f"{node.shards:,}",
                f"{format_duration(max(node.heartbeat_age, 0))} ago",
                relative(node.started_at, session.now), node.version,
            )
            for node in found
        ),
        right=["running", "slots", "idle", "load", "shards", "heartbeat"], whole=["name"],
    )  # fmt: skip


@command(nodes, "drain")
def drain(session: Session, node: NodeName) -> None:
    """Start no more jobs on a node; what runs there ends."""
    _ask(session, "drain", node, "starts no more jobs")


@command(nodes, "undrain")
def undrain(session: Session, node: NodeName) -> None:
    """Resume starting jobs on a drained node."""
    _ask(session, "undrain", node, "starts jobs again")


@command(nodes, "stop")
def stop(session: Session, node: NodeName) -> None:
    """Stop a node: it drains and ends its process, as after SIGTERM."""
    _ask(session, "stop", node, "drains and ends")


def _ask(session: Session, verb: str, name: str, text: str) -> None:
    live = session.run(session.app.nodes.list())
    found = [node for node in live if name in (node.name, str(node.id))]
    if not found:
        raise NotFound(f"there is no live node {name!r}; `rota nodes` lists them", subject=name)
    if len(found) > 1:
        raise ConfigError(
            f"{len(found)} live nodes are named {name!r}: give the id, which `rota nodes --json` shows"
        )
    status = session.run(getattr(session.app.nodes, verb)(found[0].id))
    session.screen.answer(status, f"node {status.name} {text}, from its next heartbeat on")


def list_shards(
    session: Session,
    hours: Annotated[float, option("Hours of takeovers to show.", min=0)] = 24,
) -> None:
    """List shards with the schedulers that own them, and recent takeovers."""
    screen = session.screen
    shards = session.run(session.app.nodes.shards())
    nodes = session.run(session.app.nodes.list())
    takeovers = session.run(session.app.nodes.takeovers(hours * 3600))
    if screen.structured:
        screen.document({"shards": shards, "takeovers": takeovers})
        return
    owners = (
        (name, f"{len(numbers)}", ranges(numbers)) for name, numbers in _by_owner(shards).items()
    )
    screen.show(
        table(("scheduler", "shards", "which"), owners, right=["shards"], whole=["scheduler"])
    )
    if takeovers:
        moves = (
            (relative(each.at, session.now), each.node or str(each.owner), f"{each.shards}",
             _from(each), "" if each.gap is None else format_duration(each.gap))
            for each in takeovers[:20]
        )  # fmt: skip
        screen.show(
            table(("taken", "by", "shards", "from", "unowned for"), moves, right=["shards"])
        )
    for name in sorted({node.coordinator for node in nodes if node.coordinator}):
        screen.note(f"Shared out by {name}.")
    for fault in sorted({node.coordinator_fault for node in nodes if node.coordinator_fault}):
        screen.note(f"It does not answer, so PostgreSQL is used instead: {fault}")
    if any(shard.owner is None for shard in shards):
        screen.note(
            "Shards without an owner are swept by every scheduler; without any scheduler their jobs "
            "wait. `rota nodes` lists the schedulers."
        )


def _by_owner(shards: Sequence[ShardStatus]) -> dict[str, list[int]]:
    owned: dict[str, list[int]] = defaultdict(list)
    for shard in shards:
        owned[shard.node or _NOBODY].append(shard.shard)
    return dict(sorted(owned.items(), key=lambda item: (item[0] == _NOBODY, item[0])))


def _from(takeover: Takeover) -> str:
    if takeover.previous is not None:
        return takeover.previous_node or str(takeover.previous)
    return "handed over" if takeover.gap is not None else "new"


def ranges(numbers: Sequence[int]) -> str:
    """Format sorted numbers as '0-3, 7, 9-12'."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ", ".join("-".join(map(str, each)) for each in found)
