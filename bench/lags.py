"""How late jobs start: idle pick-up, a herd that is due within one second, and schedules."""

from __future__ import annotations

import time
from typing import Any

from bench.ground import Arena, Trouble, wait_until
from bench.peers.common import MOMENTS
from bench.sizes import WARM, Size, Stats


def pick_up(arena: Arena, size: Size) -> Stats:
    """Milliseconds from just before the submit to the start of the handler, on idle workers."""
    arena.refresh()
    started, sent = arena.records(), arena.records("sent")
    with arena.working():
        _warm(arena, started)
        arena.call("trickle", count=size.latencies, rate=50)
        wait_until(lambda: started.read() >= size.latencies + 1, 20)
        worker_mb = arena.worker_memory()
    sent.read()
    begun = started.firsts()
    lags = sorted(
        (begun[number] - moment) * 1000 for number, moment in sent.seen if number in begun
    )
    return {**_spread(lags), "jobs": size.latencies, "ran": len(lags), "idle_mb": worker_mb}


def _warm(arena: Arena, started: Any) -> None:
    """Until the workers run what is submitted."""
    arena.call("submit", count=1, first=WARM, how="single", task="noop")
    if not wait_until(lambda: started.read() or arena.check_alive(), 60):
        raise Trouble("the workers never ran the job that was to warm them up")
    time.sleep(1.0)  # and have come to rest


def herd(arena: Arena, size: Size) -> Stats:
    """Jobs that are due within one second, stored long before: how late each starts."""
    return _herd(arena, min(arena.peer.limits.get("herd", size.herd), size.herd), size.patience)


def million(arena: Arena, size: Size) -> Stats:
    """A million jobs due within one second, and whether every one is accounted for: started exactly
    once, by the handlers' own records, and in the history as succeeded.
    """
    figures = _herd(arena, size.million, max(size.patience, size.million / 4_000))
    ended = arena.ground.sql(
        "select count(*) from rota.past where state = 5", database=arena.database
    )
    return {**figures, "succeeded": ended, "unaccounted": size.million - min(ended, figures["ran"])}


def _herd(arena: Arena, count: int, patience: float) -> Stats:
    due = _stored_ahead(arena, count)
    started = arena.records()
    with arena.working():
        time.sleep(max(due - time.time(), 0))
        wait_until(lambda: started.read() >= count or arena.check_alive(), patience, 0.1)
        # A start is recorded before its end is stored: the workers stay up until then.
        wait_until(lambda: not arena.left(), 10, 0.1)
    lags = sorted(
        (moment - due - (number * MOMENTS // count) / MOMENTS) * 1000
        for number, moment in started.firsts().items()
    )
    if not lags:
        raise Trouble(f"none started within {patience:g} s")
    # What never started is later than all that we saw.
    missing = count - len(lags)
    lags += [patience * 1000] * missing
    return {
        **_spread(lags), "earliest": lags[0], "jobs": count, "ran": count - missing,
        "twice": started.twice(),
    }  # fmt: skip


def _stored_ahead(arena: Arena, count: int) -> float:
    """Stores them so early that the workers are up long before; the moment at which they are due."""
    for patience in (2.5, 10.0):
        arena.refresh()
        due = time.time() + 10 + count / arena.peer.bulk_pace * patience
        arena.call("submit", count=count, how="bulk", task="noop", due=due, spread=1.0)
        if arena.peer.store == "postgres":
            arena.ground.sql("analyze", "checkpoint", database=arena.database)
        if time.time() < due - 5:
            return due
    raise Trouble(f"storing {count} jobs took until they were due")


def cron_minute(arena: Arena, size: Size) -> Stats:
    """How far apart the starts of many schedules of every minute are, and how many there were."""
    count = min(arena.peer.limits.get("cron_minute", size.schedules_minute), size.schedules_minute)
    started = _scheduled(arena, count, "minute")
    with arena.working(**_told(arena, count, "minute")):
        minute = _next_minute(20 if count > 1000 else 8)
        _sleep_until(minute)
        # Not after the next minute has begun; a little longer, for what is started twice.
        whole = wait_until(lambda: _started_since(started, minute) >= count, 50, 0.25)
        _sleep_until(min(time.time() + 5, minute + 55) if whole else minute + 55)
        arena.check_alive()
    return _cron_figures(started, [minute], 60.0, count)


def _started_since(started: Any, moment: float) -> int:
    started.read()
    return len({number for number, at in started.seen if at >= moment})


def cron_second(arena: Arena, size: Size) -> Stats:
    count = min(arena.peer.limits.get("cron_second", size.schedules_second), size.schedules_second)
    started = _scheduled(arena, count, "second")
    with arena.working(**_told(arena, count, "second")):
        if not wait_until(lambda: started.read() or arena.check_alive(), 90):
            raise Trouble("no schedule fired within 90 s")
        first = int(time.time()) + 3
        _sleep_until(first + size.ticks + 3)
    return _cron_figures(started, list(range(first, first + size.ticks)), 1.0, count)


def _scheduled(arena: Arena, count: int, every: str) -> Any:
    arena.refresh()
    if arena.peer.stored_schedules:
        arena.call("schedule", count=count, every=every)
    return arena.records()


def _told(arena: Arena, count: int, every: str) -> dict[str, Any]:
    """One process is enough for schedules, and the second would have to be told the same."""
    told = {} if arena.peer.stored_schedules else {"schedules": count, "every": every}
    return {"processes": 1, **told}


def _next_minute(least: float) -> int:
    now = time.time()
    minute = int(now // 60 + 1) * 60
    return minute if minute - now >= least else minute + 60


def _sleep_until(moment: float) -> None:
    time.sleep(max(moment - time.time(), 0))


def _cron_figures(started: Any, moments: list[int], period: float, count: int) -> Stats:
    """Of the ticks of these moments: how late each start was, what is missing, what is too many."""
    started.read()
    lags: list[float] = []
    seen: set[tuple[int, int]] = set()
    for number, moment in started.seen:
        # A start belongs to the last tick before it, unless that has been seen: then it is late.
        tick = int((moment - moments[0]) // period)
        while (number, tick) in seen and tick > 0:
            tick -= 1
        if number < WARM and 0 <= tick < len(moments):
            seen.add((number, tick))
            lags.append((moment - moments[tick]) * 1000)
    if not lags:
        raise Trouble("none fired at the expected moment")
    lags.sort()
    expected = count * len(moments)
    return {
        **_spread(lags), "spread_ms": lags[-1] - lags[0], "jobs": expected, "ran": len(seen),
        "twice": len(lags) - len(seen), "missing": expected - len(seen),
    }  # fmt: skip


def _spread(lags: list[float]) -> Stats:
    if not lags:
        raise Trouble("nothing ran")
    at = lambda part: lags[min(int(len(lags) * part), len(lags) - 1)]  # noqa: E731
    return {"p50": at(0.5), "p99": at(0.99), "last": lags[-1]}
