"""No node runs more than it has, and the largest job waits for patience and the longest run at most."""

from __future__ import annotations

from collections import defaultdict

from proof import resource_tasks as machines
from proof.checker.attempts import evidence_of
from proof.checker.facts import Attempt, Facts, JobRow
from proof.checker.report import Found, Tally
from proof.checker.timing import first_starts, is_calm


def capacities_are_kept(facts: Facts, tally: Tally) -> Found:
    """Of what runs in a process at a time, the amounts are no more than its machine has. What has no end
    runs until the process dies, of which nothing starts later."""
    changes: dict[str, list[tuple[float, int, JobRow, Attempt]]] = defaultdict(list)
    for job, attempts in facts.attempts.items():
        row = facts.jobs.get(job)
        if row is None or row.task not in machines.AMOUNTS:
            continue
        amount = machines.AMOUNTS[row.task]
        for attempt in attempts:
            own = changes[attempt.start.node]
            own.append((attempt.start.at, amount, row, attempt))
            if attempt.end is not None:
                own.append((attempt.end.at, -amount, row, attempt))
    for process, moments in changes.items():
        used, most = 0, machines.capacity_of(process)
        for at, change, row, attempt in sorted(moments, key=lambda each: (each[0], each[1])):
            used += change
            tally["starts with resources"] += change > 0
            if used > most:
                sentence = f"at {at:.3f} its jobs held {used} {machines.GPU}, and it has {most}"
                yield f"process {process}", sentence, evidence_of([attempt], row)
                break


def large_jobs_are_not_starved(facts: Facts, tally: Tally) -> Found:
    """Away from faults the oldest of the largest jobs waits for the patience, until a node has looked,
    and then for the longest run. Those behind it wait for it to end, too."""
    found = [
        (row, first, facts.at(row.due_at))
        for row, first in first_starts(facts)
        if row.task == machines.LARGEST
    ]
    before = float("-inf")
    for row, first, due in sorted(found, key=lambda each: each[1].start.at):
        since = max(due, before)
        before = first.start.at
        if not is_calm(facts, row, since):
            continue
        tally["largest jobs in calm"] += 1
        allowed = machines.PATIENCE + machines.LONGEST + facts.meta.max_lag
        if first.start.at - since > allowed:
            sentence = (
                f"it could have been the next from {since:.3f} on, and started at "
                f"{first.start.at:.3f}; {allowed:g} s are allowed"
            )
            yield f"job {row.id}", sentence, evidence_of([first], row)
