"""Nobody begins what he can't be holding any more.

A process whose words don't reach the database loses its lease when the last one has run out; it knows
that by its own clock, and must begin nothing from then on. What it has begun may go on: nobody could
tell it from a database that is away for all. One that stood still meanwhile may have its first line
after that: it had begun before.
"""

from __future__ import annotations

import re

from proof.checker.facts import Facts, hits
from proof.checker.report import Found, Tally, line
from proof.history import PAUSE, Fault

# Through which no heartbeat comes, unless its detail names the other way alone.
_KINDS = ("partition", "partition_out", "drop_up", "ambush")
_WAYS = re.compile(r"\b(up|down)\b")
_PATIENCE = 0.5
_REAL_PATIENCE = 2.0  # a machine that is busy takes its time


def nothing_begins_without_a_lease(facts: Facts, tally: Tally) -> Found:
    patience = _PATIENCE if facts.meta.kind == "simulation" else _REAL_PATIENCE
    margin = facts.meta.lease_seconds + patience
    silent = [f for f in facts.faults if _silences(f) and f.until - f.at > margin]
    tally["silences"] += len(silent)
    for job, attempts in facts.attempts.items():
        for start in (attempt.start for attempt in attempts):
            for fault in silent:
                since = start.at - fault.at
                if (
                    margin < since < fault.until - fault.at
                    and hits(fault, start.node)
                    and not _stood_still(facts, start.node, fault.at, start.at)
                ):
                    sentence = (
                        f"was started by {start.node}, which had been cut off for {since:.3f} s"
                    )
                    yield f"job {job}", sentence, (line("journal", start), line("faults", fault))


def _silences(fault: Fault) -> bool:
    ways = _WAYS.findall(fault.detail)
    return fault.kind in _KINDS and (not ways or "up" in ways)


def _stood_still(facts: Facts, node: str, first: float, last: float) -> bool:
    return any(
        fault.at <= last and max(fault.at, fault.until) >= first
        for fault in facts.faults_of(PAUSE, node)
    )
