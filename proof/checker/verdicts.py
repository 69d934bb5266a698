"""What the ledger says of each occurrence, why it fired or was skipped, held against its schedule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proof.checker.facts import FIRED, Facts, OccurrenceRow
from proof.checker.lives import Life
from proof.checker.report import Found, line
from proof.history import SchedulePromise

# Overdue by more than this when first looked at, an occurrence is a missed one: catch-up decides.
_MISSED_AFTER = 10.0
SAME_MOMENT = 1e-5  # what is left of a microsecond after it was a float

_REASONS_OF_OVERLAP = {
    "allow": set(), "skip": {"overlap"},
    "queue": {"overlap_queue_full"}, "kill": {"overlap_queue_full"},
}  # fmt: skip
BY_HAND = {"triggered", "backfilled"}


def reasons(facts: Facts, life: Life, rows: Sequence[OccurrenceRow]) -> Found:
    """From the newest to the oldest: what comes after a row says whether it was the latest."""
    after: OccurrenceRow | None = None
    for row in reversed(rows):
        problem = _problem_of_row(facts, life, row, after, rows)
        if problem:
            evidence = (
                line("db-occurrence", row),
                *([line("db-occurrence", after)] if after else []),
            )
            yield f"schedule {life.name}", f"the occurrence at {row.due_at:.0f} {problem}", evidence
        if row.reason != "catch_up" and not _is_by_hand(life, row):
            after = row


def _is_by_hand(life: Life, row: OccurrenceRow) -> bool:
    """Also one whose reason says, since its turn came, that there was no place for it."""
    return row.reason in BY_HAND or all(row.due_at % each.every for each in life.promises)


def _problem_of_row(
    facts: Facts, life: Life, row: OccurrenceRow, after: OccurrenceRow | None,
    rows: Sequence[OccurrenceRow],
) -> str | None:  # fmt: skip
    """By the version that decided, if it is certain which one that was."""
    margin = facts.meta.horizon + facts.meta.clock_error
    due, decided = facts.at(row.due_at), facts.at(row.decided_at)
    if row.reason in BY_HAND:
        return None
    if row.reason == "paused":
        paused = life.may_be_paused(due, margin)
        return None if paused else "was skipped as paused, and nobody had paused it"
    if row.reason == "deleted":
        return None if life.deleted else "was skipped as deleted, and nobody had deleted it"
    ruling = life.holding(due, margin)
    if len(ruling) != 1 or row.due_at % ruling[0].promise.every or not ruling[0].readable:
        return None
    fired = row.state == FIRED and not row.caught_up
    if fired and life.surely_paused(decided, margin) and life.surely_paused(due, margin):
        return "fired while the schedule was paused"
    if row.state != FIRED and row.reason != "catch_up":
        return _problem_of_overlap(life, row)
    if after is not None and life.holding(facts.at(after.due_at), margin) != ruling:
        return None
    if _set_between(facts, row, after or row):
        return None
    if row.reason == "catch_up" and after is not None and not _is_latest(after):
        own = [r for r in rows if not _is_by_hand(life, r)]
        others = (r for r in own if life.holding(facts.at(r.due_at), margin) != ruling)
        skipped = [r for r in own if row.due_at <= r.due_at < after.due_at]
        after = _latest_of_others(skipped, others) or after
    certain = life.deleted is None and len(life.versions) == 1
    return _problem(ruling[0].promise, row, after, certain=certain)


def _latest_of_others(
    skipped: Sequence[OccurrenceRow], others: Iterable[OccurrenceRow]
) -> OccurrenceRow | None:
    """The one of a later version that these were skipped for, each for the next one, and the last one
    because that version had missed ones, too, when the last one was decided on. Those that fire on time,
    beside the latest, may be in between: an occurrence that is spread runs after later ones that
    aren't."""
    last = [row for row in skipped if row.reason == "catch_up"][-1]
    later = [row for row in others if row.due_at > last.due_at]
    if not any(run_at(row) < last.decided_at - _MISSED_AFTER for row in later):
        return None
    return next((row for row in later if _is_latest(row)), None)


def _set_between(facts: Facts, row: OccurrenceRow, after: OccurrenceRow) -> bool:
    """The database's clock was set between the two decisions, or at one of them: what was missed by the
    time before may be on time by the time after it."""
    margin = facts.meta.clock_error
    first, last = sorted((facts.at(row.decided_at), facts.at(after.decided_at)))
    return any(first - margin <= step.at <= last + margin for step in facts.meta.clock_steps)


def _problem_of_overlap(life: Life, row: OccurrenceRow) -> str | None:
    """By what it said when the job was to start: at any time."""
    reasons: set[str] = set()
    for promise in life.promises:
        reasons |= _REASONS_OF_OVERLAP[promise.overlap]
        if promise.overlap == "allow" and promise.max_running is not None:
            reasons.add("overlap")
    if row.reason in reasons:
        return None
    said = " or ".join(sorted({promise.overlap for promise in life.promises}))
    return (
        f"was skipped for {row.reason or 'no reason'}, which isn't one of a schedule with "
        f"overlap {said} and catch-up {life.last.promise.catch_up}"
    )


def _problem(
    promise: SchedulePromise, row: OccurrenceRow, after: OccurrenceRow | None, *, certain: bool
) -> str | None:
    """`after` is the next one that wasn't passed over by catch-up."""
    due = run_at(row)
    late = row.decided_at - due
    missed = late > _MISSED_AFTER - SAME_MOMENT
    if row.caught_up and (promise.catch_up == "none" or not missed):
        why = "the schedule catches up with none" if missed else "it wasn't missed"
        return f"counts as caught up, and {why}"
    if row.state == FIRED:
        return f"fired, with a reason not to: {row.reason}" if row.reason else None
    if promise.within is not None and late > promise.within - SAME_MOMENT and missed:
        return None
    if after is None and not certain:
        return None
    return _problem_of_catch_up(promise, missed, after)


def _problem_of_catch_up(
    promise: SchedulePromise, missed: bool, after: OccurrenceRow | None
) -> str | None:
    if promise.catch_up == "all":
        return "was skipped by a schedule that catches up with all"
    if not missed:
        return f"was skipped as missed less than {_MISSED_AFTER:.0f} s after it was due"
    # Missed ones come in a row, of which the last one runs, unless the schedule is deleted before that.
    if promise.catch_up == "latest" and (after is None or not _is_latest(after)):
        return "was skipped for a later one, and no later one was caught up with"
    return None


def run_at(row: OccurrenceRow) -> float:
    return row.due_at if row.run_at is None else row.run_at


def _is_latest(row: OccurrenceRow) -> bool:
    return row.caught_up or row.reason == "deleted"
