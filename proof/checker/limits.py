"""Limits are kept, jobs of an order_key run one after another, and none of them is forgotten.

An attempt has its place until the first of what `overlap` lists. A job of an order_key has its turn from
its first start until it has ended, retries included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from proof import keyed_tasks as keyed
from proof.checker.attempts import evidence_of
from proof.checker.facts import Facts, JobRow
from proof.checker.overlap import Span, crowds, held_until, span_of
from proof.checker.report import Found, Tally
from proof.checker.slots import Slots
from proof.checker.timing import first_starts, is_calm

Group = tuple[str, str]  # a task, and the keys of its jobs


def limits_are_kept(facts: Facts, tally: Tally) -> Found:
    for (task, share), rows in _groups(facts, keyed.AT_A_TIME).items():
        spans = sorted(_places(facts, rows), key=lambda span: span.start)
        tally["places"] += len(spans)
        yield from crowds(facts, f"{task} {share}", spans, keyed.AT_A_TIME[task])
    # A queue's limit is for all its keys together.
    rows = [row for row in facts.jobs.values() if row.task == keyed.SHARED]
    spans = sorted(_places(facts, rows), key=lambda span: span.start)
    tally["places"] += len(spans)
    yield from crowds(facts, f"queue {keyed.SHARED}", spans, keyed.AT_ONCE)


def keys_are_in_order(facts: Facts, tally: Tally) -> Found:
    for (task, share), rows in _groups(facts, keyed.IN_ORDER).items():
        spans: list[Span] = []
        for row in rows:
            span = span_of(facts, row, facts.attempts.get(row.id, []))
            if span is not None:
                spans.append(span)
        spans.sort(key=lambda span: span.start)
        tally["turns"] += len(spans)
        if not any(row.id in facts.steered["retry"] for row in rows):
            yield from crowds(facts, f"{task} {share}", spans, 1)
        yield from _disorder(facts, f"{task} {share}", spans)


def _disorder(facts: Facts, name: str, spans: Sequence[Span]) -> Found:
    """A job that was there when another of its key started, and came before it, has started before."""
    known = {
        record.job: record.at
        for record in facts.submissions
        if record.answer == "acknowledged" and not record.cancelled
    }
    for place, later in enumerate(spans):
        for earlier in spans[:place]:
            mine, its = facts.jobs[later.job], facts.jobs[earlier.job]
            if mine.attempts or its.attempts or {mine.id, its.id} & facts.steered["retry"]:
                continue  # a row that was retried says when it was due last
            before = its.due_at - mine.due_at > facts.meta.clock_error
            there = known.get(mine.id, float("inf")) < earlier.start - facts.meta.max_lag
            if before and there and facts.at(mine.due_at) < earlier.start - facts.meta.max_lag:
                sentence = f"job {its.id} started before job {mine.id}, which was due before it"
                yield name, sentence, (*evidence_of([], its), *evidence_of([], mine))


def free_places_are_taken(facts: Facts, tally: Tally) -> Found:
    """A job waits for others of its keys and for slots, and for nothing else for long."""
    slots = Slots(facts)
    groups = _groups(facts, keyed.AT_A_TIME.keys() | keyed.IN_ORDER)
    taken = {group: _taken(facts, group[0], rows) for group, rows in groups.items()}
    for row, first in first_starts(facts):
        group = _group(row)
        due = facts.at(row.due_at)
        if group not in taken or not is_calm(facts, row, due):
            continue
        tally["keyed jobs due in calm"] += 1
        most = keyed.AT_A_TIME.get(row.task, 1)
        for since, until in _free(taken[group], due, first.start.at, most):
            idle = not slots.known or slots.neglected(row, since, until)
            if until - since > 2 * facts.meta.max_lag and idle:
                sentence = (
                    f"there was a place for it from {since:.3f} to {until:.3f}, and a free slot; "
                    f"it started at {first.start.at:.3f}"
                )
                yield f"job {row.id}", sentence, evidence_of([first], row)


def _groups(facts: Facts, tasks: object) -> dict[Group, list[JobRow]]:
    found: dict[Group, list[JobRow]] = defaultdict(list)
    for row in facts.jobs.values():
        if row.task in tasks:  # type: ignore[operator]
            found[_group(row)].append(row)
    return found


def _group(row: JobRow) -> Group:
    """Return whom a limit or an order counts together: an order is that of the order_key alone."""
    share = row.share or ""
    if row.task in keyed.IN_ORDER:
        share = next((part for part in share.split("&") if part.startswith("o=")), "")
    return row.task, share


def _places(facts: Facts, rows: Sequence[JobRow]) -> Iterator[Span]:
    for row in rows:
        attempts = facts.attempts.get(row.id, [])
        for place, attempt in enumerate(attempts):
            until = held_until(facts, row, attempt, attempts[place + 1 :])
            if until > attempt.start.at:
                yield Span(attempt.start.at, until, row.id)


def _taken(facts: Facts, task: str, rows: Sequence[JobRow]) -> list[Span]:
    """Who has a place, or may have one: a worker that dies keeps it until its lease is over."""
    longer = facts.meta.max_lag
    if task in keyed.AT_A_TIME:
        return [
            Span(span.start - longer, span.end + longer, span.job) for span in _places(facts, rows)
        ]
    spans = (span_of(facts, row, facts.attempts.get(row.id, [])) for row in rows)
    return [Span(span.start - longer, span.end + longer, span.job) for span in spans if span]


def _free(
    spans: Sequence[Span], first: float, last: float, most: int
) -> Iterator[tuple[float, float]]:
    """The stretches in between in which fewer than `most` had a place."""
    changes = sorted(
        [(max(span.start, first), 1) for span in spans if span.end > first and span.start < last]
        + [(span.end, -1) for span in spans if first < span.end < last and span.start < last]
    )
    taken, since = 0, first
    for moment, change in changes:
        if taken < most and moment > since:
            yield since, moment
        taken, since = taken + change, moment
    if taken < most and last > since:
        yield since, last
