"""A worker that was asked to drain, and must have heard of it, starts nothing until it may again."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from proof.checker.facts import Facts
from proof.checker.report import Found, Tally, line


class Drain(msgspec.Struct):
    node: str  # its process
    since: float  # when it was asked for
    surely: float  # and when that was answered
    until: float  # when it was asked to go on
    over: float  # and when that was answered


def drains_of(facts: Facts) -> Iterator[Drain]:
    open_ones: dict[str, Drain] = {}
    for operation in facts.operations:
        if operation.kind == "drain" and operation.answer == "done":
            drain = Drain(
                operation.detail, operation.at, operation.until, float("inf"), float("inf")
            )
            open_ones[operation.subject] = drain
        elif operation.kind == "undrain" and operation.subject in open_ones:
            drain = open_ones.pop(operation.subject)
            drain.until, drain.over = operation.at, operation.until
            yield drain
    yield from open_ones.values()


def drained_workers_start_nothing(facts: Facts, tally: Tally) -> Found:
    """It hears of it with a heartbeat, of which there are several in a lease."""
    lease = facts.meta.lease_seconds
    starts: dict[str, list[float]] = {}
    for attempts in facts.attempts.values():
        for attempt in attempts:
            starts.setdefault(attempt.start.node, []).append(attempt.start.at)
    for drain in drains_of(facts):
        heard, until = drain.surely + lease, min(drain.until, facts.meta.ended)
        if until <= heard or not drain.node or facts.disturbed(drain.since - lease, until):
            continue
        tally["drains in calm"] += 1
        for at in starts.get(drain.node, ()):
            if heard < at < until:
                sentence = (
                    f"was asked to drain at {drain.surely:.3f}, and started a job at {at:.3f}"
                )
                yield f"process {drain.node}", sentence, (line("drain", drain),)
