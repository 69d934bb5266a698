"""The case of `bench.limits` that asks other systems what Rota is asked: a key of which one job may run,
with very many jobs, and how soon another key's jobs start.

pg-boss has groups (`groupConcurrency`), DBOS partitions of a queue (`partition_concurrency`). In Oban
for Python limits by key belong to its paid edition, which can't be had here.
"""

from __future__ import annotations

import asyncio

from bench.ground import Arena, Ground, Trouble, wait_until
from bench.limits_ground import Figures, Size
from bench.peers.catalogue import BY_NAME
from bench.peers.common import FULL
from bench.peers.install import Missing, ensure

PEERS = ("pg-boss", "dbos")
_FILL_SECONDS = 20  # of the pace at which a peer stores jobs
_SLOTS = 8
_MOST_STARTS = 200


async def peers(ground: Ground, size: Size) -> Figures:
    return await asyncio.to_thread(_all, ground, size)


def _all(ground: Ground, size: Size) -> Figures:
    figures: Figures = {}
    for name in PEERS:
        peer = BY_NAME[name]
        try:
            ensure(peer)
        except Missing:
            continue
        arena = Arena(peer, ground)
        arena.prepare()
        in_front = min(size.front, peer.bulk_pace * _FILL_SECONDS)
        starts = min(size.starts, _MOST_STARTS)
        free = _p99(arena, 1, starts)
        behind = _p99(arena, in_front, starts)
        named = name.replace("-", "_")
        figures |= {f"{named}_in_front": in_front, f"{named}_behind_p99_ms": behind * 1000,
                    f"{named}_free_p99_ms": free * 1000, f"{named}_ratio": behind / free}  # fmt: skip
    if not figures:
        raise Trouble("none of them could be installed")
    return figures


def _p99(arena: Arena, in_front: int, starts: int) -> float:
    """Return the seconds from submit to start, the 99th of a hundred."""
    arena.refresh()
    arena.call(
        "submit", count=in_front, first=FULL, how="bulk", task="keyed", key="full", seconds=600
    )
    arena.ground.sql("analyze", "checkpoint", database=arena.database)
    started, sent = arena.records(), arena.records("sent")
    with arena.working(1, task="keyed", slots=_SLOTS):
        if not wait_until(lambda: started.read() > 0 or arena.check_alive(), 60):
            raise Trouble("no job was started within a minute")
        arena.call(
            "trickle", count=starts, first=0, rate=20, task="keyed", key="other", seconds=600
        )
        wait_until(lambda: started.read() > starts, 60)
    sent.read()
    began, first = sent.firsts(), started.firsts()
    waits = sorted(first[number] - began[number] for number in began if number in first)
    if len(waits) < starts:
        raise Trouble(f"{starts - len(waits)} of {starts} jobs of the other key did not start")
    return waits[max(int(starts * 0.99) - 1, 0)]
