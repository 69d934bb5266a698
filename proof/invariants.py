"""The few rules that every history of `proof.workload` must keep. For short runs, beside the checker.

A list of sentences; empty when everything was kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from math import floor
from typing import Any

from proof.history import History, TaskPromise

_FINAL = {5: "succeeded", 6: "failed", 7: "cancelled", 8: "skipped"}
# What an at_most_once job that was cut off says of itself: it may have run, and isn't run again.
_CUT_OFF = ("NodeLost", "Interrupted", "StoreUnavailable")
_EVERY_SECOND = "every-second"  # the schedules that are due at every whole second, and skip none


def broken_promises(history: History, tasks: dict[str, TaskPromise]) -> list[str]:
    jobs = history.rows("job")
    starts: dict[str, list[int]] = defaultdict(list)
    for beat in history.beats():
        if beat.event == "start":
            starts[beat.job].append(beat.token)
    effects: dict[str, list[int]] = defaultdict(list)
    for row in history.rows("app_effect"):
        effects[row["job"]].append(row["token"])
    return [
        *_lost(history, jobs),
        *(said for job in jobs for said in _of_job(job, tasks[job["task"]], starts[job["id"]])),
        *(said for job in jobs for said in _of_effects(job, effects[job["id"]])),
        *_orphans(jobs, effects, starts),
        *_of_ledger(history, {job["id"]: job for job in jobs}),
        *(f"batch {row['token']} is left over" for row in history.rows("batch")),
        *_of_once(history),
    ]


def _lost(history: History, jobs: list[dict[str, Any]]) -> Iterable[str]:
    there = Counter(job["id"] for job in jobs)
    yield from (f"job {id} is there {count} times" for id, count in there.items() if count > 1)
    for line in history.submissions():
        if line.answer == "acknowledged" and line.job not in there:
            yield f"{line.task} {line.job} was acknowledged, and isn't there"


def _of_job(job: dict[str, Any], promise: TaskPromise, tokens: list[int]) -> Iterable[str]:
    who = f"{job['task']} {job['id']}"
    state = _FINAL.get(job["state"])
    if state is None:
        yield f"{who} never ended: state {job['state']}"
    elif state != ("succeeded" if promise.ends == "any" else promise.ends) and not _may_end_so(
        job, state, promise
    ):
        yield f"{who} ended as {state}, not as {promise.ends}: {job['error']}"
    if state == "succeeded" and not tokens:
        yield f"{who} succeeded, and nobody saw it start"
    if promise.guarantee == "at_most_once" and len(tokens) > 1:
        yield f"{who} is at_most_once and started {len(tokens)} times"
    # Not that they rise: a process that was stopped between its last look at its lease and the first
    # line of a handler runs that handler when it goes on. Nothing it then says is believed.
    if len(set(tokens)) < len(tokens):
        yield f"{who} started twice under one token: {tokens}"


def _may_end_so(job: dict[str, Any], state: str, promise: TaskPromise) -> bool:
    if state == "skipped":  # its schedule's line was full
        return bool(job["task"] == "waiting_tick")
    error = (job["error"] or {}).get("type", "").rpartition(".")[2]
    # Begun by an attempt that was cut off: nobody knows whether it happened, so it isn't repeated.
    unknown = job["task"] == "careful" and error == "OnceUnknown"
    cut_off = promise.guarantee == "at_most_once" and error in _CUT_OFF
    return state == "failed" and (unknown or cut_off)


def _of_effects(job: dict[str, Any], tokens: list[int]) -> Iterable[str]:
    if job["guarantee"] == 3:
        wanted = [job["token"]] if job["state"] == 5 else []
        if tokens != wanted:
            yield f"{job['task']} {job['id']} ({job['state']}) has effects {tokens}, not {wanted}"


def _of_once(history: History) -> Iterable[str]:
    file = history.folder / "once"
    done = Counter(file.read_text().split() if file.exists() else ())
    yield from (f"the once of job {id} happened {n} times" for id, n in done.items() if n > 1)


def _orphans(
    jobs: list[dict[str, Any]], effects: dict[str, list[int]], starts: dict[str, list[int]]
) -> Iterable[str]:
    there = {job["id"] for job in jobs}
    yield from (f"an effect of job {id}, which isn't there" for id in effects if id not in there)
    yield from (f"job {id} started, and isn't there" for id in starts if id not in there)


def _of_ledger(history: History, jobs: dict[str, dict[str, Any]]) -> Iterable[str]:
    """Every whole second since the schedule was made, up to its cursor, is there exactly once."""
    entries: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in history.rows("occurrence"):
        entries[row["schedule_id"]].append(row)
    for schedule in history.rows("schedule"):
        if not schedule["name"].startswith(_EVERY_SECOND):
            continue
        own = entries[schedule["id"]]
        first, last = floor(schedule["created_at"]) + 1, floor(schedule["cursor"])
        found = Counter(round(row["due_at"]) for row in own)
        missing = [second for second in range(first, last + 1) if second not in found]
        if missing:
            yield f"{schedule['name']}: no occurrence at {missing[:5]} ({len(missing)} in all)"
        if extra := [second for second, count in found.items() if count > 1]:
            yield f"{schedule['name']}: twice at {extra[:5]}"
        for row in own:
            if row["state"] == 1 and row["job_id"] not in jobs:
                yield f"{schedule['name']} at {row['due_at']}: its job isn't there"
            if row["state"] != 1:
                yield f"{schedule['name']} at {row['due_at']} was skipped: {row['reason']}"
    owners = Counter(row["job_id"] for rows in entries.values() for row in rows)
    yield from (f"job {id} is of {count} occurrences" for id, count in owners.items() if count > 1)
