"""Never more jobs of a schedule than it allows held their leases at the same time.

A job has its schedule's place from its first start until it has ended, retries included. From the
journals, an attempt counts until the first of these:

- its handler ended;
- a later attempt of the same job started: what goes on after that has no lease;
- its process was killed;
- the database ended it, by the database's time: its lease was over, say, and its node declared dead;
- the job was finished by the database's time: failed because its node was lost, say.

So the place is free when the last attempt of the job doesn't count any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from proof.checker.attempts import evidence_of
from proof.checker.facts import SUCCEEDED, Attempt, Facts, JobRow
from proof.checker.lives import EVER, Life
from proof.checker.report import Found, Tally
from proof.history import KILL


class Span(msgspec.Struct, gc=False):
    start: float
    end: float
    job: str


def schedules_do_not_overlap(facts: Facts, tally: Tally) -> Found:
    spans: dict[str, list[Span]] = defaultdict(list)
    for row in facts.jobs.values():
        if any(promise.places is not None for promise in facts.promises_of(row)):
            span = span_of(facts, row, facts.attempts.get(row.id, []))
            if span is not None:
                spans[row.schedule_id or ""].append(span)
    for id, own in spans.items():
        tally["jobs that ran"] += len(own)
        own.sort(key=lambda span: span.start)
        for since, until, places in _rules(facts, facts.lives[id]):
            ruled = [span for span in own if since < span.start < until]
            yield from crowds(facts, f"schedule {facts.lives[id].name}", ruled, places)


def _rules(facts: Facts, life: Life) -> Iterator[tuple[float, float, int]]:
    """Stretches of time, and how many jobs that start in one may run at a time.

    Those that began under another rule aren't counted: that rule didn't count them either.
    """
    margin = facts.meta.clock_error if len(life.versions) > 1 else 0.0
    for version in life.versions:
        places = version.promise.places
        if places is not None:
            since = version.surely + margin if version is not life.versions[0] else -EVER
            yield since, version.until - margin, places


def crowds(facts: Facts, name: str, spans: Sequence[Span], places: int) -> Found:
    """Where more than so many spans, in the order of their starts, lie over each other."""
    running: list[Span] = []
    for span in spans:
        running = [other for other in running if other.end > span.start]
        running.append(span)
        if len(running) > places:
            first = running[0]
            sentence = (
                f"job {span.job} started at {span.start:.3f}, while job {first.job} held its "
                f"place until {first.end:.3f}"
            )
            if places > 1:
                sentence += f": {len(running)} run, and {places} may"
            yield name, sentence, _evidence(facts, first, span)


def span_of(facts: Facts, row: JobRow, attempts: Sequence[Attempt]) -> Span | None:
    """From the first start of a job until it has ended."""
    held = []
    for place, attempt in enumerate(attempts):
        until = held_until(facts, row, attempt, attempts[place + 1 :])
        if until > attempt.start.at:
            held.append((attempt.start.at, until))
    if not held:
        return None
    return Span(min(start for start, _ in held), max(end for _, end in held), row.id)


def held_until(facts: Facts, row: JobRow, attempt: Attempt, newer: Sequence[Attempt]) -> float:
    """When an attempt had its place no more."""
    start = attempt.start
    ends = [facts.meta.ended, *(other.start.at for other in newer)]
    ends += [fault.at for fault in facts.faults_of(KILL, start.node) if fault.at >= start.at]
    if attempt.end is not None:
        ends.append(attempt.end.at)
    for entry in row.attempts or ():
        if entry.token == attempt.token and entry.ended_at is not None:
            node = facts.nodes.get(entry.node)
            died = node.ended_at if node is not None and node.state == "dead" else None
            ended = min(entry.ended_at.timestamp(), float("inf") if died is None else died)
            ends.append(facts.at(ended) - facts.meta.clock_error)
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
