"""Explains runs and their steps: what they wait for, and what to do.

A step whose job is there is explained by its job (`Jobs.explain`), a sub-workflow by its run.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from rota.core.explain import Explanation
from rota.core.workflow.explain import (
    Before,
    OpenWait,
    explain_ended_step,
    explain_run,
    explain_running_map,
    explain_suspended,
    explain_waiting_step,
)
from rota.core.workflow.model import CheckpointKind, StepKind, StepState
from rota.errors import NotFound
from rota.model import Run, RunStep
from rota.store.workflows import WorkflowStore

if TYPE_CHECKING:
    from rota.operations.rota import Rota

_NAMED = 3  # things that a durable function waits for, which one sentence names
_DEEPEST = 5  # sub-workflows inside of each other that one sentence follows


async def explain(
    rota: Rota, id: UUID | str, step: str | None = None, depth: int = 0
) -> Explanation:
    """Explain what a run waits for, or one step of it."""
    run = await rota.runs.get(id)
    if step is not None:
        return await _explain_step(rota, run, await rota.runs.step(run.id, step), depth)
    facts = await WorkflowStore((await rota.store()).database).explain_run(run.id)
    under_way: list[tuple[str, Explanation]] = []
    if run.ended_at is None:
        found = await rota.runs.steps(run.id, state="running", limit=1)
        found = found or await rota.runs.steps(run.id, state="waiting", limit=1)
        under_way = [(each.name, await _explain_step(rota, run, each, depth)) for each in found]
    return explain_run(run, facts["now"], under_way, facts["running"])


async def _explain_step(rota: Rota, run: Run, step: RunStep, depth: int) -> Explanation:
    if step.state == StepState.RUNNING.label:
        return await _explain_running(rota, run, step, depth)
    store = WorkflowStore((await rota.store()).database)
    numbers = (await store.predecessors(run.id, [step.number])).get(step.number, [])
    before = [
        Before(row["name"], StepState(row["state"]).label, row["optional"])
        for row in await store.step_states(run.id, numbers)
    ]
    if step.state != StepState.WAITING.label:
        return explain_ended_step(run, step, before)
    facts = await store.explain_run(run.id)
    return explain_waiting_step(run, step, before, facts["schedulers"])


async def _explain_running(rota: Rota, run: Run, step: RunStep, depth: int) -> Explanation:
    if step.progress is not None:
        return explain_running_map(run, step, step.progress)
    assert step.job_id is not None
    if step.kind == StepKind.FUNCTION.label and (found := await _explain_waits(rota, run, depth)):
        return found
    if step.kind == "workflow":
        started = f"It runs workflow {step.task!r} as run {step.job_id}."
        if depth >= _DEEPEST:
            return Explanation("running", started)
        inner = await explain(rota, step.job_id, depth=depth + 1)
        return Explanation(inner.code, f"{started} {inner.sentence}")
    try:
        return await rota.jobs.explain(step.job_id)
    except NotFound:  # its job has just ended, and the step with it
        return Explanation("ending", "Its job has ended; its own end is about to be seen.")


async def _explain_waits(rota: Rota, run: Run, depth: int) -> Explanation | None:
    """Explain a durable function by what it waits for; None: it runs, or is about to."""
    store = WorkflowStore((await rota.store()).database)
    rows = await store.open_waits(run.id, _NAMED)
    if not rows:
        return None
    waits = [
        OpenWait(
            CheckpointKind(row["kind"]), row["name"], row["attempt"], row["job_id"], row["wake_at"],
            row["signal"], None if row["signal_key"] == str(run.id) else row["signal_key"],
        )
        for row in rows
    ]  # fmt: skip
    inner: Explanation | None = None
    if len(waits) == 1 and depth < _DEEPEST and (called := waits[0].job_id) is not None:
        with suppress(NotFound):  # it has just ended
            if waits[0].kind is CheckpointKind.CALL:
                inner = await rota.jobs.explain(called)
            elif waits[0].kind is CheckpointKind.RUN:
                inner = await explain(rota, called, depth=depth + 1)
    now = (await store.explain_run(run.id))["now"]
    return explain_suspended(run, waits, rows[0]["open"], now, inner)
