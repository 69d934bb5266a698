"""Definitions of workflows, and their runs, in the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rota.core.workflow.graph import CompiledStep
from rota.store.database import Database
from rota.store.rows import NewRun, Submitted


class WorkflowStore:
    """One short method per query. Whoever changes a run has locked it in a transaction."""

    def __init__(self, database: Database) -> None:
        self.database = database

    # -- definitions

    async def newest(self, namespace: str, name: str) -> Any | None:
        rows = await self.database.fetch("newest_workflow", namespace, name)
        return rows[0] if rows else None

    async def find_digest(self, namespace: str, name: str, digest: str) -> int | None:
        """Return the newest version that has this definition."""
        version: int | None = await self.database.fetchval("find_digest", namespace, name, digest)
        return version

    async def version(self, namespace: str, name: str, version: int) -> Any | None:
        rows = await self.database.fetch("workflow_version", namespace, name, version)
        return rows[0] if rows else None

    async def list_workflows(self, namespace: str, except_like: str) -> list[Any]:
        return await self.database.fetch("list_workflows", namespace, except_like)

    async def lock_name(self, namespace: str, name: str) -> None:
        await self.database.fetch("lock_workflow", namespace, name)

    async def add(
        self, id: UUID, namespace: str, name: str, version: int, digest: str, definition: str,
        result_step: int | None, deadline: float | None, retention: float | None,
        steps: Sequence[CompiledStep], source: str,
    ) -> None:  # fmt: skip
        await self.database.fetch(
            "add_workflow",
            id,
            namespace,
            name,
            version,
            digest,
            definition,
            result_step,
            deadline,
            retention,
            source,
        )
        rows = msgspec.json.encode(steps).decode()
        await self.database.fetch("add_workflow_steps", id, rows)

    async def retire(self, namespace: str, name: str, *, retired: bool) -> None:
        await self.database.fetch("retire_workflow", namespace, name, retired)

    # -- runs

    async def start(self, run: NewRun) -> Submitted:
        rows = await self.database.fetch("start_run", msgspec.json.encode(run).decode())
        return Submitted(rows[0]["run_id"], rows[0]["existed"], rows[0]["conflict"])

    async def start_all(self, runs: Sequence[NewRun]) -> list[Submitted]:
        """Start many runs, all or none."""
        rows = await self.database.fetch("start_runs", msgspec.json.encode(runs).decode())
        return [Submitted(row["run_id"], row["existed"], row["conflict"]) for row in rows]

    async def get_run(self, namespace: str, id: UUID) -> Any | None:
        rows = await self.database.fetch("get_run", namespace, id)
        return rows[0] if rows else None

    async def has_ended(self, namespace: str, id: UUID) -> bool | None:
        ended: bool | None = await self.database.fetchval("has_ended", namespace, id)
        return ended

    async def list_runs(
        self, namespace: str, name: str | None, state: int | None,
        before: tuple[datetime, UUID] | None, limit: int,
    ) -> list[Any]:  # fmt: skip
        moment, id = before or (None, None)
        return await self.database.fetch("list_runs", namespace, name, state, moment, id, limit)

    async def steps(self, run: UUID, after: int, state: int | None, limit: int) -> list[Any]:
        return await self.database.fetch("run_steps", run, after, state, limit)

    async def run_graph(self, run: UUID) -> list[Any]:
        return await self.database.fetch("run_graph", run)

    async def step_numbers(self, run: UUID, names: Sequence[str]) -> dict[str, int]:
        return dict(await self.database.fetch("step_numbers", run, names))

    async def step_names(self, run: UUID) -> list[str]:
        return [row["name"] for row in await self.database.fetch("step_names", run)]

    async def predecessors(self, run: UUID, numbers: Sequence[int]) -> dict[int, list[int]]:
        return dict(await self.database.fetch("predecessors", run, numbers))

    async def step_states(self, run: UUID, numbers: Sequence[int]) -> list[Any]:
        return await self.database.fetch("step_states", run, numbers)

    async def explain_run(self, run: UUID) -> Any:
        """Return the time, how many steps of a run are running, and how many schedulers are alive."""
        return (await self.database.fetch("explain_run", run))[0]

    async def open_waits(self, run: UUID, most: int) -> list[Any]:
        """Return what a suspended durable function waits for; nothing while it runs."""
        return await self.database.fetch("open_waits", run, most)

    async def running_among(self, run: UUID, numbers: Sequence[int]) -> list[str]:
        rows = await self.database.fetch("running_among", run, numbers)
        return [row["name"] for row in rows]

    # -- what steps are given

    async def inputs_and_results(
        self, runs: Sequence[UUID], keys: Sequence[tuple[UUID, int]],
        read: Callable[[str | None, UUID], Any],
    ) -> tuple[dict[UUID, str], dict[tuple[UUID, int], Any]]:  # fmt: skip
        """Return the inputs of runs as they are stored, and the results of steps. See `results`."""
        steps = [run for run, _ in keys], [number for _, number in keys]
        rows = await self.database.fetch("step_values", runs, *steps)
        inputs = {row["run_id"]: row["result"] for row in rows if row["number"] is None}
        return inputs, _results([row for row in rows if row["number"] is not None], read)

    async def results(
        self, keys: Sequence[tuple[UUID, int]], read: Callable[[str | None, UUID], Any]
    ) -> dict[tuple[UUID, int], Any]:
        """Return the results of steps. `read` decrypts one, which may be encrypted for a job.

        That of a sub-workflow with several last steps is made of theirs, by their names.
        """
        runs, numbers = [run for run, _ in keys], [number for _, number in keys]
        return _results(await self.database.fetch("step_results", runs, numbers), read)

    # -- advancing

    async def pending_runs(self, limit: int, but: Sequence[UUID]) -> list[UUID]:
        return [row[0] for row in await self.database.fetch("pending_runs", limit, but)]

    async def lock_run(self, id: UUID, namespace: str | None = None) -> Any | None:
        rows = await self.database.fetch("lock_run", id, namespace)
        return rows[0] if rows else None

    async def take_run(self, id: UUID) -> Any | None:
        """As `lock_run`, but None also if another holds the lock."""
        rows = await self.database.fetch("take_run", id)
        return rows[0] if rows else None

    async def lock_open_steps(self, run: UUID) -> None:
        await self.database.fetch("lock_open_steps", run)

    async def has_open_steps(self, run: UUID) -> bool:
        """Return whether steps wait or run, the hidden end aside."""
        return bool(await self.database.fetchval("has_open_steps", run))

    async def take_pending(self, run: UUID) -> list[Any]:
        return await self.database.fetch("take_pending", run)

    async def start_steps(self, run: UUID, numbers: Sequence[int]) -> None:
        await self.database.fetch("start_steps", run, numbers)

    async def settle_steps(self, run: UUID, states: Mapping[int, int]) -> None:
        """End steps that wait, without a job, and all that follows from that."""
        await self.database.fetch("settle_steps", run, list(states), list(states.values()))

    async def fail_step(self, run: UUID, number: int, error: str) -> None:
        await self.database.fetch("fail_step", run, number, error)

    async def lock_child(self, run: UUID, number: int) -> Any | None:
        """Lock the run that a step had in an earlier round, if there is one that may go on."""
        rows = await self.database.fetch("lock_child", run, number)
        return rows[0] if rows else None

    async def start_child(self, run: UUID, number: int, child: UUID, given: str) -> None:
        await self.database.fetch("start_child", run, number, child, given)

    async def child_outcome(self, child: UUID) -> Any | None:
        rows = await self.database.fetch("child_outcome", child)
        return rows[0] if rows else None

    async def end_child(
        self, run: UUID, number: int, child: UUID, state: int, error: str | None
    ) -> None:
        await self.database.fetch("end_child", run, number, child, state, error)

    async def finish_run(self, run: UUID) -> None:
        await self.database.fetch("finish_run", run)

    async def close_run(self, run: UUID, reason: str | None = None) -> None:
        await self.database.fetch("close_run", run, reason)

    async def pause_run(self, run: UUID) -> None:
        await self.database.fetch("pause_run", run)

    async def unpause_run(self, run: UUID) -> None:
        await self.database.fetch("unpause_run", run)
        await self.database.fetch("hold_maps", run, False)
        await self.database.fetch("start_ready_steps", run)
        await self.database.fetch("wake_function", run)

    async def steps_to_resume(self, run: UUID) -> list[int]:
        return await self.database.fetchval("steps_to_resume", run) or []

    async def steps_from(self, run: UUID, first: Sequence[int]) -> list[int]:
        return await self.database.fetchval("steps_from", run, first) or []

    async def resume_run(self, run: UUID, numbers: Sequence[int]) -> None:
        await self.database.fetch("resume_run", run, numbers)

    async def supply_result(self, run: UUID, number: int, result: str, note: str) -> None:
        await self.database.fetch("supply_result", run, number, result, note)

    async def stop_notes(self, run: UUID) -> list[int]:
        return [row["id"] for row in await self.database.fetch("stop_notes", run)]

    async def lock_jobs(self, jobs: Sequence[UUID]) -> None:
        await self.database.fetch("lock_jobs", jobs)

    async def drop_notes(self, notes: Sequence[int]) -> None:
        await self.database.fetch("drop_notes", notes)

    async def drop_orphans(self, run: UUID) -> None:
        await self.database.fetch("drop_orphans", run)

    async def stopping_jobs(self, run: UUID) -> list[Any]:
        return await self.database.fetch("stopping_jobs", run)


def _results(
    rows: Sequence[Any], read: Callable[[str | None, UUID], Any]
) -> dict[tuple[UUID, int], Any]:
    found: dict[tuple[UUID, int], Any] = {}
    for row in rows:
        key, value = (row["run_id"], row["number"]), read(row["result"], row["job_id"])
        for name in reversed(row["part"]):
            value = {name: value}
        found[key] = _merged(found[key], value) if key in found else value
    return found


def _merged(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    """Return two parts of a result as one. The last name of their paths differs."""
    both = {**one, **two}
    for name in one.keys() & two.keys():
        both[name] = _merged(one[name], two[name])
    return both
