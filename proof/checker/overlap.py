"""Jobs of a schedule that doesn't allow overlap never held their leases at the same time.

A job has its schedule's place from its first start until it has ended, retries included. From the
journals, an attempt counts until the first of these:

- its handler ended;
- a later attempt of the same job started: what goes on after that has no lease;
- its process was killed;
- the job was finished by the database's time: failed because its node was lost, say.

So the place is free when the last attempt of the job doesn't count any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from proof.checker.attempts import evidence_of
from proof.checker.facts import SUCCEEDED, Attempt, Facts, JobRow
from proof.checker.report import Found, Tally
from proof.history import KILL

_ONE_AT_A_TIME = {"skip", "queue", "kill"}


class Span(msgspec.Struct, gc=False):
    start: float
    end: float
    job: str


def schedules_do_not_overlap(facts: Facts, tally: Tally) -> Found:
    spans: dict[str, list[Span]] = defaultdict(list)
    for row in facts.jobs.values():
        name = facts.schedule_names.get(row.schedule_id or "", "")
        promise = facts.promises.get(name)
        if promise is not None and promise.overlap in _ONE_AT_A_TIME:
            span = _span(facts, row, facts.attempts.get(row.id, []))
            if span is not None:
                spans[name].append(span)
    for name, own in spans.items():
        tally["jobs that ran"] += len(own)
        own.sort(key=lambda span: span.start)
        longest = own[0]
        for span in own[1:]:
            if span.start < longest.end:
                sentence = (
                    f"job {span.job} started at {span.start:.3f}, while job {longest.job} held its "
                    f"place until {longest.end:.3f}"
                )
                yield f"schedule {name}", sentence, _evidence(facts, longest, span)
            longest = max(longest, span, key=lambda span: span.end)


def _span(facts: Facts, row: JobRow, attempts: Sequence[Attempt]) -> Span | None:
    held = []
    for place, attempt in enumerate(attempts):
        until = _held_until(facts, row, attempt, attempts[place + 1 :])
        if until > attempt.start.at:
            held.append((attempt.start.at, until))
    if not held:
        return None
    return Span(min(start for start, _ in held), max(end for _, end in held), row.id)


def _held_until(facts: Facts, row: JobRow, attempt: Attempt, newer: Sequence[Attempt]) -> float:
    start = attempt.start
    ends = [facts.meta.ended, *(other.start.at for other in newer)]
    ends += [fault.at for fault in facts.faults_of(KILL, start.node) if fault.at >= start.at]
    if attempt.end is not None:
        ends.append(attempt.end.at)
    finished = facts.finished(row)
    # Its own success is written after its last line; any other end may have come from elsewhere.
    own = row.state == SUCCEEDED and row.token == attempt.token and attempt.end is not None
    if finished is not None and not own:
        ends.append(finished - facts.meta.clock_error)
    return min(ends)


def _evidence(facts: Facts, *spans: Span) -> tuple[str, ...]:
    return tuple(
        text
        for span in spans
        for text in evidence_of(facts.attempts[span.job], facts.jobs[span.job])
    )
