"""Nobody begins, or goes on with, what he can't be holding any more.

A process whose words don't reach the database loses its lease when the last one has run out; it knows
that by its own clock, must begin nothing from then on, and stops what it has begun. One that stood
still meanwhile may have its first line after that: it had begun before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from proof.checker.facts import Attempt, Facts, hits
from proof.checker.report import Found, Tally, line
from proof.history import PAUSE, Beat, Fault

# Through which no heartbeat comes, unless its detail names the other way alone.
_KINDS = ("partition", "partition_out", "drop_up", "ambush")
_WAYS = re.compile(r"\b(up|down)\b")
_PATIENCE = 0.5
_REAL_PATIENCE = 2.0  # a machine that is busy takes its time


def nothing_goes_on_without_a_lease(facts: Facts, tally: Tally) -> Found:
    patience = _PATIENCE if facts.meta.kind == "simulation" else _REAL_PATIENCE
    margin = facts.meta.lease_seconds + patience
    silent = [f for f in facts.faults if _silences(f) and f.until - f.at > margin]
    tally["silences"] += len(silent)
    for job, attempts in facts.attempts.items():
        for attempt in attempts:
            for beat, what in _signs_of_life(facts, attempt):
                for fault in silent:
                    since = beat.at - fault.at
                    if (
                        margin < since < fault.until - fault.at
                        and hits(fault, beat.node)
                        and not _stood_still(facts, beat.node, fault.at, beat.at)
                    ):
                        sentence = f"{what} {beat.node}, which had been cut off for {since:.3f} s"
                        yield f"job {job}", sentence, (line("journal", beat), line("faults", fault))


def _signs_of_life(facts: Facts, attempt: Attempt) -> Iterator[tuple[Beat, str]]:
    """What a process that has lost its lease must not do."""
    yield attempt.start, "was started by"
    promise = facts.meta.tasks.get(attempt.start.task)
    if promise is not None and promise.stops and attempt.end is not None and attempt.ended_ok:
        yield attempt.end, "went on to its end in"


def _silences(fault: Fault) -> bool:
    ways = _WAYS.findall(fault.detail)
    return fault.kind in _KINDS and (not ways or "up" in ways)


def _stood_still(facts: Facts, node: str, first: float, last: float) -> bool:
    return any(
        fault.at <= last and max(fault.at, fault.until) >= first
        for fault in facts.faults_of(PAUSE, node)
    )
