"""Away from faults every schedule decides on its occurrences in time, whatever is wrong with others.

A schedule whose row can't be read decides on nothing, and owes nothing. All others do, at the same time:
only what one of them says itself, or what was done to it, excuses it; and that it has not come so far
yet, because it had much to catch up with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from proof.checker.facts import FIRED, Facts, OccurrenceRow
from proof.checker.lives import Life, Version
from proof.checker.report import Found, Tally, line


def schedules_fire_on_time(facts: Facts, tally: Tally) -> Found:
    spoilt = [
        (version.since, version.over)
        for life in facts.lives.values()
        for version in life.versions
        if not version.readable
    ]
    for life, row, before in _decided_alone(facts):
        # Spread and jitter put it off: it is decided by then.
        due = facts.at(row.due_at if row.run_at is None else row.run_at)
        if before > due or not _owes(facts, life, due):
            continue
        tally["occurrences due in calm"] += 1
        tally["beside one that is spoilt"] += _within(spoilt, due)
        late = facts.at(row.decided_at) - due
        if late > facts.meta.max_lag:
            sentence = (
                f"the occurrence at {row.due_at:.0f} was decided {late:.3f} s after it was due, away "
                f"from faults; {facts.meta.max_lag:g} s are allowed"
            )
            yield f"schedule {life.name}", sentence, (line("db-occurrence", row),)


def _decided_alone(facts: Facts) -> Iterator[tuple[Life, OccurrenceRow, float]]:
    """With each the moment at which all before it were decided."""
    ledger: dict[str, list[OccurrenceRow]] = defaultdict(list)
    for row in facts.occurrences:
        if row.schedule_id in facts.lives and _is_decided_alone(row):
            ledger[row.schedule_id].append(row)
    for id, rows in ledger.items():
        before = 0.0
        for row in sorted(rows, key=lambda row: row.due_at):
            yield facts.lives[id], row, before
            before = max(before, facts.at(row.decided_at))


def _is_decided_alone(row: OccurrenceRow) -> bool:
    """By its moment, and not by somebody's hand, nor later when its job was to start."""
    if row.state == FIRED:
        return row.reason is None
    return row.reason == "catch_up"


def _owes(facts: Facts, life: Life, due: float) -> bool:
    """Nothing was broken, paused or changed for a while before and after it was due."""
    meta = facts.meta
    first, last = due - meta.calm_after, due + meta.max_lag
    if first < meta.started or last > meta.ended or facts.disturbed(first, last):
        return False
    if any(pause.since <= last and pause.over >= first for pause in life.pauses):
        return False
    return any(_surely(version, first, last) for version in life.versions)


def _surely(version: Version, first: float, last: float) -> bool:
    return version.readable and version.surely <= first and last <= version.until


def _within(spans: Sequence[tuple[float, float]], moment: float) -> bool:
    return any(since <= moment <= until for since, until in spans)
