"""What Rota wants to reach beside its peers, and whether it did: ratios of one run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from bench.peers.catalogue import BY_NAME as PEERS

EARLY = 2.0  # milliseconds before its moment that a start is one too early; clocks are read to less

Middle = Callable[[str, str, str], float | None]

# Why a goal is sometimes missed, as far as we have found out.
_DISK = (
    "a job is stored by one commit and claimed by another, and so it is with every peer: the slowest "
    "hundredth is the disk's, see the spread of two bare commits in the table below"
)
_BOTH_CORES = (
    "workers, clients and PostgreSQL share the cores: see the processor time per job, which is what "
    "can be changed"
)


@dataclass(frozen=True)
class Judged:
    goal: str
    seen: str
    reached: bool
    reason: str = ""

    @property
    def verdict(self) -> str:
        return "reached" if self.reached else f"**not reached**: {self.reason}"


def judge(middle: Middle, peers: list[str]) -> list[Judged]:
    """Those goals for which there are figures."""
    stored = [peer for peer in peers if PEERS[peer].store == "postgres"]
    rows = [
        _rate(middle, "graphile-worker", 1.0),
        _rate(middle, "pgqueuer", 2.5),
        _rate_of_best(middle, ["celery", "dramatiq", "procrastinate"], 8.0),
        _lag(
            middle,
            peers,
            "herd",
            "p99",
            "Lag p99 of 100,000 due within one second",
            part=0.5,
            whose="peer that starts none early",
        ),
        _accounted(middle),
        _lag(middle, stored, "pick_up", "p50", "Idle pick-up p50", "PostgreSQL peer", _DISK),
        _lag(middle, stored, "pick_up", "p99", "Idle pick-up p99", "PostgreSQL peer", _DISK),
        _of_own(middle, "held", "noop_async", 0.8, "With a transaction held open, of without"),
        _stored(middle),
    ]
    return [
        row if row.reason else replace(row, reason=_BOTH_CORES) for row in rows if row is not None
    ]


def _rate(middle: Middle, peer: str, least: float) -> Judged | None:
    ours, theirs = middle("noop_async", "rota", "rate"), middle("noop_async", peer, "rate")
    if not ours or not theirs:
        return None
    ratio = ours / theirs
    return Judged(f"No-op jobs: at least {least:g} of {peer}", f"{ratio:.2f}", ratio >= least)


def _rate_of_best(middle: Middle, peers: list[str], least: float) -> Judged | None:
    ours = middle("noop_async", "rota", "rate")
    theirs = {peer: rate for peer in peers if (rate := middle("noop_async", peer, "rate"))}
    if not ours or not theirs:
        return None
    best = max(theirs, key=lambda peer: theirs[peer])
    ratio = ours / theirs[best]
    goal = f"No-op jobs: at least {least:g} of the best of {', '.join(theirs)}"
    return Judged(goal, f"{ratio:.1f} of {best}", ratio >= least)


def _lag(
    middle: Middle, peers: list[str], workload: str, key: str, what: str, whose: str = "peer",
    reason: str = "", part: float = 1.0,
) -> Judged | None:  # fmt: skip
    ours = middle(workload, "rota", key)
    # Who starts jobs before they are due is no measure of how late they start.
    others = [
        peer for peer in peers
        if peer != "rota" and (middle(workload, peer, "earliest") or 0.0) >= -EARLY
    ]  # fmt: skip
    theirs = {peer: lag for peer in others if (lag := middle(workload, peer, key))}
    if ours is None or not theirs:
        return None
    best = min(theirs, key=lambda peer: theirs[peer])
    seen = f"{ours:,.1f} ms; {best} {theirs[best]:,.1f} ms"
    shown = "" if part == 1 else f"{part:g} of "
    goal = f"{what}: at most {shown}that of the best {whose}"
    return Judged(goal, seen, ours <= theirs[best] * part, reason)


def _accounted(middle: Middle) -> Judged | None:
    missing, twice = (middle("million", "rota", key) for key in ("unaccounted", "twice"))
    if missing is None or twice is None:
        return None
    goal = "A million due within one second: each started once and is in the history as succeeded"
    seen = f"{missing:,.0f} missing, {twice:,.0f} started twice"
    return Judged(goal, seen, not missing and not twice, "see the table below")


def _of_own(middle: Middle, workload: str, base: str, least: float, what: str) -> Judged | None:
    with_it, without = middle(workload, "rota", "rate"), middle(base, "rota", "rate")
    if not with_it or not without:
        return None
    ratio = with_it / without
    return Judged(f"{what}: at least {least:g}", f"{ratio:.2f}", ratio >= least)


def _stored(middle: Middle) -> Judged | None:
    ratio = middle("growth", "rota", "ratio")
    if ratio is None:
        return None
    goal = "No-ops beside 10 million stored jobs: at least 0.9 of those beside 10 thousand"
    return Judged(goal, f"{ratio:.2f}", ratio >= 0.9)
