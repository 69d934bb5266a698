"""What Rota wants to reach beside its peers, and whether it did: ratios of one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Middle = Callable[[str, str, str], float | None]


@dataclass(frozen=True)
class Judged:
    goal: str
    seen: str
    verdict: str


def judge(middle: Middle, peers: list[str]) -> list[Judged]:
    """Those goals for which there are figures."""
    rows = [
        _rate(middle, "graphile-worker", 1.0),
        _rate(middle, "pgqueuer", 2.5),
        _rate_of_best(middle, ["celery", "dramatiq", "procrastinate"], 8.0),
        _lag(middle, peers, "herd", "p99", "Lag p99 of 100,000 due within one second"),
        _lag(middle, peers, "pick_up", "p50", "Idle pick-up p50"),
        _lag(middle, peers, "pick_up", "p99", "Idle pick-up p99"),
        _of_own(middle, "held", "noop_async", 0.8, "With a transaction held open, of without"),
        _stored(middle),
    ]
    return [row for row in rows if row is not None]


def _verdict(reached: bool) -> str:
    return "reached" if reached else "**not reached**"


def _rate(middle: Middle, peer: str, least: float) -> Judged | None:
    ours, theirs = middle("noop_async", "rota", "rate"), middle("noop_async", peer, "rate")
    if not ours or not theirs:
        return None
    ratio = ours / theirs
    return Judged(
        f"No-op jobs: at least {least:g} of {peer}", f"{ratio:.2f}", _verdict(ratio >= least)
    )


def _rate_of_best(middle: Middle, peers: list[str], least: float) -> Judged | None:
    ours = middle("noop_async", "rota", "rate")
    theirs = {peer: rate for peer in peers if (rate := middle("noop_async", peer, "rate"))}
    if not ours or not theirs:
        return None
    best = max(theirs, key=lambda peer: theirs[peer])
    ratio = ours / theirs[best]
    goal = f"No-op jobs: at least {least:g} of the best of {', '.join(theirs)}"
    return Judged(goal, f"{ratio:.1f} of {best}", _verdict(ratio >= least))


def _lag(middle: Middle, peers: list[str], workload: str, key: str, what: str) -> Judged | None:
    ours = middle(workload, "rota", key)
    others = [peer for peer in peers if peer != "rota"]
    theirs = {peer: lag for peer in others if (lag := middle(workload, peer, key))}
    if ours is None or not theirs:
        return None
    best = min(theirs, key=lambda peer: theirs[peer])
    seen = f"{ours:,.1f} ms; {best} {theirs[best]:,.1f} ms"
    return Judged(f"{what}: at most the best peer's", seen, _verdict(ours <= theirs[best]))


def _of_own(middle: Middle, workload: str, base: str, least: float, what: str) -> Judged | None:
    with_it, without = middle(workload, "rota", "rate"), middle(base, "rota", "rate")
    if not with_it or not without:
        return None
    ratio = with_it / without
    return Judged(f"{what}: at least {least:g}", f"{ratio:.2f}", _verdict(ratio >= least))


def _stored(middle: Middle) -> Judged | None:
    ratio = middle("growth", "rota", "ratio")
    if ratio is None:
        return None
    goal = "No-ops beside 10 million stored jobs: at least 0.9 of those beside 10 thousand"
    return Judged(goal, f"{ratio:.2f}", _verdict(ratio >= 0.9))
