"""Every occurrence is in the ledger, once, with what became of it; and no other is.

The workload's schedules are due at the multiples of a number of seconds since 1970, so that the
expected set is arithmetic: from the schedule's creation to its cursor, which says how far the
ledger goes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from proof.checker.facts import FIRED, SKIPPED, Facts, JobRow, OccurrenceRow, ScheduleRow
from proof.checker.report import Found, Tally, line
from proof.history import SchedulePromise

# Overdue by more than this when first looked at, an occurrence is a missed one: catch-up decides.
MISSED_AFTER = 10.0
# The first cursor is read a few statements before the creation is written: long, on a slow network.
_CREATION_SECONDS = 10.0
_SAME_MOMENT = 1e-5  # what is left of a microsecond after it was a float

_REASONS_OF_OVERLAP = {
    "allow": set(), "skip": {"overlap"},
    "queue": {"overlap_queue_full"}, "kill": {"overlap_queue_full"},
}  # fmt: skip


def every_occurrence_is_in_the_ledger(facts: Facts, tally: Tally) -> Found:
    ledger: dict[str, list[OccurrenceRow]] = defaultdict(list)
    for row in facts.occurrences:
        ledger[row.schedule_id].append(row)
    known = {row.name: row for row in facts.schedules}
    for promise in facts.meta.schedules:
        tally["schedules"] += 1
        schedule = known.get(promise.name)
        if schedule is None:
            yield f"schedule {promise.name}", "isn't in the database", ()
            continue
        rows = sorted(ledger.pop(schedule.id, []), key=lambda row: row.due_at)
        tally["occurrences"] += len(rows)
        yield from _compare(facts, promise, schedule, rows)
        yield from _reasons(promise, rows)
    for rows in ledger.values():
        name = rows[0].schedule or rows[0].schedule_id
        yield f"schedule {name}", "has occurrences, and nobody made it", (_line(rows[0]),)
    yield from _jobs_and_rows(facts, tally)


def _compare(
    facts: Facts, promise: SchedulePromise, schedule: ScheduleRow, rows: Sequence[OccurrenceRow]
) -> Found:
    subject, every = f"schedule {promise.name}", promise.every
    first = (int(schedule.created_at // every) + 1) * every
    last = int((schedule.cursor + _SAME_MOMENT) // every) * every
    found: dict[float, list[OccurrenceRow]] = defaultdict(list)
    for row in rows:
        found[round(row.due_at, 5)].append(row)
    for moment in range(first, last + 1, every):
        own = found.pop(moment, [])
        if len(own) != 1:
            evidence = (line("db-schedule", schedule), *map(_line, own))
            yield subject, f"the occurrence at {moment} has {len(own) or 'no'} rows", evidence
    for due, extra in found.items():
        at_creation = 0 <= schedule.created_at - due <= _CREATION_SECONDS
        if due % every or not at_creation:
            sentence = f"the ledger has an occurrence at {due:.6f}, which isn't due"
            yield subject, sentence, (line("db-schedule", schedule), *map(_line, extra))
    healed = facts.meta.database(facts.meta.healed)
    if first <= int(healed // every) * every > last:
        sentence = (
            f"its ledger ends at {schedule.cursor:.3f}, before all was healed at {healed:.3f}"
        )
        yield subject, sentence, (line("db-schedule", schedule),)


def _reasons(promise: SchedulePromise, rows: Sequence[OccurrenceRow]) -> Found:
    """From the newest to the oldest: what comes after a row says whether it was the latest."""
    after: OccurrenceRow | None = None
    for row in reversed(rows):
        problem = _problem(promise, row, after)
        if problem:
            evidence = (_line(row), *([_line(after)] if after else []))
            yield (
                f"schedule {promise.name}",
                f"the occurrence at {row.due_at:.0f} {problem}",
                evidence,
            )
        if row.reason != "catch_up":
            after = row


def _problem(
    promise: SchedulePromise, row: OccurrenceRow, after: OccurrenceRow | None
) -> str | None:
    """`after` is the next one that wasn't passed over by catch-up."""
    missed = row.decided_at - row.due_at > MISSED_AFTER - _SAME_MOMENT
    if row.caught_up and (promise.catch_up == "none" or not missed):
        why = "the schedule catches up with none" if missed else "it wasn't missed"
        return f"counts as caught up, and {why}"
    if row.state == FIRED:
        return f"fired, with a reason not to: {row.reason}" if row.reason else None
    if row.reason == "catch_up":
        return _problem_of_catch_up(promise, missed, after)
    if row.reason not in _REASONS_OF_OVERLAP[promise.overlap]:
        return (
            f"was skipped for {row.reason or 'no reason'}, which isn't one of a schedule with "
            f"overlap {promise.overlap} and catch-up {promise.catch_up}"
        )
    return None


def _problem_of_catch_up(
    promise: SchedulePromise, missed: bool, after: OccurrenceRow | None
) -> str | None:
    if promise.catch_up == "all":
        return "was skipped by a schedule that catches up with all"
    if not missed:
        return f"was skipped as missed less than {MISSED_AFTER:.0f} s after it was due"
    # Missed ones come in a row, of which the last one runs.
    if promise.catch_up == "latest" and (after is None or not after.caught_up):
        return "was skipped for a later one, and no later one was caught up with"
    return None


def _jobs_and_rows(facts: Facts, tally: Tally) -> Found:
    """A row that fired has one job, and a job of a schedule has one row."""
    for row in facts.occurrences:
        job = facts.jobs.get(row.job_id) if row.job_id else None
        problem = _mismatch(row, job)
        if problem:
            evidence: tuple[str, ...] = (_line(row), *([line("db-job", job)] if job else []))
            sentence = f"the occurrence at {row.due_at:.0f} {problem}"
            yield f"schedule {row.schedule}", sentence, evidence
    rows_of = Counter(row.job_id for row in facts.occurrences if row.job_id)
    for id, count in rows_of.items():
        if count > 1:
            evidence = tuple(_line(row) for row in facts.occurrences if row.job_id == id)
            yield f"job {id}", f"is the job of {count} occurrences", evidence
    for job in facts.jobs.values():
        if job.schedule_id is not None:
            tally["jobs of schedules"] += 1
            if not rows_of[job.id]:
                sentence = "was made by a schedule, and has no occurrence in its ledger"
                yield f"job {job.id}", sentence, (line("db-job", job),)


def _mismatch(row: OccurrenceRow, job: JobRow | None) -> str | None:
    if job is None:
        return "fired, and its job isn't in the database" if row.state == FIRED else None
    if job.schedule_id != row.schedule_id:
        return "has a job of another schedule"
    if (row.state == FIRED) == (job.state == SKIPPED):
        return "and its job disagree whether it was skipped"
    # Unless it was tried again, it is still due when its occurrence is.
    if job.attempt <= 1 and not job.attempts and abs(job.due_at - row.due_at) > _SAME_MOMENT:
        return "has a job that is due at another moment"
    return None


def _line(row: OccurrenceRow) -> str:
    return line("db-occurrence", row)
