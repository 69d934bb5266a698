"""Mutants of durable functions: of their records, waits and signals, and of what replays them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

import rota.worker.functions
from proof.mutants.changes import in_function, in_query
from proof.simulation.mutant import Mutant
from proof.simulation.patches import Patches
from rota.core.workflow.model import CheckpointKind
from rota.durable.replay import Replay
from rota.durable.wire import Checkpoint
from rota.worker.functions import Functions

_MOVES = frozenset({"functions", "jobs"})
_HELD = "and p.token = g.token and p.node = $1 and p.state = {state.running} offset 0"
_HELD_HERE = (
    "where p.id = job and p.token = job_token and p.node = me and p.state = {state.running}"
)

# -- records

record_unfenced = Mutant(
    name="a record is not guarded by the lease",
    queries=in_query("record_checkpoints", (_HELD, "and p.state = {state.running} offset 0")),
    moves=_MOVES,
)
suspend_unfenced = Mutant(
    name="a suspension is not guarded by the lease",
    sql=in_function(
        "suspend_function", (f"{_HELD_HERE} for update", "where p.id = job for update")
    ),
    moves=_MOVES,
)


def _forget_occurrence(patches: Patches) -> None:
    def name_of(self: Replay, name: str) -> str:
        return honest(self, name).partition("#")[0]

    honest = Replay.name_of
    patches.set(Replay, "name_of", name_of)


key_without_occurrence = Mutant(
    name="a record's name lacks how often it was asked for",
    patch=_forget_occurrence,
    moves=_MOVES,
)


def _never_forgive(patches: Patches) -> None:
    async def write(self: Functions, entries: Any) -> None:
        crashes = [(entry.work, entry.work.crashes) for entry in entries]
        await honest(self, entries)
        for work, count in crashes:
            work.crashes = count

    honest = Functions._write_records
    patches.set(rota.worker.functions, "_blamed", lambda works: [])
    patches.set(Functions, "_write_records", write)


crashes_never_forgiven = Mutant(
    name="crashes are counted past a record", patch=_never_forgive, moves=_MOVES
)


def _ask_nothing(patches: Patches) -> None:
    patches.set(Replay, "check_new", lambda self, name, kind: None)
    patches.set(Replay, "check_all_asked", lambda self: None)


contradiction_overlooked = Mutant(
    name="code that contradicts the history goes on", patch=_ask_nothing, moves=_MOVES
)

# -- sleeps

sleep_is_relative = Mutant(
    name="a replay sleeps from its own beginning",
    sql=in_function(
        "open_function",
        (
            "    return query\n    select r.cancel_at",
            """
    update rota.checkpoint as c set wake_at = rota.now() + (c.wake_at - c.created_at)
    where c.run_id = run and c.state = {step.waiting} and c.kind = {checkpoint.sleep};
    return query
    select r.cancel_at""",
        ),
    ),
    moves=_MOVES,
)
sleep_ends_early = Mutant(
    name="whoever is woken has slept enough",
    sql=in_function(
        "open_function",
        (
            "and c.wake_at <= rota.now();",
            "and (c.wake_at <= rota.now() or c.kind = {checkpoint.sleep});",
        ),
    ),
    moves=_MOVES,
)

# -- signals

early_signal_lost = Mutant(
    name="a signal that came before the wait is not looked for",
    sql=in_function(
        "wait_for_signal", ("and s.taken_at is null\n", "and s.taken_at is null and false\n")
    ),
    moves=_MOVES,
)
signal_taken_twice = Mutant(
    name="a signal that was taken can be taken again",
    sql=in_function(
        "wait_for_signal",
        ("set taken_at = rota.now(), run_id = run where", "set run_id = run where"),
    ),
    moves=_MOVES,
)
once_forgotten = Mutant(
    name="once is forgotten at a resume",
    sql=in_function(
        "forget_failure",
        (
            "    with note as (",
            "    update rota.run_signal as s set once = null;\n    with note as (",
        ),
    ),
    moves=_MOVES,
)
wake_up_lost = Mutant(
    name="a function is suspended though its wait is over",
    sql=in_function(
        "suspend_function",
        ("and (c.state >= {step.succeeded} or c.wake_at <= rota.now())", "and c.wake_at < 'epoch'"),
    ),
    moves=_MOVES,
)
not_woken = Mutant(
    name="who ends a call does not wake the function",
    sql=in_function("end_calls", ("perform rota.count_ended_waits(ended);", "perform 1;")),
    moves=_MOVES,
)
join_miscounted = Mutant(
    name="the last wait of a gather does not wake the function",
    sql=in_function("count_ended_waits", ("r.waits_left > e.number", "r.waits_left >= e.number")),
    moves=_MOVES,
)

# -- calls and races

own_deadline_only = Mutant(
    name="a called run keeps its own deadline",
    sql=in_function("call_run", ("least(c.deadline_at, its.deadline_at)", "c.deadline_at")),
    moves=_MOVES,
)


def _leave_all(patches: Patches) -> None:
    async def close(self: Functions, work: Any, end: Any) -> None:
        await honest(self, work, msgspec.structs.replace(end, cancel=False))

    honest: Callable[..., Any] = Functions._close
    patches.set(Functions, "_close", close)


losers_go_on = Mutant(name="losers of a race are not stopped", patch=_leave_all, moves=_MOVES)


def _never_tell(patches: Patches) -> None:
    async def check_cancelled(self: Replay, name: str, kind: CheckpointKind) -> None:
        return None

    async def check_begun(self: Replay, begun: Checkpoint) -> None:
        return None

    patches.set(Replay, "check_cancelled", check_cancelled)
    patches.set(Replay, "check_begun", check_begun)


cancel_never_told = Mutant(
    name="a function is not told of its cancel before it does something new",
    patch=_never_tell,
    moves=_MOVES,
)
