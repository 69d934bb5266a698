"""What a trial has cost, read from its history.

- *Lost*: a client was told that its job is stored, and the database doesn't have it at the end.
- *Run again*: a job's handler ended well, and another attempt of the same job began after that.
- *Silent*: the longest stretch around a fault from one accepted submit to the next.
- A second is *available* when a submit was accepted in it.
- An occurrence of a schedule is *punctual* when its job started within one second of its due time.
  Occurrences are due five times a second, whatever happens; clients wait while nobody answers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from proof.history import OK, Beat, Fault, History

PUNCTUAL = 1.0


class Cost(msgspec.Struct, frozen=True):
    """One fault: when a machine led again, how long nothing was accepted or started, what was lost."""

    kind: str
    led_after: float
    silent: float
    idle: float
    lost: int
    run_again: int


class Figures(msgspec.Struct, frozen=True):
    costs: list[Cost]
    seconds: int
    available: int
    due: int
    punctual: int
    accepted: int
    lost: int
    run_again: int
    at_most_once_twice: int
    effects_doubled: int


def read_figures(folder: Path, started: float, ended: float) -> Figures:
    history = History(folder)
    told, beats = history.submissions(), history.beats()
    accepted = {line.job: line.at for line in told if line.answer == "acknowledged"}
    stored = {row["id"] for row in history.rows("job")}
    lost = {job: at for job, at in accepted.items() if job not in stored}
    again = _run_again(beats)
    starts = [beat.at for beat in beats if beat.event == "start"]
    due, punctual = _punctuality(history, beats, started, ended)
    effects = Counter(row["job"] for row in history.rows("app_effect"))
    return Figures(
        costs=[
            _cost(fault, accepted.values(), starts, lost.values(), again)
            for fault in history.faults()
        ],
        seconds=math.floor(ended - started),
        available=len(available_seconds(accepted.values(), started, ended)),
        due=due, punctual=punctual, accepted=len(accepted), lost=len(lost), run_again=len(again),
        at_most_once_twice=_twice(beats), effects_doubled=sum(n > 1 for n in effects.values()),
    )  # fmt: skip


def available_seconds(accepted: Iterable[float], started: float, ended: float) -> set[int]:
    """Return the whole seconds since the start in which a submit was accepted."""
    whole = math.floor(ended - started)
    return {second for at in accepted if 0 <= (second := math.floor(at - started)) < whole}


def longest_gap(moments: Iterable[float], first: float, last: float) -> float:
    """Return the longest stretch between two moments that touches the time from first to last."""
    ordered = sorted(moments)
    gaps = [
        after - before for before, after in pairwise(ordered) if after > first and before < last
    ]
    return max(gaps, default=math.inf)


def _cost(
    fault: Fault, accepted: Iterable[float], starts: Sequence[float], lost: Iterable[float],
    again: Iterable[float],
) -> Cost:  # fmt: skip
    return Cost(
        kind=fault.kind,
        led_after=float(fault.detail),
        silent=longest_gap(accepted, fault.at, fault.until),
        idle=longest_gap(starts, fault.at, fault.until),
        # What was accepted shortly before the fault may not have reached another machine.
        lost=sum(fault.at - 10 < at < fault.until for at in lost),
        run_again=sum(fault.at < at < fault.until for at in again),
    )


def _run_again(beats: Sequence[Beat]) -> list[float]:
    """Return when an attempt began of a job whose handler had ended well."""
    ended: set[str] = set()
    found = []
    for beat in beats:  # in the order of time
        if beat.event == "end" and beat.outcome == OK:
            ended.add(beat.job)
        elif beat.event == "start" and beat.job in ended:
            found.append(beat.at)
    return found


def _twice(beats: Sequence[Beat]) -> int:
    """Return how many at_most_once jobs began more than once."""
    starts = Counter(beat.job for beat in beats if beat.event == "start" and beat.task == "at_most")
    return sum(count > 1 for count in starts.values())


def _punctuality(
    history: History, beats: Sequence[Beat], started: float, ended: float
) -> tuple[int, int]:
    """Return how many occurrences were due between the two moments, and how many started in time."""
    meta, first = history.meta, dict[str, float]()
    for beat in beats:
        if beat.event == "start":
            first.setdefault(beat.job, beat.at)
    late = []
    for row in history.rows("occurrence"):
        due = meta.at(row["due_at"])
        if started <= due < ended:
            late.append(first.get(row["job_id"] or "", math.inf) - due)
    return len(late), sum(seconds <= PUNCTUAL for seconds in late)
