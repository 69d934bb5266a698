"""The figures of a run."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from proof.checker.facts import FIRED, STATES, SUCCEEDED, Facts
from proof.checker.timing import calm_lags, percentile


def title_of(facts: Facts) -> str:
    meta = facts.meta
    seed = "" if meta.seed is None else f" with seed {meta.seed}"
    note = f" ({meta.note})" if meta.note else ""
    return (
        f"A history of {meta.kind}{seed}{note}: {meta.healed - meta.started:.1f} s until it was "
        f"healed, {meta.ended - meta.healed:.1f} s after that"
    )


def stats_of(facts: Facts) -> dict[str, str]:
    figures = {
        "jobs": _counts(Counter(STATES[row.state] for row in facts.jobs.values())),
        "submissions": _counts(_answers(facts)),
        "occurrences": _counts(
            Counter(
                "fired" if row.state == FIRED else f"skipped ({row.reason})"
                for row in facts.occurrences
            )
        ),
    }
    figures |= _starts(facts)
    figures["refused successes"] = f"{_refused_successes(facts):,}"
    figures["shard takeovers"] = f"{len(facts.moves):,}"
    figures["faults"] = _counts(Counter(fault.kind for fault in facts.faults))
    figures["lag away from faults"] = _lags(facts)
    return figures


def _answers(facts: Facts) -> Counter[str]:
    answers: Counter[str] = Counter()
    for request in facts.requests.values():
        known = "acknowledged" if request.acknowledged else "unknown" if request.open else "refused"
        answers[known] += 1
    return answers


def _starts(facts: Facts) -> dict[str, str]:
    """A start after a failure is a retry; one that didn't wait for an end took the job over."""
    starts, retries, takeovers, late = 0, 0, 0, 0
    for attempts in facts.attempts.values():
        starts += len(attempts)
        for before, after in pairwise(attempts):
            late += after.start.at < before.start.at
            if before.end is not None and before.end.at <= after.start.at and not before.ended_ok:
                retries += 1
            else:
                takeovers += 1
    more_than_once = sum(len(attempts) > 1 for attempts in facts.attempts.values())
    return {
        "starts": f"{starts:,}, of {len(facts.attempts):,} jobs; {more_than_once:,} more than once",
        "second starts": f"{retries:,} retries, {takeovers:,} takeovers",
        "stale starts": f"{late:,}, after a newer one of the same job",
    }


def _refused_successes(facts: Facts) -> int:
    """Handlers that ended well under a lease that was over, so that it didn't count."""
    refused = 0
    for job, attempts in facts.attempts.items():
        row = facts.jobs.get(job)
        for attempt in attempts:
            counted = row is not None and row.state == SUCCEEDED and row.token == attempt.token
            refused += attempt.ended_ok and row is not None and not counted
    return refused


def _lags(facts: Facts) -> str:
    lags = calm_lags(facts)
    if not lags:
        return "none was measured"
    p50, p99 = percentile(lags, 0.5), percentile(lags, 0.99)
    return f"p50 {p50:.3f} s, p99 {p99:.3f} s, max {lags[-1]:.3f} s, of {len(lags):,} jobs"


def _counts(counter: Counter[str]) -> str:
    if not counter:
        return "none"
    parts = ", ".join(f"{count:,} {what}" for what, count in counter.most_common())
    return parts if len(counter) == 1 else f"{counter.total():,}: {parts}"
