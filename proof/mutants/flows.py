"""Mutants of what advances runs of workflows."""

from __future__ import annotations

from typing import Any

import rota.runtime.attempts
from proof.mutants.changes import in_function
from proof.simulation.mutant import Mutant
from proof.simulation.patches import Patches
from rota.operations.run_advance import RunAdvance

_MOVES = frozenset({"workflows", "jobs"})

step_started_twice = Mutant(
    name="a step that runs is started again",
    sql=in_function(
        "start_steps",
        ("and o.state = {step.waiting} offset 0", "and o.state <= {step.running} offset 0"),
        (
            "and s.state = {step.waiting}  -- asked again",
            "and s.state <= {step.running}  -- asked again",
        ),
    )
    + ";"
    + in_function(
        "count_down", ("where c.state = {step.waiting} and v", "where c.state <= 4 and v")
    ),
    moves=_MOVES,
)
started_one_early = Mutant(
    name="a step doesn't wait for the last before it",
    sql=in_function("step_verdict", ("when waits > 0 then null", "when waits > 1 then null")),
    moves=_MOVES,
)
cancel_closes_nothing = Mutant(
    name="a cancel leaves steps to start",
    sql=in_function("close_run", ("and w.rule <> {rule.always};", "and w.rule < 0;"))
    + ";"
    + in_function(
        "count_down", ("and (r.cancel_at is null or w.rule = {rule.always}) as simply", "as simply")
    ),
    moves=_MOVES,
)
cancelled_never_ends = Mutant(
    name="a cancelled run doesn't end with its last step",
    sql=in_function(
        "count_down", ("where l.state = {step.waiting} and l.waits <= 0", "where false")
    ),
    moves=_MOVES,
)
held_back_for_ever = Mutant(
    name="a cancel forgets what a pause held back",
    sql=in_function("close_run", ("perform rota.start_ready_steps(run, graph);", "")),
    moves=_MOVES,
)
failure_not_told = Mutant(
    name="a failure counts as any other end",
    sql=in_function("count_down", ("failed = s.failed + c.failed", "failed = s.failed")),
    moves=_MOVES,
)
stale_fan_in = Mutant(
    name="fan-in is counted from what was read before",
    sql=in_function(
        "count_down",
        ("for update offset 0) as locked", "offset 0) as locked"),
        ("waits = s.waits - c.ended", "waits = its.waits - c.ended"),
        (
            "select o.ctid as at from rota.step as o where o.run_id = c.run_id",
            "select o.ctid as at, o.waits from rota.step as o where o.run_id = c.run_id",
        ),
    ),
    moves=_MOVES,
)
resume_adjusts = Mutant(
    name="a resume leaves the counts as they are",
    sql=in_function(
        "resume_run",
        (
            "and s.number = c.number and s.state = {step.waiting};",
            "and s.number = c.number and false;",
        ),
    ),
    moves=_MOVES,
)
resume_leaves_dependents = Mutant(
    name="a resume leaves successes that depended on what is repeated",
    sql=in_function(
        "steps_to_resume",
        ("or not its.by_hand and", "or its.state <> {step.succeeded} and"),
    ),
    moves=_MOVES,
)
results_of_another_round = Mutant(
    name="an answer of another round is taken",
    sql=in_function(
        "step_result",
        (
            "    elsif its.state is not null then\n",
            """    elsif its.state is not null then
        select p.id, p.result into its.job_id, its.result from rota.past as p
        where p.run_id = run and p.step = step_result.step and p.state = {state.succeeded}
        order by p.token limit 1;
""",
        ),
    ),
    moves=_MOVES,
)


def _need_no_results(patches: Patches) -> None:
    patches.set(rota.runtime.attempts, "_needed_by_others", lambda work, outcome: outcome)


large_result_succeeds = Mutant(
    name="a step whose result is too large succeeds", patch=_need_no_results, moves=_MOVES
)
place_is_free = Mutant(
    name="a place is free while the run goes on",
    sql=in_function("left_places", ("r.id = g.job_id and r.state = {run.running}", "false")),
    moves=_MOVES,
)


def _cancel_no_children(patches: Patches) -> None:
    async def cancel(self: RunAdvance, id: Any, namespace: str) -> bool:
        return True

    patches.set(RunAdvance, "cancel", cancel)


children_go_on = Mutant(
    name="a cancel does not reach the runs of sub-workflows",
    patch=_cancel_no_children,
    moves=_MOVES,
)
