"""After healing everything comes to its end, and to the end that its task's author declared."""

from __future__ import annotations

from proof.checker.attempts import evidence_of
from proof.checker.facts import (
    AT_MOST_ONCE,
    CANCELLED,
    READY,
    RUNNING,
    SCHEDULED,
    SKIPPED,
    STATES,
    SUCCEEDED,
    WAITING,
    Facts,
    JobRow,
)
from proof.checker.report import Found, Tally, line

_UNDER_WAY = {SCHEDULED, READY, RUNNING}
# Why an at_most_once job failed that may have begun, and can't be begun again.
_LOST = {"NodeLost", "Interrupted", "ProcessDied", "StoreUnavailable"}


def nothing_is_stuck(facts: Facts, tally: Tally) -> Found:
    ended = facts.meta.database(facts.meta.ended)
    overdue = ended - facts.meta.stuck_after
    busy = {row.schedule_id for row in facts.jobs.values() if row.state in _UNDER_WAY}
    for row in facts.jobs.values():
        tally["jobs"] += 1
        # One that waits for its schedule's turn may, as long as it is another's turn.
        waits = row.state == WAITING and row.schedule_id not in busy
        if row.state in _UNDER_WAY or waits:
            problem = None
            if row.due_at < overdue:
                problem = (
                    f"is still {STATES[row.state]}, {ended - row.due_at:.1f} s after it was due"
                )
        else:
            problem = _wrong_end(facts, row)
        if problem:
            yield f"job {row.id}", problem, _evidence(facts, row)
    yield from _open_batches(facts, tally, overdue)


def _open_batches(facts: Facts, tally: Tally, overdue: float) -> Found:
    tally["nodes"] += len(facts.nodes)
    for batch in facts.batches:
        node = facts.nodes.get(batch.node)
        if node is None:
            yield f"batch {batch.token}", "belongs to no node", (line("db-batch", batch),)
        elif node.state not in ("live", "draining") and (node.ended_at or 0) < overdue:
            sentence = f"is still open, and its node {node.name} is {node.state}"
            yield f"batch {batch.token}", sentence, (line("db-batch", batch), line("db-node", node))


def _wrong_end(facts: Facts, row: JobRow) -> str | None:
    promise = facts.meta.tasks.get(row.task)
    if row.state == WAITING or promise is None:
        return None
    if row.state == CANCELLED:
        return None if _was_cancelled(facts, row) else "is cancelled, and nobody asked for that"
    if row.state == SKIPPED:
        occurrence = facts.occurrence_of.get(row.id)
        reason = occurrence.reason if occurrence else None
        return None if reason else "is skipped, and no occurrence says why"
    if promise.ends == "any" or STATES[row.state] == promise.ends:
        return None
    if row.state == SUCCEEDED:
        return "succeeded, though its handler always fails"
    return _unexcused_failure(facts, row)


def _was_cancelled(facts: Facts, row: JobRow) -> bool:
    requests = [facts.requests.get(row.id), facts.requests.get(row.key or "")]
    if any(request is not None and request.cancelled for request in requests):
        return True
    if row.id in facts.steered["cancel"] or row.id in facts.steered["discard"]:
        return True
    # Perhaps it was the run around its own; or its deadline has come, or it lost a race.
    if row.run_id is not None and (facts.steered["cancel run"] or facts.sights):
        return True
    life = facts.lives.get(row.schedule_id or "")
    if life is not None and life.deleted is not None:
        return True
    return any(promise.overlap == "kill" for promise in facts.promises_of(row))


def _unexcused_failure(facts: Facts, row: JobRow) -> str | None:
    kind = row.error.type if row.error else "no reason"
    at_most_once = facts.guarantee(row.task, row) == AT_MOST_ONCE
    lost = at_most_once and kind in _LOST
    quarantined = kind == "Quarantined" and row.crashes >= facts.meta.max_crashes
    if not lost and not quarantined:
        return f"failed for {kind}, though its handler succeeds"
    if facts.life_was_calm(row):
        return f"failed for {kind}, though nothing was broken in its life"
    return None


def _evidence(facts: Facts, row: JobRow) -> tuple[str, ...]:
    return evidence_of(facts.attempts.get(row.id, []), row)
