"""Of a queue that doesn't keep its jobs that succeed, each is there once: as a job, or as its trace.

A trace is the word of the database that the job has ended: whoever submits it again must be told so, and
nothing of it begins any more. A handler whose node has overslept may still write its first line after
that: it has an older token than the attempt that ended the job.
"""

from __future__ import annotations

from collections import defaultdict

from proof.checker.facts import SUCCEEDED, Facts, TraceRow
from proof.checker.report import Found, Tally, line
from proof.history import Member, Operation
from proof.keyed_tasks import OF_SPARED, SPARED_EXACT

_AROUND = 2.0  # seconds: a switch at that moment may have come before or after the end


def jobs_that_are_not_kept_leave_a_trace(facts: Facts, tally: Tally) -> Found:
    calls: dict[str, list[Member]] = defaultdict(list)
    for member in facts.members:
        if member.map in OF_SPARED:
            calls[member.job].append(member)
    asked = [each for each in facts.operations if each.kind == "submit spared"]
    done = {each.subject: each for each in asked if each.answer == "done"}
    tally["asked again"] += len(asked) - len(done)
    for id, operation in done.items():
        tally["jobs of such queues"] += 1
        tally["traces"] += len(facts.traces[id])
        for problem in _problems(facts, operation, calls[id]):
            yield f"job {id}", problem, _evidence(facts, id, calls[id])


def _problems(facts: Facts, operation: Operation, calls: list[Member]) -> list[str]:
    id, task = operation.subject, operation.detail
    row, traces = facts.jobs.get(id), facts.traces[id]
    there = len(traces) + (row is not None)
    if there != 1:
        kinds = f"{row is not None:d} rows and {len(traces)} traces"
        return [f"was submitted, and has {kinds}"]
    found: list[str] = []
    if task == SPARED_EXACT and (traces or (row is not None and row.state == SUCCEEDED)):
        effects = len(facts.effects.get(id, ()))
        if effects != 1:
            found.append(f"has succeeded, and has {effects} effects")
    if traces:
        return found + _of_trace(facts, traces[0], calls)
    done = [call.token for call in calls if call.event == "ok"]
    if row is not None and row.state == SUCCEEDED and row.token not in done:
        found.append(f"succeeded under token {row.token}, under which no attempt had succeeded")
    return found


def _of_trace(facts: Facts, trace: TraceRow, calls: list[Member]) -> list[str]:
    ended = facts.at(trace.ended_at)
    before = ended + facts.meta.clock_error
    done = [call.token for call in calls if call.event == "ok" and call.at <= before]
    if not done:
        return ["left a trace, and no attempt of it had succeeded"]
    if any(c.event == "start" and c.at > before and c.token > max(done) for c in calls):
        return ["began again after it had ended"]
    if _modes(facts, ended) == {"all"}:
        return ["was not kept by a queue that keeps all"]
    return []


def _modes(facts: Facts, at: float) -> set[str]:
    """Those that the queue may have had at that moment."""
    error = _AROUND + facts.meta.clock_error
    modes = {"all"}
    for switch in (each for each in facts.operations if each.kind == "switch history"):
        if switch.answer != "done" or switch.at > at + error:
            continue
        modes = {switch.detail} if switch.until < at - error else modes | {switch.detail}
    return modes


def _evidence(facts: Facts, id: str, calls: list[Member]) -> tuple[str, ...]:
    rows = [line("db-job", facts.jobs[id])] if id in facts.jobs else []
    traces = [line("db-trace", trace) for trace in facts.traces[id]]
    return (*rows, *traces, *(line("members", call) for call in calls))
