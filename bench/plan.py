"""How long chosen workloads take, from what they took when they were measured last: for whoever has
a machine to themselves for half an hour."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from bench.peers.catalogue import Peer
from bench.sizes import Workload

# Seconds of a round of one peer that was not measured yet, and of what precedes it.
_GUESS = {
    "noop_async": 15, "noop_sync": 15, "hold_5ms": 15, "held": 15, "submit_single": 8, "submit_bulk": 8,
    "pick_up": 22, "herd": 50, "million": 240, "cron_minute": 130, "cron_second": 35, "recovery": 60,
    "storage": 25, "growth": 700,
}  # fmt: skip
_BEFORE = 3.0  # the look at the load


def seconds(found: dict[str, Any], workload: Workload, name: str) -> tuple[float, bool]:
    """Of one round of one peer, and whether that was measured."""
    known = found["runs"].get(workload.name, {}).get(name)
    if known:
        return known["seconds"] + _BEFORE, True
    return _GUESS.get(workload.name, 30) + _BEFORE, False


def table(
    found: dict[str, Any], workloads: list[Workload], peers: list[Peer], rounds: int
) -> Table:
    drawn = Table("workload", "minutes", "of them guessed", title=f"{rounds} rounds")
    whole = guessed = 0.0
    for workload in workloads:
        took = guess = 0.0
        for peer in _who(workload, peers):
            one, measured = seconds(found, workload, peer.name)
            took += one * rounds
            guess += 0 if measured else one * rounds
        whole, guessed = whole + took, guessed + guess
        drawn.add_row(workload.name, f"{took / 60:.1f}", f"{guess / 60:.1f}")
    drawn.add_row("all", f"{whole / 60:.1f}", f"{guessed / 60:.1f}")
    return drawn


def _who(workload: Workload, peers: list[Peer]) -> list[Peer]:
    if workload.alone:
        return [peer for peer in peers if peer.kind == "rota"]
    return [peer for peer in peers if workload.name not in peer.cannot]
