"""Nothing that a stale holder of a job wrote was ever taken; what is exactly once is in there once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from proof.checker.attempts import evidence_of, is_after_success
from proof.checker.facts import (
    CANCELLED,
    EXACTLY_ONCE,
    FAILED,
    RUNNING,
    SUCCEEDED,
    Attempt,
    AttemptRow,
    EffectRow,
    Facts,
    JobRow,
)
from proof.checker.report import Found, Tally, line
from proof.history import ACCEPTED, REFUSED, Beat
from proof.keyed_tasks import IN_CHUNKS, OF_SPARED

# Rows in these states carry the token they were last held under, unless none was.
_UNDER_A_TOKEN = {RUNNING, SUCCEEDED, FAILED, CANCELLED}


def no_stale_write_is_taken(facts: Facts, tally: Tally) -> Found:
    for row in facts.jobs.values():
        attempts = facts.attempts.get(row.id, [])
        if row.step == 0 and row.run_id in facts.sights:
            continue  # a durable function: there are rules of their own for those
        if row.task == IN_CHUNKS or row.task in OF_SPARED:  # for maps, and for what isn't kept
            continue
        if row.state in _UNDER_A_TOKEN and row.token is not None:
            tally["final tokens"] += 1
            problem = _problem_of_row(facts, row, row.token, attempts)
            if problem:
                yield f"job {row.id}", problem, evidence_of(attempts, row)
        problem = _problem_of_entries(row.attempts or [])
        if problem:
            yield f"job {row.id}", problem, evidence_of(attempts, row)
    for job, beats in facts.guarded.items():
        tally["guarded writes"] += len(beats)
        problem = _problem_of_writes(beats, facts.attempts.get(job, []))
        if problem:
            yield f"job {job}", problem, tuple(line("journal", beat) for beat in beats)


def _problem_of_row(
    facts: Facts, row: JobRow, token: int, attempts: Sequence[Attempt]
) -> str | None:
    for attempt in attempts:
        if attempt.token > token and not _has_another_rule(facts, row, attempt):
            return f"ended under token {token}, though token {attempt.token} had started before"
    ok = [attempt.token for attempt in attempts if attempt.ended_ok]
    if row.state == SUCCEEDED and token not in ok:
        others = f"; it did under {', '.join(map(str, ok))}" if ok else ""
        return f"succeeded under token {token}, under which its handler never ended well{others}"
    return None


def _has_another_rule(facts: Facts, row: JobRow, attempt: Attempt) -> bool:
    """A run too many; or what runs may have been taken over after the database was dumped."""
    dumped = facts.meta.ended - facts.meta.clock_error
    return is_after_success(facts, row, attempt) or (
        row.state == RUNNING and attempt.start.at >= dumped
    )


def _problem_of_entries(entries: Sequence[AttemptRow]) -> str | None:
    """Each attempt ends once, whoever says so: its node, or the one that found its node dead."""
    for before, after in pairwise(entries):
        if after.token == before.token:
            return f"the end of token {after.token} was written down twice"
        if after.token < before.token:
            return f"the end of token {after.token} was written down after that of {before.token}"
    return None


def _problem_of_writes(beats: Sequence[Beat], attempts: Sequence[Attempt]) -> str | None:
    """The application's table takes a write unless it has seen a higher token of that job."""
    accepted = [beat for beat in beats if beat.outcome == ACCEPTED]
    if all(beat.order for beat in accepted):
        accepted.sort(key=lambda beat: beat.order)
    highest = 0
    for beat in accepted:
        if beat.token < highest:
            return f"a write under token {beat.token} was taken after one under {highest}"
        highest = beat.token
    newest = max((attempt.token for attempt in attempts), default=0)
    for beat in beats:
        if beat.outcome == REFUSED and beat.token >= newest:
            return f"a write under token {beat.token} was refused, and no newer token had started"
    return None


def effects_are_exactly_once(facts: Facts, tally: Tally) -> Found:
    """What the handler wrote in the job's own transaction is there if and only if the job succeeded."""
    for row in facts.jobs.values():
        if facts.guarantee(row.task, row) == EXACTLY_ONCE:
            tally["exactly_once jobs"] += 1
            effects = facts.effects.get(row.id, [])
            tally["effects"] += len(effects)
            problem = _problem_of_effects(row, effects)
            if problem:
                lines = evidence_of(facts.attempts.get(row.id, []), row)
                yield f"job {row.id}", problem, (*lines, *map(_line, effects))
    for job, effects in facts.effects.items():
        if job not in facts.jobs and job not in facts.traces:
            yield f"job {job}", "has effects, and isn't in the database", tuple(map(_line, effects))


def _problem_of_effects(row: JobRow, effects: Sequence[EffectRow]) -> str | None:
    if row.state != SUCCEEDED:
        return f"has not succeeded, and has {len(effects)} effects" if effects else None
    if len(effects) != 1:
        return f"succeeded, and has {len(effects) or 'no'} effects"
    if effects[0].token != row.token:
        return f"succeeded under token {row.token}, and its effect is of token {effects[0].token}"
    return None


def _line(effect: EffectRow) -> str:
    return line("db-app_effect", effect)
