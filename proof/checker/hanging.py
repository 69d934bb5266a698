"""What hangs is stopped at its limit; what keeps to its limit is not.

A limit counts from the handler's start, or from its last sign of life. A process that stands still
gives none, and finds out when it goes on.
"""

from __future__ import annotations

from proof.checker.attempts import evidence_of
from proof.checker.facts import Attempt, Facts
from proof.checker.report import Found, Tally
from proof.history import PAUSE, TaskPromise

_STOPPED = {"timed_out", "heartbeat_timeout"}
_SAME_MOMENT = 0.001
# In real processes a limit counts from when the worker calls the handler, or sends it to a child
# process; on a busy machine its first line comes later.
_ON_ITS_WAY = 1.0


def hung_work_is_stopped(facts: Facts, tally: Tally) -> Found:
    for job, attempts in facts.attempts.items():
        promise = facts.meta.tasks.get(attempts[0].start.task)
        if promise is None or promise.limit is None:
            continue
        row = facts.jobs.get(job)
        stopped = {e.token for e in (row.attempts if row else None) or () if e.outcome in _STOPPED}
        for attempt in attempts:
            problem = _goes_on(facts, promise, promise.limit, attempt, tally)
            if problem is None and attempt.token in stopped:
                tally["stopped"] += 1
                problem = _unjust(facts, promise, promise.limit, attempt)
            if problem:
                yield f"job {job}", problem, evidence_of([attempt], row)


def _goes_on(
    facts: Facts, promise: TaskPromise, limit: float, attempt: Attempt, tally: Tally
) -> str | None:
    """Away from faults: else its node may be gone, or have to ask for the limit."""
    begun, until = attempt.start.at, attempt.start.at + limit + facts.meta.max_lag
    if not promise.hangs or until > facts.meta.ended or facts.disturbed(begun, until):
        return None
    tally["limits in calm"] += 1
    if attempt.end is not None and attempt.end.at <= until:
        return None
    lasted = (attempt.end.at if attempt.end else facts.meta.ended) - begun
    return f"went on for {lasted:.1f} s in one attempt: its limit is {limit:g} s"


def _unjust(facts: Facts, promise: TaskPromise, limit: float, attempt: Attempt) -> str | None:
    node, begun = attempt.start.node, attempt.start.at
    ended = attempt.end.at if attempt.end else facts.meta.ended
    if any(f.at <= ended and f.until >= begun for f in facts.faults_of(PAUSE, node)):
        return None
    if not promise.hangs:
        return "was stopped for its limit, which it keeps to"
    # The transaction of an exactly_once handler is begun before the handler, and counts.
    late = _SAME_MOMENT if facts.meta.kind == "simulation" else _ON_ITS_WAY
    early = attempt.end is not None and ended - begun < limit - late
    if early and promise.guarantee != "exactly_once":
        return f"was stopped after {ended - begun:.3f} s: its limit is {limit:g} s"
    return None
