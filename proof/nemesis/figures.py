"""What a run is summed up in."""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import get_args, get_type_hints

from proof.checker import Report, check
from proof.history import KILL, PAUSE, Beat, Fault, History, Operation
from proof.nemesis.plan import RECIPES
from proof.nemesis.run import Run
from proof.nemesis.tasks import HUNG, ODD
from proof.simulation.trouble import SQLSTATES, TABLES

_REFUSED = re.compile(r"(\d+) outcomes were refused")


def describe(run: Run) -> tuple[str, Report]:
    """The text, and what the checker found."""
    history = History(run.options.folder)
    report = check(run.options.folder)
    lines = [*_faults(run), *_database(run), *_operations(history.operations()), *_odd(history)]
    lines += [*_work(run, history), _lag(history), "", report.text()]
    return "\n".join(lines), report


def _faults(run: Run) -> list[str]:
    load, cores = os.getloadavg()[1], os.cpu_count()
    lines = [
        f"load of this machine, in the last five minutes: {load:.1f} on {cores} cores",
        f"faults injected: {sum(run.faults.values())}",
    ]
    for kind in RECIPES:
        passed = run.passed.get(kind)
        more = f"   ({passed} more found their target down)" if passed else ""
        lines.append(f"  {kind:20}{_often(run.faults.get(kind, 0))}{more}")
    for name, codes in sorted(run.surprises.items()):
        lines.append(f"  {name} ended by itself and was started again: exit codes {codes}")
    lines += [f"  {note}" for note in run.notes]
    if run.stubborn:
        lines.append(f"  did not end when asked to: {', '.join(run.stubborn)}")
    return lines


def _database(run: Run) -> list[str]:
    lines = ["statements that failed, by SQLSTATE, before their effect and after it:"]
    for sqlstate in SQLSTATES:
        before, after = run.raised.get(sqlstate, 0), run.told.get(sqlstate, 0)
        lines.append(f"  {sqlstate:20}{_often(before)}{_often(after)}")
    lines.append(f"readers that held a table, {run.held_longest:.0f} s at most:")
    lines += [f"  {table:20}{_often(run.held.get(table, 0))}" for table in TABLES]
    lines.append(f"pg_dump, in a loop: {_often(run.dumps)}, and {run.broken_dumps} cut short")
    settings = [f"{name} = {value}" for name, value in run.defaults.items()]
    lines.append(f"the database's owner has set: {', '.join(settings) or 'nothing'}")
    return lines


def _operations(operations: Sequence[Operation]) -> list[str]:
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for operation in operations:
        counts[operation.kind][operation.answer] += 1
    lines = [f"operations: {len(operations)}, done and refused"]
    lines += [
        f"  {kind:20}{_often(counts[kind]['done'])}{counts[kind]['refused']:6}"
        for kind in get_args(get_type_hints(Operation)["kind"])
    ]
    said = [operation.schedule for operation in operations if operation.schedule is not None]
    for setting in ("overlap", "catch_up", "within", "spread", "jitter", "max_running", "drop"):
        chosen = Counter(str(getattr(promise, setting)) for promise in said)
        values = ", ".join(f"{value} {count}" for value, count in sorted(chosen.items()))
        lines.append(f"  schedules by {setting:15}{values or 'NEVER'}")
    return lines


def _odd(history: History) -> list[str]:
    starts = Counter(beat.task for beat in history.beats() if beat.event == "start")
    lines = ["starts of handlers that do what nobody thought of:"]
    lines += [f"  {task:20}{_often(starts[task])}" for task in ODD]
    lines.append("starts of handlers that hang, or only take long:")
    return lines + [f"  {task:20}{_often(starts[task])}" for task in HUNG]


def _often(count: int) -> str:
    """What didn't happen is to be seen."""
    return f"{count:6}" if count else " NEVER"


def _work(run: Run, history: History) -> list[str]:
    refused, declared = _from_logs(run.options.folder)
    lines = [
        f"stale or repeated outcomes refused: {refused}",
        f"nodes that found themselves declared dead: {declared}",
    ]
    lines.append(f"backlog worked off after healing within: {run.caught_up:.1f} s")
    if run.operator_stuck:
        lines.append("THE OPERATOR still waited for an answer when all was healed")
    if run.left:
        lines.append(f"NOT ENDED when the wait was over: {run.left}")
    if takeovers := _takeovers(history.beats(), history.faults()):
        lines.append(f"jobs of killed or frozen nodes began elsewhere after: {_spread(takeovers)}")
    return lines


def _from_logs(folder: Path) -> tuple[int, int]:
    refused = declared = 0
    for file in folder.glob("node-*.log"):
        text = file.read_text(errors="replace")
        refused += sum(int(count) for count in _REFUSED.findall(text))
        declared += text.count("was declared dead")
    return refused, declared


def _takeovers(beats: Sequence[Beat], faults: Sequence[Fault]) -> list[float]:
    """From the fault to the next start, for jobs that were inside the node at that moment."""
    by_job: dict[str, list[Beat]] = defaultdict(list)
    for beat in beats:
        if beat.event != "guarded":
            by_job[beat.job].append(beat)
    lost = {fault.target: fault.at for fault in faults if fault.kind in (KILL, PAUSE)}
    found = []
    for own in by_job.values():
        for beat, following in pairwise(own):
            at = lost.get(beat.node)
            if at is None or beat.event != "start" or following.event != "start":
                continue
            if beat.at < at < following.at and following.node != beat.node:
                found.append(following.at - at)
    return found


def _lag(history: History) -> str:
    """From the moment a job was due to its first start, for what clients submitted, faults and all."""
    due_in = {line.job: line.due_in for line in history.submissions()}
    created = {row["id"]: row["created_at"] for row in history.rows("job")}
    first: dict[str, Beat] = {}
    for beat in history.beats():
        if beat.event == "start":
            first.setdefault(beat.job, beat)
    lags = [
        beat.at - history.meta.at(created[job] + due_in[job])
        for job, beat in first.items()
        if job in due_in and job in created
    ]
    return f"lag from first to last, amid the faults: {_spread(lags)}"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return "nothing to measure"
    ordered = sorted(values)
    at = [ordered[min(int(len(ordered) * part), len(ordered) - 1)] for part in (0.5, 0.9, 0.99)]
    half, most, nearly = (f"{value:.3f}" for value in at)
    return (
        f"median {half} s, 90% {most} s, 99% {nearly} s, worst {ordered[-1]:.3f} s ({len(ordered)})"
    )
