"""Advances runs where more than a countdown is needed: conditions, skips, sub-workflows, ends.

Protocol. Whoever ends a step's job counts down its successors in the same transaction
(functions/workflows.sql) and starts those whose rule is simply met. Everything else becomes a row of
`rota.pending_step`. An advancer locks a run, and its steps that wait or run, in the order of their
numbers, as a finish does; it takes the pending rows, decides, and writes what follows, in one
transaction. Dying before its commit leaves the rows for another. Each change of a step is guarded by
the step's state, so that a decision that comes twice changes nothing.

A run ends when its hidden last step may, and no other step waits or runs: cancelling, or skipping by
hand, closes steps before those that they come after. While some still run, the end of each of them
makes the last step pending again.

A run that is being cancelled has a pending row without a step. It is taken in a transaction of its own,
which locks no run: it asks the jobs that still run to stop, and their ends count down as any other.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from rota.core.workflow.expressions import Condition
from rota.core.workflow.graph import condition_values
from rota.core.workflow.model import Rule, RunState, StepKind, StepState
from rota.core.workflow.references import STEP, complete, find_references
from rota.errors import ConfigError, InvalidArguments
from rota.model import Failure
from rota.store.database import Database
from rota.store.jobs import JobStore
from rota.store.workflows import WorkflowStore

log = logging.getLogger("rota.workflows")

_DEADLINE = msgspec.json.encode(
    {"type": "DeadlineExceeded", "message": "the run did not end before its deadline"}
).decode()


class RunAdvance:
    """Decides about pending steps. `advance()` handles one run."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._store = WorkflowStore(database)

    async def pending(self, limit: int) -> list[UUID]:
        """Return runs that need a decision."""
        return await self._store.pending_runs(limit)

    async def advance(self, id: UUID) -> bool:
        """Decide about everything that is pending in a run. False: another does, at the moment."""
        run = await self._advance(id)
        if (
            run is not None
            and run["cancel_at"] is not None
            and await self._stop(id, run["namespace"])
        ):
            await self._advance(id)  # a job that nobody had claimed has ended at once
        return run is not None

    async def _advance(self, id: UUID) -> Any:
        async with self._database.shared_transaction("advance_run"):
            run = await self._store.take_run(id)
            if run is None:
                return None
            if run["overdue"] and run["state"] == RunState.RUNNING and run["cancel_at"] is None:
                await self._store.close_run(id, _DEADLINE)
                run = await self._store.lock_run(id)
            await self._decide(run)
            return run

    async def _stop(self, id: UUID, namespace: str) -> bool:
        """Ask what still runs in a cancelled run to stop: jobs, and runs of its sub-workflows."""
        async with self._database.shared_transaction("stop_run"):
            rows = await self._store.stopping_jobs(id)
            jobs = [row["job_id"] for row in rows if row["kind"] != StepKind.WORKFLOW]
            if jobs:
                await JobStore(self._database).cancel_jobs(namespace, sorted(jobs))
        for row in rows:
            if row["kind"] == StepKind.WORKFLOW:
                await self.cancel(row["job_id"], namespace)
        return bool(rows)

    async def cancel(self, id: UUID, namespace: str) -> bool:
        """Cancel a run: close what waits, ask what runs to stop. False: it had ended."""
        async with self._database.shared_transaction("cancel_run"):
            run = await self._store.lock_run(id, namespace)
            if run is None or run["state"] != RunState.RUNNING:
                return False
            if run["cancel_at"] is None:
                await self._store.close_run(id)
        await self.advance(id)
        return True

    # -- deciding

    async def _decide(self, run: Any) -> None:
        await self._store.lock_open_steps(run["id"])
        rows = await self._store.take_pending(run["id"])
        if run["state"] != RunState.RUNNING:
            return
        for row in rows:
            if row["kind"] == StepKind.WORKFLOW and row["state"] == StepState.RUNNING:
                await self._end_child(run, row)
        ready = [row for row in rows if row["state"] == StepState.WAITING and row["verdict"]]
        ends = any(row["kind"] == StepKind.END for row in ready)
        verdicts = {
            row["number"]: await self._verdict(run, row)
            for row in ready
            if row["kind"] != StepKind.END
        }
        start = [number for number, state in verdicts.items() if state is StepState.RUNNING]
        settled = {number: state for number, state in verdicts.items() if state and state.is_final}
        if start:
            await self._store.start_steps(run["id"], start)
        if settled:
            await self._store.settle_steps(run["id"], settled)
            await self._decide(run)  # the end may be among what follows
        elif ends and not await self._store.has_open_steps(run["id"]):
            await self._store.finish_run(run["id"])

    async def _verdict(self, run: Any, row: Any) -> StepState | None:
        """Return what becomes of a step that waits for nothing more; None: nothing at the moment."""
        verdict = StepState(row["verdict"])
        if run["cancel_at"] is not None and row["rule"] != Rule.ALWAYS:
            return StepState.CANCELLED
        if verdict is not StepState.RUNNING:
            return verdict
        if run["paused_at"] is not None and run["cancel_at"] is None:
            return None  # resuming looks at every step again
        try:
            if row["condition"] is not None and not await self._holds(run, row):
                return StepState.SKIPPED
            if row["kind"] == StepKind.WORKFLOW:
                await self._start_child(run, row)
                return None
        except (InvalidArguments, ConfigError) as error:
            failure = Failure(type(error).__name__, str(error))
            text = msgspec.json.encode(failure).decode()
            await self._store.fail_step(run["id"], row["number"], text)
            return StepState.FAILED
        return StepState.RUNNING

    async def _holds(self, run: Any, row: Any) -> bool:
        condition = Condition(row["condition"])
        names = await self._store.step_names(run["id"])
        numbers = [number for number, name in enumerate(names) if name in condition.names]
        results = await self._results(run["id"], numbers)
        return condition.holds(condition_values(condition, self._input(run), names, results))

    async def _start_child(self, run: Any, row: Any) -> None:
        if await self._store.newest(run["namespace"], row["task"]) is None:
            raise InvalidArguments(f"no workflow is named {row['task']!r}")
        arguments = msgspec.json.decode(row["arguments"])
        numbers = [int(each.name) for each in find_references(arguments) if each.kind == STEP]
        results = await self._results(run["id"], numbers)
        given = complete(arguments, self._input(run), results, row["name"])
        await self._store.start_child(run["id"], row["number"], msgspec.json.encode(given).decode())

    async def _end_child(self, run: Any, row: Any) -> None:
        child = await self._store.child_outcome(row["job_id"])
        if child is None or child["state"] == RunState.RUNNING:
            return
        states = {
            RunState.SUCCEEDED: StepState.SUCCEEDED, RunState.CANCELLED: StepState.CANCELLED
        }  # fmt: skip
        state = states.get(RunState(child["state"]), StepState.FAILED)
        await self._store.end_child(run["id"], row["number"], row["job_id"], state, child["error"])

    def _input(self, run: Any) -> Mapping[str, Any]:
        given: Mapping[str, Any] = self._database.encryption.value(run["input"], run["id"], "input")
        return given

    async def _results(self, run: UUID, numbers: list[int]) -> dict[int, Any]:
        stored = await self._store.results([(run, number) for number in numbers])
        return {
            number: self._database.encryption.value(result, job or run, "result")
            for (_, number), (job, result) in stored.items()
        }
