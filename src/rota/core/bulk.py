"""Tells what became of the jobs of a bulk action, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rota.model import State

_DONE = {"retry": "retried", "cancel": "cancelled or asked to stop", "discard": "discarded"}
_WORDS = {"running": "running", "ready": "ready", "scheduled": "scheduled", "waiting": "waiting"}


class Outcome(msgspec.Struct, frozen=True):
    sentence: str
    finished: int
    untouched: int  # jobs that may still be as the action left them


def outcome_of(action: str, jobs: int, states: Mapping[str, int], looked_at: int) -> Outcome:
    """Return the sentence, and how many jobs that were looked at have ended.

    Args:
        action: cancel, retry or discard.
        jobs: that it changed.
        states: how many jobs are in a state now, of the first `looked_at`.
        looked_at: how many were looked up at most.
    """
    finished = sum(count for state, count in states.items() if State.parse(state).is_final)
    head = f"{jobs:,} {_DONE[action]}"
    parts = [f"{count:,} {_word(action, state)}" for state, count in states.items() if count]
    # What a cancel or a discard ends is told by the head alone.
    if action != "retry" and set(states) <= {"cancelled"}:
        parts = []
    gone = min(jobs, looked_at) - sum(states.values())
    if gone > 0:
        parts.append(f"{gone:,} no longer stored")
    of = f" (of the first {looked_at:,})" if jobs > looked_at else ""
    untouched = states.get("ready" if action == "retry" else "cancelled", 0)
    return Outcome(f"{head}: {', '.join(parts)}{of}" if parts else head, finished, untouched)


def _word(action: str, state: str) -> str:
    if state == "failed":
        return "failed again" if action == "retry" else "failed"
    return _WORDS.get(state, state)
