"""Unique jobs: never two of a key that must be one, and whoever was answered with one is served by it.

A job that is unique while it waits may be given back before it has begun, and another be stored
meanwhile: that two wait is only judged where nothing was broken. Jobs that somebody retries are let go.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from proof import keyed_tasks as keyed
from proof.checker.attempts import evidence_of
from proof.checker.facts import Facts, JobRow
from proof.checker.report import Found, Tally, line
from proof.history import Operation

_LOOKED = 5.5  # seconds that a submit may take after it has noted the time: a statement's limit


def unique_jobs_are_single(facts: Facts, tally: Tally) -> Found:
    groups: dict[tuple[str, str], list[JobRow]] = defaultdict(list)
    for row in facts.jobs.values():
        if row.task in keyed.UNIQUE:
            groups[row.task, row.unique_key or ""].append(row)
    for (task, key), rows in groups.items():
        rows.sort(key=lambda row: row.created_at)
        for first, second in pairwise(rows):
            tally["jobs after another"] += 1
            if {first.id, second.id} & facts.steered["retry"] or _before_a_step(facts, first):
                continue
            problem = _two(facts, task, first, second)
            if problem:
                evidence = (*evidence_of([], first), *evidence_of([], second))
                yield f"{task} {key}", f"job {second.id} {problem}", evidence


def _before_a_step(facts: Facts, first: JobRow) -> bool:
    """The database's clock was set later: the order of rows is not that of their submits."""
    steps = facts.meta.clock_steps
    after = facts.meta.database(steps[-1].at) if steps else float("-inf")
    return first.created_at < after + facts.meta.clock_error


def _two(facts: Facts, task: str, first: JobRow, second: JobRow) -> str | None:
    apart = second.created_at - first.created_at
    slack = facts.meta.clock_error + _LOOKED
    if task == keyed.IN_A_WINDOW and apart < keyed.WINDOW - facts.meta.clock_error - 0.5:
        return (
            f"was stored {apart:.3f} s after job {first.id}; one in {keyed.WINDOW:g} s is allowed"
        )
    if task == keyed.WHILE_UNFINISHED:
        ended = first.finished_at
        if ended is None or ended > second.created_at + slack:
            return f"was stored while job {first.id} had not ended"
    if task == keyed.WHILE_WAITING and facts.life_was_calm(first) and facts.life_was_calm(second):
        taken = [facts.meta.database(a.start.at) for a in facts.attempts.get(first.id, ())]
        taken += [] if first.finished_at is None else [first.finished_at]
        if not taken or min(taken) > second.created_at + slack:
            return f"was stored while job {first.id} waited"
    return None


def unique_jobs_serve_all_submits(facts: Facts, tally: Tally) -> Found:
    """A job starts after every submit that was answered with it: what was written before is seen."""
    for operation in facts.operations:
        if operation.kind != "submit unique" or operation.answer != "done":
            continue
        tally["submits"] += 1
        tally["answered with another's"] += operation.count
        row = facts.jobs.get(operation.id)
        if row is None:
            sentence = f"was answered with job {operation.id}, which is not in the database"
            yield f"submit of {operation.subject}", sentence, (line("operations", operation),)
            continue
        starts = [attempt.start.at for attempt in facts.attempts.get(row.id, ())]
        if not starts or row.id in facts.steered["retry"]:
            continue
        # An attempt that was given back before the submit is none: the job waited again.
        start = min((start for start in starts if start >= operation.until), default=max(starts))
        early = _wanted(facts, row, operation) - start
        if early > 0.001:
            sentence = f"was answered with job {row.id}, which had started {early:.3f} s too early"
            evidence = (line("operations", operation), *evidence_of(facts.attempts[row.id], row))
            yield f"submit of {operation.subject}", sentence, evidence


def _wanted(facts: Facts, row: JobRow, operation: Operation) -> float:
    """The earliest moment at which the job may start after that submit."""
    if row.task == keyed.WHILE_WAITING:
        return operation.first
    if row.task == keyed.DEBOUNCED:
        latest = facts.at(row.created_at) + keyed.DEBOUNCE_MAX
        return min(operation.first + keyed.DEBOUNCE, latest) - facts.meta.clock_error
    return float("-inf")
