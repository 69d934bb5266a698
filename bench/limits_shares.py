"""Cases of `bench.limits` about who gets the slots: fair shares, their weights, and a full key in
front."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from typing import Any

from bench.ground import Ground
from bench.limits_ground import Figures, Place, Size, place, until

_WEIGHTS = (1, 2, 5)
_FRONT_SLOTS = 8


class _Service:
    """Slot-seconds by share, of what ran between two moments."""

    def __init__(self, since: float) -> None:
        self.since, self.until = since, float("inf")
        self.ran: list[tuple[int, float, float]] = []
        self.inside: dict[int, tuple[int, float]] = {}  # by a number of the run
        self._number = 0

    def begin(self, share: int) -> int:
        self._number += 1
        self.inside[self._number] = share, time.monotonic()
        return self._number

    def end(self, number: int) -> None:
        share, began = self.inside.pop(number)
        self.ran.append((share, began, time.monotonic()))

    def seconds(self) -> dict[int, float]:
        now = time.monotonic()
        found: dict[int, float] = defaultdict(float)
        for share, began, ended in [
            *self.ran,
            *((share, began, now) for share, began in self.inside.values()),
        ]:
            found[share] += max(min(ended, self.until) - max(began, self.since), 0.0)
        return found


async def shares(ground: Ground, size: Size) -> Figures:
    """Weights 1:2:5 over many shares with jobs that take 10:1, of which one is very deep."""
    slots, short, long = 40 if size.quick else 100, 0.05, 0.5
    service = _Service(0.0)
    async with place(ground, "shares", concurrency=slots, grace=2) as made:

        @made.app.task(fairness_key="share")
        async def work(share: int) -> None:
            run = service.begin(share)
            try:
                await asyncio.sleep(long if share // len(_WEIGHTS) % 2 else short)
            finally:
                service.end(run)

        await made.app.migrate()
        await made.app.queues.set_policy("default", "fair")
        weights = {share: _WEIGHTS[share % len(_WEIGHTS)] for share in range(size.shares)}
        async with made.connection() as c:
            await c.executemany(
                "insert into rota.fair_weight (namespace, queue, key, weight)"
                " values ('default', 'default', $1, $2)",
                [(str(share), float(weight)) for share, weight in weights.items()],
            )
        unit = size.share_seconds * slots / sum(weights.values())  # seconds of a weight of 1
        for share, weight in weights.items():
            takes = long if share // len(_WEIGHTS) % 2 else short
            jobs = size.deep_share if share == 0 else int(unit * weight / takes * 1.5) + 5
            for start in range(0, jobs, 10_000):
                await work.submit_many([(share,)] * min(10_000, jobs - start))
        await made.value("analyze rota.present")
        async with made.node():
            await until(lambda: len(service.ran) > slots)
            service.since = time.monotonic()
            await asyncio.sleep(size.share_seconds)
            service.until = time.monotonic()
        got = service.seconds()
    return _judged(got, weights, slots * (service.until - service.since))


def _judged(got: dict[int, float], weights: dict[int, int], offered: float) -> Figures:
    whole = sum(got.values())
    each = whole / sum(weights.values())
    worst = 0.0
    for weight in _WEIGHTS:
        members = [share for share, its in weights.items() if its == weight]
        worst = max(
            worst, abs(sum(got[share] for share in members) / len(members) / weight / each - 1)
        )
    normal = [got[share] / weight for share, weight in weights.items()]
    jain = sum(normal) ** 2 / (len(normal) * sum(value**2 for value in normal))
    return {
        "off": worst, "jain": jain, "deep_off": abs(got[0] / weights[0] / each - 1),
        "used": whole / offered,
    }  # fmt: skip


async def weight(ground: Ground, size: Size) -> Figures:
    """Seconds from a change of a weight from 1 to 9, of two shares with a backlog, until it acts:
    until four fifths of the last fifty starts are of that share, where it is nine tenths in the end."""
    last: deque[str] = deque(maxlen=50)
    ran: dict[str, int] = defaultdict(int)
    async with place(ground, "weight", concurrency=20) as made:

        @made.app.task(fairness_key="share")
        async def work(share: str) -> None:
            last.append(share)
            ran[share] += 1
            await asyncio.sleep(0.05)

        app = made.app
        await app.migrate()
        await app.queues.set_policy("default", "fair")
        for share in "ab":
            await work.submit_many([(share,)] * 10_000)
        worst = 0.0
        async with made.node():
            await until(lambda: ran["a"] > 200)
            for heavy in "abab"[: 2 if size.quick else 4]:
                await app.queues.set_weight("default", heavy, 9)
                began = time.monotonic()
                await until(lambda heavy=heavy: last.count(heavy) >= 40)  # type: ignore[misc]
                worst = max(worst, time.monotonic() - began)
                await app.queues.set_weight("default", heavy, 1)
                await until(lambda heavy=heavy: last.count(heavy) <= 28)  # type: ignore[misc]
    return {"seconds": worst}


# -- a full key in front

_FILL = """
    insert into rota.present (id, rank, due_at, namespace, lane, share, task, payload)
    select rota.new_id(), n, now(), 'default', $2, $3, 'slow', '{}'
    from generate_series(1, $1::bigint) as n
