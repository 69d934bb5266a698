"""Nothing starts early; and away from faults nothing starts late for which a worker had a free slot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proof import keyed_tasks as keyed
from proof.checker.attempts import evidence_of
from proof.checker.facts import Attempt, Facts, JobRow
from proof.checker.report import Found, Tally, line
from proof.checker.slots import Slots

_WAITS_FOR_ITS_TURN = {"queue", "kill"}


def _set_back(facts: Facts, start: float) -> float:
    """By how much the database's clock was set back shortly before: nodes notice it with their next
    heartbeat, and start jobs by the time before until then (docs/guarantees.md)."""
    lease = facts.meta.lease_seconds
    return sum(
        -step.by for step in facts.meta.clock_steps if step.by < 0 and 0 <= start - step.at <= lease
    )


def starts_are_on_time(facts: Facts, tally: Tally) -> Found:
    slots = Slots(facts)
    for row, first in first_starts(facts):
        tally["first starts"] += 1
        due = facts.at(row.due_at)
        wanted = [due, *_asked_for(facts, row)]
        early = max(wanted) - first.start.at
        if early > facts.meta.clock_error + _set_back(facts, first.start.at):
            evidence = (*evidence_of([first], row), *_records(facts, row))
            yield f"job {row.id}", f"started {early:.3f} s before it was due", evidence
        if row.task not in keyed.WAITS and is_calm(facts, row, due):
            tally["jobs due in calm"] += 1
            sentence = _late(facts, slots, row, due, first.start.at)
            if sentence:
                yield f"job {row.id}", sentence, evidence_of([first], row)
            elif first.start.at - due > facts.meta.max_lag:
                tally["late for want of a slot"] += 1


def _late(facts: Facts, slots: Slots, row: JobRow, due: float, started: float) -> str | None:
    """Where it isn't known how many slots a worker has, nothing excuses a late start."""
    lag = started - due
    if lag <= facts.meta.max_lag:
        return None
    sentence = f"started {lag:.3f} s after it was due, away from faults"
    if not slots.known:
        return f"{sentence}; {facts.meta.max_lag:g} s are allowed"
    idle = slots.neglected(row, due, started)
    if idle is None:
        return None
    return (
        f"{sentence}, and {idle.node} had a free slot from {idle.since:.3f} to {idle.until:.3f}; "
        f"{facts.meta.max_lag:g} s are allowed"
    )


def first_starts(facts: Facts) -> Iterator[tuple[JobRow, Attempt]]:
    """Jobs whose row still says when they were first due: a retry is due later."""
    for job, attempts in facts.attempts.items():
        row = facts.jobs.get(job)
        if row is None or job in facts.steered["retry"]:
            continue
        if row.attempt <= 1 and not row.attempts and not row.crashes:
            yield row, min(attempts, key=lambda attempt: attempt.start.at)


def is_calm(facts: Facts, row: JobRow, due: float) -> bool:
    """Whether nothing was broken for a while before and after it was due, nor is it made to wait."""
    meta = facts.meta
    promises = facts.promises_of(row)
    if any(promise.overlap in _WAITS_FOR_ITS_TURN for promise in promises):
        return False
    if row.schedule_id is not None and not promises:  # a backfill's
        return False
    if due < meta.started + meta.calm_after or due > meta.ended - meta.calm_after:
        return False
    return not facts.disturbed(due - meta.calm_after, due + meta.calm_after)


def calm_lags(facts: Facts) -> list[float]:
    return sorted(
        first.start.at - due
        for row, first in first_starts(facts)
        for due in [facts.at(row.due_at)]
        if row.task not in keyed.WAITS and is_calm(facts, row, due)
    )


def percentile(values: Sequence[float], share: float) -> float:
    """Of values in order: the smallest that at least this share of them doesn't exceed."""
    place = max(0, -int(-share * len(values) // 1) - 1)
    return values[min(place, len(values) - 1)]


def _asked_for(facts: Facts, row: JobRow) -> list[float]:
    """When the client wanted it, by the client's own record; the earliest if several asked."""
    own = facts.requests.get(row.id)
    by_key = facts.requests.get(row.key) if row.key else None
    known = [
        min(facts.at(request.due), request.wanted_at)
        for request in (own, by_key)
        if request is not None and request.due is not None and request.wanted_at is not None
    ]
    return [min(known)] if known else []


def _records(facts: Facts, row: JobRow) -> tuple[str, ...]:
    return tuple(line("clients", record) for record in facts.records_of(row.key or row.id))
