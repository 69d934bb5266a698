"""How often jobs are started, in which order, and by whom.

What the engine promises, and therefore what is checked:

- A token is given to one node, and a job starts at most once under it.
- Tokens rise with every claim of a job. So does the number of the attempt, except that an attempt that
  a shutdown gave back isn't counted: its number is used again.
- A handler that fails in attempt `max_attempts` is not tried again. Losing a node is not the handler's
  fault: an attempt beyond `max_attempts` comes only after a loss, and the job is quarantined at the
  `max_crashes`th. So no attempt has a number above

      max_attempts + min(crashes, max_crashes - 1),

  `crashes` being what the job's row says. Together: a job starts at most that often, plus once for
  every shutdown of a node that it ran on. A node that gives its own start up ends in the same way:
  what its worker had begun by then goes back.
- A node starts nothing without trust in its lease. A process that stands still between that look and
  the handler's first line starts late, under a token that is over: its writes are refused. On a busy
  machine that happens by itself, so that a start under a smaller token than one before it is only
  counted when it comes within a lease after that; later, only a pause of its process excuses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from proof.checker.facts import (
    AT_MOST_ONCE,
    CANCELLED,
    EXACTLY_ONCE,
    SUCCEEDED,
    Attempt,
    Facts,
    JobRow,
)
from proof.checker.report import Found, Tally, line
from proof.history import INTERRUPTED, OK, PAUSE, SHUTDOWN, WITHDRAWAL

# How an attempt may end through its handler's own doing, so that it is tried again.
_OWN_FAULT = {"raised", "timed_out", "heartbeat_timeout", "crashed"}


def at_most_once_starts_once(facts: Facts, tally: Tally) -> Found:
    """By the jobs' own journals, and the guarantee that their author declared."""
    for job, attempts in facts.attempts.items():
        row = facts.jobs.get(job)
        if facts.guarantee(attempts[0].start.task, row) == AT_MOST_ONCE:
            tally["at_most_once jobs"] += 1
            if len(attempts) > 1 and job not in facts.steered["retry"]:
                sentence = f"is at_most_once, and was started {len(attempts)} times"
                yield f"job {job}", sentence, evidence_of(attempts, row)


def attempts_are_counted(facts: Facts, tally: Tally) -> Found:
    yield from _one_node_per_token(facts, tally)
    for job, attempts in facts.attempts.items():
        tally["starts"] += len(attempts)
        row = facts.jobs.get(job)
        if job in facts.steered["retry"]:  # counted afresh
            continue
        problem = _too_far(facts, row, attempts)
        if problem is None and len(attempts) > 1:
            problem = _out_of_order(facts, attempts)
        if problem:
            yield f"job {job}", problem, evidence_of(attempts, row)


def _one_node_per_token(facts: Facts, tally: Tally) -> Found:
    holders: dict[int, Attempt] = {}
    for attempts in facts.attempts.values():
        for attempt in attempts:
            holder = holders.setdefault(attempt.token, attempt)
            if holder.start.node != attempt.start.node:
                sentence = f"was given to two nodes, {holder.start.node} and {attempt.start.node}"
                evidence = (line("journal", holder.start), line("journal", attempt.start))
                yield f"token {attempt.token}", sentence, evidence
    tally["tokens"] += len(holders)


def _too_far(facts: Facts, row: JobRow | None, attempts: Sequence[Attempt]) -> str | None:
    task = attempts[0].start.task
    if facts.guarantee(task, row) == AT_MOST_ONCE:
        return None  # has a rule of its own, which is stricter
    promise = facts.meta.tasks.get(task)
    allowed = promise.max_attempts if promise else row.max_attempts if row else 0
    spare = facts.meta.max_crashes - 1
    losses = min(row.crashes, spare) if row else spare
    if row is not None and row.state != CANCELLED:
        lost = sum(entry.outcome == "lost" for entry in row.attempts or ())
        if lost > row.crashes:
            return f"was lost with its node {lost} times, of which {row.crashes} were counted"
    number = max(attempt.start.attempt for attempt in attempts)
    if allowed and number > allowed + losses:
        return (
            f"was started in attempt {number}: it may have {allowed}, and {losses} more for the "
            "times that its node was lost"
        )
    return None


