"""Jobs under a rate start no closer together than it allows.

A start comes a little later than the moment it was granted, by what the answer takes on its way: judged
is what starts in a mended cluster, with some seconds for that.
"""

from __future__ import annotations

from proof import keyed_tasks as keyed
from proof.checker.facts import Facts
from proof.checker.report import Found, Tally

_ON_THE_WAY = 3.0  # seconds


def rates_are_kept(facts: Facts, tally: Tally) -> Found:
    since = facts.meta.healed + facts.meta.lease_seconds
    starts = sorted(
        attempt.start.at
        for job, attempts in facts.attempts.items()
        if job in facts.jobs and facts.jobs[job].task == keyed.PACED
        for attempt in attempts
        if attempt.start.at > since
    )
    tally["starts under a rate"] += len(starts)
    # Of all stretches the one with the most starts too many.
    worst, ahead, first = 0.0, 0.0, 0
    found: tuple[int, int] | None = None
    for place, at in enumerate(starts):
        if place:
            ahead += keyed.EVERY - (at - starts[place - 1])
        if ahead <= 0.0:
            ahead, first = 0.0, place
        if ahead > worst:
            worst, found = ahead, (first, place)
    if found is not None and worst > _ON_THE_WAY:
        first, last = found
        sentence = (
            f"{last - first + 1} jobs started from {starts[first]:.3f} to {starts[last]:.3f}: one "
            f"every {keyed.EVERY:g} s is allowed"
        )
        yield f"task {keyed.PACED}", sentence, ()
