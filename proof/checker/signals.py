"""Signals: none is lost, none is taken twice, and the oldest goes first."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from proof.checker.facts import FAILED, SUCCEEDED, CheckpointRow, Facts, SignalRow
from proof.checker.report import Found, Tally, line
from proof.history import Operation, Sight

_SIGNAL = 5  # a kind of checkpoint
_SENT = re.compile(r"\S*signal-\d+")
# Between the moments that sender and waiter write down and their commits, each may have waited.
_SLACK = 7.0


def signals_are_taken_once(facts: Facts, tally: Tally) -> Found:
    kept = {str(row.payload): row for row in facts.signals}
    seen: dict[str, dict[tuple[str, str], Sight]] = defaultdict(dict)
    for run, sights in facts.sights.items():
        for sight in sights:
            if sight.event == "saw" and _SENT.fullmatch(sight.value):
                seen[sight.value].setdefault((run, sight.place), sight)
    for payload, places in seen.items():
        tally["signals taken"] += 1
        lines = tuple(line("functions", sight) for sight in places.values())
        if len({run for run, _ in places}) > 1 or len(places) > 1:
            yield f"signal {payload}", f"was taken by {len(places)} waits", lines
        if payload not in kept:
            yield f"signal {payload}", "was taken, and nobody has sent it", lines
    yield from _sent_twice(facts)
    taken = Counter(
        row.job_id
        for rows in facts.checkpoints.values()
        for row in rows
        if row.kind == _SIGNAL and row.state == SUCCEEDED and row.job_id
    )
    for id, count in taken.items():
        if count > 1:
            yield f"signal {id}", f"ended {count} waits", ()


def _sent_twice(facts: Facts) -> Found:
    """Two that the same `once` was sent with, and both were told that theirs is the first."""
    first: dict[tuple[str, str], Operation] = {}
    for operation in facts.operations:
        if operation.kind != "send" or not operation.detail or not operation.id:
            continue
        if operation.answer == "done":
            before = first.setdefault((operation.subject, operation.detail), operation)
            if before is not operation:
                sentence = f"was sent again as {operation.id}, under the same once"
                lines = (line("operations", before), line("operations", operation))
                yield f"signal {before.id}", sentence, lines


def signals_are_not_lost(facts: Facts, tally: Tally) -> Found:
    kept = {str(row.payload) for row in facts.signals}
    for operation in facts.operations:
        if operation.kind == "send" and operation.answer == "done" and operation.id:
            tally["signals sent"] += 1
            if operation.id not in kept:
                sentence = "was acknowledged, and is not in the database"
                yield f"signal {operation.id}", sentence, (line("operations", operation),)
    # One that lost a race has given back what it took: then nobody can say for how long it was free.
    contested = {
        sight.value.removeprefix("contested ")
        for sights in facts.sights.values()
        for sight in sights
        if sight.event == "asked" and sight.value.startswith("contested ")
    }
    sent: dict[tuple[str, str], list[SignalRow]] = defaultdict(list)
    for row in facts.signals:
        if f"{row.name}/{row.key}" not in contested:
            sent[row.name, row.key].append(row)
    by_id = {row.id: row for row in facts.signals}
    for rows in facts.checkpoints.values():
        for wait in rows:
            if wait.kind == _SIGNAL:
                tally["waits"] += 1
                others = sent.get((wait.signal or "", wait.signal_key or ""), [])
                yield from _passed_over(facts, wait, by_id.get(wait.job_id or ""), others)


def _passed_over(
    facts: Facts, wait: CheckpointRow, took: SignalRow | None, others: list[SignalRow]
) -> Found:
    """A signal that was free when the wait took a later one, or when its time was over."""
    slack = _SLACK + facts.meta.clock_error
    if wait.state == SUCCEEDED and took is not None and took.taken_at is not None:
        end, until, how = took.taken_at, took.sent_at, f"took {took.payload}"
    elif wait.state == FAILED and wait.wake_at is not None:
        end, until, how = wait.wake_at, wait.wake_at, "was told that none came"
    else:
        return
    for row in others:
        free_after = row.taken_at is None or row.taken_at > end + slack
        if row is not took and row.sent_at < until - slack and free_after:
            sentence = f"{how}, and {row.payload} had been sent before"
            yield (
                f"run {wait.run_id}",
                sentence,
                (line("db-checkpoint", wait), line("db-signal", row)),
            )
