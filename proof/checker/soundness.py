"""Whether the history itself can be judged: what its writers owe to the checker."""

from __future__ import annotations

from proof.checker.facts import Facts, hits
from proof.checker.report import Found, Tally, line
from proof.history import KILL, WITHDRAWAL

_LAST_BREATH = 1.0  # between the moment that is written down for a kill, and the kill


def the_history_is_sound(facts: Facts, tally: Tally) -> Found:
    meta = facts.meta
    tally["beats"] += len(facts.beats)
    tally["client records"] += len(facts.submissions)
    tally["faults"] += len(facts.faults)
    if not meta.started <= meta.healed <= meta.ended:
        yield "meta", "started, healed and ended are not in this order", (line("meta", meta),)
    for fault in facts.faults:
        if fault.kind == WITHDRAWAL:
            continue
        if fault.until > meta.healed and fault.at < meta.ended:
            yield f"fault {fault.kind}", "goes on after all was healed", (line("faults", fault),)
    for task in sorted({beat.task for beat in facts.beats} - meta.tasks.keys()):
        yield f"task {task}", "has a journal, and meta.json doesn't declare it", ()
    for beat in facts.orphans:
        yield f"job {beat.job}", "journaled an end without a start", (line("journal", beat),)
    yield from _beats_of_the_dead(facts)


def _beats_of_the_dead(facts: Facts) -> Found:
    first = {beat.node: beat for beat in reversed(facts.beats)}
    last = {beat.node: beat for beat in facts.beats}
    for fault in facts.faults:
        if fault.kind != KILL:
            continue
        for node, beat in last.items():
            was_there = first[node].at <= fault.at
            if was_there and hits(fault, node) and beat.at > fault.at + _LAST_BREATH:
                evidence = (line("faults", fault), line("journal", beat))
                yield f"node {node}", "goes on with its journal after it was killed", evidence
