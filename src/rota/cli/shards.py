"""`rota shards`: the owners of shards, and recent takeovers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

import typer

from rota.cli.jobs import database_now
from rota.cli.output import plain, table
from rota.cli.session import Session
from rota.cli.times import relative
from rota.core.durations import format_duration
from rota.model import ShardStatus, Takeover

_NOBODY = "nobody"


def list_shards(
    session: Session,
    hours: Annotated[
        float, typer.Option("--hours", min=0, help="Hours of takeovers to show.")
    ] = 24,
) -> None:
    """List shards with the schedulers that own them, and recent takeovers."""
    screen = session.screen
    shards = session.run(session.app.nodes.shards())
    takeovers = session.run(session.app.nodes.takeovers(hours * 3600))
    if screen.structured:
        screen.document({"shards": shards, "takeovers": takeovers})
        return
    owners = table("scheduler", "shards", "which", right=["shards"], whole=["scheduler"])
    for name, numbers in _by_owner(shards).items():
        owners.add_row(plain(name), f"{len(numbers)}", ranges(numbers))
    screen.show(owners)
    if takeovers:
        now = session.run(database_now(session))
        moves = table("taken", "by", "shards", "from", "unowned for", right=["shards"])
        for each in takeovers[:20]:
            moves.add_row(
                relative(each.at, now), plain(each.node or str(each.owner)), f"{each.shards}",
                plain(_from(each)), "" if each.gap is None else format_duration(each.gap),
            )  # fmt: skip
        screen.show(moves)
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
    """0-3, 7, 9-12"""
    parts: list[str] = []
    start = previous = None
    for number in (*numbers, None):
        if previous is not None and number != previous + 1:
            parts.append(f"{start}" if start == previous else f"{start}-{previous}")
            start = number
        elif previous is None:
            start = number
        previous = number
    return ", ".join(parts)
