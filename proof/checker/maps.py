"""Every member of a map is called, and counted once; and called once where nothing was broken."""

from __future__ import annotations

from collections import Counter, defaultdict

from proof.checker.facts import SUCCEEDED, Facts, RunRow
from proof.checker.report import Found, Tally, line


def members_are_called_once(facts: Facts, tally: Tally) -> Found:
    jobs: dict[str, set[str]] = defaultdict(set)
    done: dict[str, Counter[int]] = defaultdict(Counter)
    for member in facts.members:
        jobs[member.map].add(member.job)
        if member.event == "ok":
            done[member.map][member.item] += 1
    for operation in facts.operations:
        run = facts.runs.get(operation.id)
        if operation.kind != "start map" or operation.answer != "done" or run is None:
            continue
        tally["maps"] += 1
        tally["members"] += operation.count
        name = operation.subject
        problem = _miscounted(facts, run, operation.count, done[name])
        if problem is None and _was_calm(facts, run.created_at, run.ended_at):
            tally["maps in calm"] += 1
            more = [item for item, count in done[name].items() if count > 1]
            if more and not facts.steered["retry"] & jobs[name]:
                problem = f"did member {more[0]} more than once, though nothing was broken"
        if problem:
            yield f"map {name}", problem, (line("operations", operation), line("db-run", run))


def _miscounted(facts: Facts, run: RunRow, members: int, done: Counter[int]) -> str | None:
    row = facts.maps.get(run.id)
    if row is None or row.members != members:
        return f"has {row.members if row else 0} members of {members}"
    if row.succeeded + row.failed > members:
        return f"counted {row.succeeded + row.failed} members of {members}"
    if run.state == SUCCEEDED:
        if missing := set(range(members)) - done.keys():
            return f"succeeded, and member {min(missing)} was never done"
        if row.succeeded != members:
            return f"succeeded, and counted {row.succeeded} members of {members}"
    return None


def _was_calm(facts: Facts, created: float, ended: float | None) -> bool:
    lease = facts.meta.lease_seconds
    return ended is not None and not facts.disturbed(
        facts.at(created) - lease, facts.at(ended) + lease
    )