def _out_of_order(facts: Facts, attempts: Sequence[Attempt]) -> str | None:
    for before, after in pairwise(attempts):
        earlier, later = before.start, after.start
        if earlier.token == later.token:
            return f"was started twice under token {later.token}"
        if later.attempt < earlier.attempt:
            return (
                f"went back from attempt {earlier.attempt} to {later.attempt} under a newer token"
            )
        if later.attempt == earlier.attempt and not _given_back(facts, before, after):
            return (
                f"was started twice in attempt {later.attempt}, and {earlier.node} was not shut "
                "down in between"
            )
        if later.at < earlier.at and not _overslept(facts, before, after):
            return (
                f"was started under token {earlier.token} after token {later.token} had started, "
                f"and {earlier.node} had not been paused"
            )
    return None


def _given_back(facts: Facts, before: Attempt, after: Attempt) -> bool:
    """A shutdown interrupted it: somebody asked for that, or its node gave its own start up."""
    node = before.start.node
    return any(
        fault.at <= after.start.at and max(fault.at, fault.until) >= before.start.at
        for fault in [*facts.faults_of(SHUTDOWN, node), *facts.faults_of(WITHDRAWAL, node)]
    )


def _overslept(facts: Facts, stale: Attempt, newer: Attempt) -> bool:
    """Its process stood still while its lease ran out, and its first line comes after all."""
    lease = facts.meta.lease_seconds
    since = newer.start.at - lease
    return stale.start.at <= newer.start.at + lease or any(
        fault.at <= stale.start.at and fault.until >= since
        for fault in facts.faults_of(PAUSE, stale.start.node)
    )


def no_extra_runs(facts: Facts, tally: Tally) -> Found:
    """What has succeeded is over, and without a fault there is one start."""
    for job, attempts in facts.attempts.items():
        row = facts.jobs.get(job)
        if row is None:
            continue
        if row.state == SUCCEEDED:
            tally["succeeded jobs"] += 1
            if _ran_after_success(facts, row, attempts):
                sentence = f"succeeded under token {row.token}, and was started again after that"
                yield f"job {job}", sentence, evidence_of(attempts, row)
                continue
        if facts.life_was_calm(row) and job not in facts.steered["retry"]:
            tally["jobs without a fault"] += 1
            if any(not _asked_again(attempt, row) for attempt in attempts[:-1]):
                sentence = f"was started {len(attempts)} times, though nothing was broken"
                yield f"job {job}", sentence, evidence_of(attempts, row)


def _ran_after_success(facts: Facts, row: JobRow, attempts: Sequence[Attempt]) -> bool:
    return any(is_after_success(facts, row, attempt) for attempt in attempts)


def is_after_success(facts: Facts, row: JobRow, attempt: Attempt) -> bool:
    """Whether it is a run too many. If it had begun before, that success was written by a stale one."""
    finished = facts.finished(row)
    return (
        row.state == SUCCEEDED
        and row.token is not None
        and finished is not None
        and attempt.token > row.token
        and attempt.start.at > finished
    )


def _asked_again(attempt: Attempt, row: JobRow) -> bool:
    """It failed by itself: its journal says so, or it was stopped before it could write that."""
    if attempt.end is not None and attempt.end.outcome not in (OK, INTERRUPTED):
        return True
    entries = row.attempts or ()
    own = any(e.token == attempt.token and e.outcome in _OWN_FAULT for e in entries)
    # An exactly_once handler ends before its transaction does, which may still fail.
    return own and (not attempt.ended_ok or row.guarantee == EXACTLY_ONCE)


def evidence_of(attempts: Sequence[Attempt], row: JobRow | None) -> tuple[str, ...]:
    beats = sorted((beat for a in attempts for beat in a.beats), key=lambda beat: beat.at)
    lines = tuple(line("journal", beat) for beat in beats)
    return (*lines, line("db-job", row)) if row else lines
