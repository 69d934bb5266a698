"""The keys of a fair queue that have a backlog get slots in proportion to their weights.

While two keys have jobs that wait, the seconds that their jobs ran, over their keys' weights, differ by
no more than what can be under way when that time begins and ends; and by what their jobs took too long
shortly before, on a node that was stopped, say: a key pays for that when the node tells it.
"""

from __future__ import annotations

from itertools import combinations

from proof import keyed_tasks as keyed
from proof.checker.facts import Facts
from proof.checker.overlap import held_until
from proof.checker.report import Found, Tally

Span = tuple[float, float]
_SHORTEST = 5.0  # seconds: less says nothing
_SHORTLY = 60.0


def shares_are_fair(facts: Facts, tally: Tally) -> Found:
    served = {key: _spans(facts, key) for key in keyed.SHARES}
    backlogs = {key: _backlog(facts, key) for key in keyed.SHARES}
    for one, other in combinations(keyed.SHARES, 2):
        first = max(backlogs[one][0], backlogs[other][0])
        last = min(backlogs[one][1], backlogs[other][1])
        if last - first < _SHORTEST:
            continue
        tally["pairs of keys"] += 1
        weights = keyed.SHARES[one], keyed.SHARES[other]
        got = [
            sum(max(0.0, min(end, last) - max(start, first)) for start, end in served[key]) / weight
            for key, weight in zip((one, other), weights, strict=True)
        ]
        allowed = 1.5 * keyed.AT_ONCE * keyed.LONGEST * sum(1 / weight for weight in weights)
        allowed += max(
            _overtime(facts, key, first - _SHORTLY) / weight
            for key, weight in zip((one, other), weights, strict=True)
        )
        if abs(got[0] - got[1]) > allowed:
            sentence = (
                f"{one} got {got[0]:.1f} s for a weight of 1 and {other} {got[1]:.1f} s, while both "
                f"waited from {first:.1f} to {last:.1f}: {allowed:.1f} s apart are allowed"
            )
            yield f"queue {keyed.SHARED}", sentence, ()


def _key_of(share: str | None) -> str:
    """The fairness key among the keys of a job."""
    parts = dict(part.split("=", 1) for part in (share or "").split("&") if part)
    return parts.get("f", "")


def _spans(facts: Facts, key: str) -> list[Span]:
    """When its jobs ran. What a killed process left open ended with it."""
    spans: list[Span] = []
    for job, attempts in facts.attempts.items():
        if job in facts.jobs and _is_of(facts, job, key):
            for place, attempt in enumerate(attempts):
                end = held_until(facts, facts.jobs[job], attempt, attempts[place + 1 :])
                spans.append((attempt.start.at, end))
    return spans


def _overtime(facts: Facts, key: str, since: float) -> float:
    """The seconds that its attempts took beyond what one takes, of those that ended from then on."""
    ends = [
        (attempt.start.at, attempt.end.at)
        for job, attempts in facts.attempts.items()
        if job in facts.jobs and _is_of(facts, job, key)
        for attempt in attempts
        if attempt.end is not None
    ]
    return sum(max(0.0, end - start - 2 * keyed.LONGEST) for start, end in ends if end >= since)


def _is_of(facts: Facts, job: str, key: str) -> bool:
    row = facts.jobs[job]
    return row.task == keyed.SHARED and _key_of(row.share) == key


def _backlog(facts: Facts, key: str) -> Span:
    """From when to when jobs of a key waited that were submitted after the healing."""
    healed = facts.meta.healed
    rows = [
        row
        for row in facts.jobs.values()
        if _is_of(facts, row.id, key) and facts.at(row.created_at) >= healed - 1.0
    ]
    starts = sorted(facts.attempts[row.id][0].start.at for row in rows if row.id in facts.attempts)
    if len(starts) <= keyed.AT_ONCE:
        return float("inf"), float("-inf")
    # All that came together are there; and the last of them may wait for nobody but for their slots.
    return max(facts.at(row.due_at) for row in rows), starts[-keyed.AT_ONCE - 1]