"""


class _Lane:
    """A queue in which one job of a key may run at a time, and one that runs for ever."""

    def __init__(self, made: Place) -> None:
        self.place = made
        self.starts: dict[int, float] = {}
        self.waits: list[float] = []

        @made.app.task
        async def slow() -> None:
            await asyncio.sleep(3600)

        @made.app.task
        async def quick(number: int) -> None:
            self.starts[number] = time.monotonic()

        self._slow, self._quick = slow, quick

    async def fill(self, jobs: int) -> None:
        app = self.place.app
        await app.migrate()
        await app.queues.set_limits("default", concurrency_per_key=1)
        await self._slow.options(concurrency_key="full").submit()
        async with self.place.connection() as c:
            row = await c.fetchrow("select lane, share from rota.present")
            for start in range(0, jobs, 500_000):
                await c.execute(_FILL, min(500_000, jobs - start), row["lane"], row["share"])
            await c.execute("select rota.hint('default', $1, 1, $2)", row["lane"], jobs + 1)
            await c.execute("vacuum analyze rota.present")

    async def start_one(self, number: int) -> None:
        began = time.monotonic()
        await self._quick.options(concurrency_key="other").submit(number)
        await until(lambda: number in self.starts)
        self.waits.append(self.starts[number] - began)


async def front(ground: Ground, size: Size) -> Figures:
    """From submit to start of a key's jobs, one by one, with so many of a full key in front and with
    none."""
    async with (
        place(ground, "front", concurrency=_FRONT_SLOTS, grace=0.5) as full,
        place(ground, "alone", concurrency=_FRONT_SLOTS, grace=0.5) as alone,
    ):
        behind, free = _Lane(full), _Lane(alone)
        await behind.fill(size.front)
        await free.fill(0)
        async with full.node(), alone.node():
            for number in range(size.starts + 20):
                for lane in (behind, free) if number % 2 else (free, behind):
                    await lane.start_one(number)
    found = {"behind": sorted(behind.waits[20:]), "free": sorted(free.waits[20:])}
    figures: dict[str, Any] = {}
    for name, waits in found.items():
        figures[f"{name}_p50_ms"] = waits[len(waits) // 2] * 1000
        figures[f"{name}_p99_ms"] = waits[int(len(waits) * 0.99) - 1] * 1000
    figures["ratio"] = figures["behind_p99_ms"] / figures["free_p99_ms"]
    figures["p50_ratio"] = figures["behind_p50_ms"] / figures["free_p50_ms"]
    return figures
