"""What a server may do to a statement: fail it before or after its effect, take long to commit it, or
take long to read it.

An error before the effect is raised by the real server, so that a transaction is aborted as it would be.
An error after the effect is told of a statement, or a commit, that was executed. A slow commit holds its
locks meanwhile, as one does that waits for a standby: others wait for it, and decide by what they find
after that.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import asyncpg

from proof.simulation.template import SCHEMA
from rota.store.sql import function_statements

SQLSTATES = ("53100", "53200", "53300", "57014", "58030", "40001", "40P01", "XX000")
# Of Rota: what somebody may read for long.
TABLES = (
    "past", "present", "future", "dead", "occurrence", "schedule", "batch", "node", "shard", "gate",
    "effect", "submit_key",
)  # fmt: skip

# Statements whose commit may be slow. Not all: some can't be run in a transaction.
_MAY_BE_SLOW = {
    "cancel_jobs", "claim", "mark_started", "begin_scheduled", "finish_succeeded", "finish_ended",
    "finish_retried", "give_back", "promote_waiting", "submit_jobs", "retry_jobs", "discard_jobs",
    "set_paused", "set_resumed", "release", "take_abandoned", "begin_effect", "end_effect",
    "claim_shared", "submit_made", "submit_unique", "finish_steps", "record_members",
}  # fmt: skip
_CALLED = re.compile(rf"\b{SCHEMA}\.(\w+)\(")
_LOCK_TIMEOUT = re.compile(r"lock_timeout\s*(?:=|to|',)\s*'?(\d+)\s*(ms|s)?", re.IGNORECASE)


def is_commit(text: str) -> bool:
    return text.upper().startswith("COMMIT")


def may_fail(text: str) -> bool:
    """A rollback can't; and whether a session has a lock of its own nobody doubts."""
    return not text.upper().startswith("ROLLBACK") and "advisory" not in text


def may_be_slow(name: str | None) -> bool:
    return name in _MAY_BE_SLOW


def raising(sqlstate: str) -> str:
    """A statement that fails so."""
    return f"do $$ begin raise exception 'simulated' using errcode = '{sqlstate}'; end $$"


def error_of(sqlstate: str) -> asyncpg.PostgresError:
    error: asyncpg.PostgresError = asyncpg.PostgresError.new(
        {"S": "ERROR", "V": "ERROR", "C": sqlstate, "M": "simulated"}
    )
    return error


def size_of(arguments: Any) -> int:
    """About how many bytes are sent."""
    if isinstance(arguments, str | bytes):
        return len(arguments)
    if isinstance(arguments, list | tuple):
        return sum(map(size_of, arguments))
    return 8


def lock_timeout(text: str) -> float | None:
    """What a statement, or a function that it calls, says of its patience with locks, in seconds."""
    found = _LOCK_TIMEOUT.search(text)
    if found is not None:
        return _in_seconds(found)
    called = _CALLED.search(text)
    return _patience_of_functions().get(called[1]) if called else None


@cache
def _patience_of_functions() -> dict[str, float]:
    patience: dict[str, float] = {}
    for text in function_statements(SCHEMA):
        called = _CALLED.search(text)
        found = _LOCK_TIMEOUT.search(text.partition("as $$")[0])
        if called is not None and found is not None:
            patience[called[1]] = _in_seconds(found)
    return patience


def _in_seconds(found: re.Match[str]) -> float:
    return int(found[1]) / (1 if found[2] == "s" else 1000)


def without_lock_timeout(text: str) -> str:
    """The real server has no part in it: its time isn't ours."""
    return _LOCK_TIMEOUT.sub(lambda found: found[0].replace(found[1], "0"), text)
