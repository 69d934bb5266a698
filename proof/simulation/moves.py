"""What a simulation may do besides submitting and breaking machines; each can be left out.

A part draws from a randomness of its own, so that a seed without it is what it was before there was
that part: `--moves none` replays the seeds of old.
"""

from __future__ import annotations

from collections.abc import Iterable

# What each adds to a seed.
MOVES = {
    "schedules": "an operator makes, changes, pauses, triggers, backfills, renames and deletes them",
    "spoil": "rows of schedules that no version of ours can read",
    "jobs": "jobs are retried, discarded and submitted again under the same id",
    "odd": "handlers return, raise and ask for what nobody thought of; once() among them",
    "errors": "any statement fails, with any SQLSTATE, before or after its effect",
    "commits": "commits take long, as with a slow standby, and hold their locks meanwhile",
    "narrow": "a line that carries little, so that much takes longer than a statement may",
    "limits": "batches of two or three, so that what takes 100,000 rows elsewhere takes four",
    "readers": "somebody reads a table for long, and days of the past are missing",
    "dba": "defaults that a database's owner may have chosen",
    "clock": "the database's clock is set back",
    "hung": "handlers hang: without a sign of life, past their timeout, or with no limit of their own",
    "workflows": "runs of random graphs, cancelled, paused, resumed, their steps retried and skipped",
    "keys": "jobs under limits and in order, by task and by key",
    "shares": "a fair queue, with a backlog of every key at the end",
    "unique": "unique, debounced and throttled jobs, submitted again and again",
    "drains": "workers are drained, and let go on",
    "maps": "maps over lists, in chunks and as jobs of their own",
    "quotas": "a queue with a limit of depth, filled until submits are refused",
    "history": "a queue keeps all, some or none of its jobs, by turns, and they are submitted again",
    "resources": "jobs that take resources of unequal machines, small ones in front of large ones",
    "functions": "durable functions with random bodies, signals, and new code in the middle",
    "coordinator": "etcd, ZooKeeper or Consul shares the shards in three of four seeds, and is broken",
}
ALL = frozenset(MOVES)
NONE: frozenset[str] = frozenset()
# One that is new is left out here until it has been seen to be sound.
DEFAULT = ALL


def parse_moves(text: str) -> frozenset[str]:
    """``all``, ``none``, ``default``, or names with commas between them."""
    named = {"all": ALL, "none": NONE, "default": DEFAULT}
    if text in named:
        return named[text]
    chosen = frozenset(text.split(","))
    unknown = sorted(chosen - ALL)
    if unknown:
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(MOVES)}, all, none, default")
    return chosen


def in_order(moves: Iterable[str]) -> list[str]:
    return [name for name in MOVES if name in set(moves)]
