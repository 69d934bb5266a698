"""What operators ask for is done, and leaves nothing behind; what is done once isn't done twice."""

from __future__ import annotations

from collections import Counter, defaultdict

from proof.checker.facts import WAITING, Facts, OccurrenceRow
from proof.checker.report import Found, Tally, line
from proof.checker.verdicts import run_at
from proof.history import Operation

# They, and runs, move on by themselves; nodes end.
_ABOUT_JOBS = {
    "cancel", "retry", "discard", "cancel run", "pause run", "resume run", "retry step",
    "skip step", "send", "submit unique", "drain", "undrain",
}  # fmt: skip


def operations_work(facts: Facts, tally: Tally) -> Found:
    """Done, or refused with a reason: no operator ever sees any other error."""
    for operation in facts.operations:
        tally["operations"] += 1
        if operation.answer == "failed":
            sentence = f"ended with an error that nobody should see: {operation.detail}"
        elif operation.answer == "refused" and not _may_be_refused(operation):
            sentence = f"was refused, and nothing speaks against it: {operation.detail}"
        else:
            continue
        subject = f"{operation.kind} of {operation.subject}"
        yield subject, sentence, (line("operations", operation),)


def _may_be_refused(operation: Operation) -> bool:
    """Jobs move on; schedules are steered by one operator alone, who says what can be."""
    return operation.absurd or operation.kind in _ABOUT_JOBS


def deleted_schedules_leave_nothing(facts: Facts, tally: Tally) -> Found:
    """No job that waits for a turn that never comes, no place that nobody can give back."""
    there = {row.id for row in facts.schedules}
    tally["jobs in line"] += sum(_was_in_line(facts, row) for row in facts.occurrences)
    for row in facts.jobs.values():
        if row.state == WAITING and row.schedule_id is not None and row.schedule_id not in there:
            tally["jobs in line"] += 1
            sentence = "waits for its turn in a schedule that is deleted"
            yield f"job {row.id}", sentence, (line("db-job", row),)
    for gate in facts.gates:
        tally["places"] += 1
        if gate.schedule_id not in there:
            sentence = f"keeps a place for job {gate.job_id}, and is deleted"
            yield f"schedule {gate.schedule_id}", sentence, (line("db-gate", gate),)


def _was_in_line(facts: Facts, row: OccurrenceRow) -> bool:
    """Its job was due, and had not begun when the schedule was deleted."""
    life = facts.lives.get(row.schedule_id)
    if row.reason != "deleted" or row.job_id not in facts.jobs or life is None:
        return False
    return life.deleted is not None and facts.at(run_at(row)) < life.deleted.at


def effects_of_once_happen_once(facts: Facts, tally: Tally) -> Found:
    """Each job of the workload has a key of its own."""
    effects = Counter(beat.job for beat in facts.beats if beat.event == "effect")
    lines = defaultdict(list)
    for beat in facts.beats:
        if effects.get(beat.job, 0) > 1:
            lines[beat.job].append(line("journal", beat))
    for job, count in effects.items():
        tally["effects of once"] += 1
        if count > 1:
            yield f"job {job}", f"had its effect {count} times, guarded by once", tuple(lines[job])
