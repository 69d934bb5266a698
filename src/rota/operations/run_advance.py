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

A run that is being cancelled has a pending row without a step, a note. Transactions of their own, which
lock no run, ask the jobs that still run to stop, and their ends count down as any other; then the runs
of sub-workflows are cancelled, each by itself. The note goes last: dying before leaves it for another,
and to ask twice changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from rota.core.workflow.expressions import Condition
from rota.core.workflow.maps import check_mapped
from rota.core.workflow.model import (
    STREAM,
    CheckpointKind,
    Rule,
    RunState,
    StepKind,
    StepState,
)
from rota.core.workflow.references import STEP, complete, find_references
from rota.errors import ConfigError, KeyMissing, NotAuthentic, SubmitError
from rota.lib.capture import storable
from rota.lib.ids import new_id
from rota.model import Failure
from rota.operations.map_chunks import Chunker, chosen_size
from rota.store.database import Database
from rota.store.driver_errors import blames_the_data, translated_errors
from rota.store.durable_functions import DurableFunctionStore
from rota.store.encrypted import Encryption, encrypted_failure
from rota.store.jobs import JobStore
from rota.store.maps import MapStore, NewChunk
from rota.store.workflows import WorkflowStore

log = logging.getLogger("rota.workflows")

Names: TypeAlias = dict[str, int]  # the numbers of steps, by name
_AT_ONCE = 1_000  # jobs that one transaction stops
_REFUSED = (ConfigError, NotAuthentic, SubmitError)
_DEADLINE = msgspec.json.encode(
    {"type": "DeadlineExceeded", "message": "the run did not end before its deadline"}
).decode()


class RunAdvance:
    """Decides about pending steps. `advance()` handles one run."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._store = WorkflowStore(database)
        self._functions = DurableFunctionStore(database)
        self._encryptions: dict[str, Encryption] = {}  # of other namespaces than the node's own

    async def pending(self, limit: int, but: Sequence[UUID] = ()) -> list[UUID]:
        """Return runs that need a decision, but for some."""
        return await self._store.pending_runs(limit, but)

    async def advance(self, id: UUID) -> bool:
        """Decide about everything that is pending in a run. False: another does, at the moment."""
        await self._functions.end_called_runs(id)
        run = await self._advance(id)
        if run is None:
            await self._store.drop_orphans(id)
            return False
        if run["cancel_at"] is None:
            return True
        stopped = await self._stop(id, run["namespace"])
        if stopped is not None:
            await self._advance(id)  # a job that nobody had claimed has ended at once
        return stopped is not False

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

    async def _stop(self, id: UUID, namespace: str) -> bool | None:
        """Ask what still runs in a cancelled run to stop: jobs, and runs of its sub-workflows.

        None: nobody wants that any more. False: some job could not be asked, and the note stays.
        """
        notes = await self._store.stop_notes(id)
        if not notes:
            return None
        rows = await self._store.stopping_jobs(id)
        jobs = sorted(row["job_id"] for row in rows if row["kind"] != StepKind.WORKFLOW)
        reached: set[UUID] = set()
        for first in range(0, len(jobs), _AT_ONCE):
            part = jobs[first : first + _AT_ONCE]
            async with self._database.shared_transaction("stop_run"):
                # Each job that ends here locks its step and those after it: not in order, by itself.
                await self._store.lock_jobs(part)
                await self._store.lock_open_steps(id)
                reached |= (await JobStore(self._database).cancel_jobs(namespace, part)).keys()
        for row in rows:
            if row["kind"] == StepKind.WORKFLOW:
                await self.cancel(row["job_id"], namespace)
        await self._functions.cancel_function(id)
        await self.stop_called(namespace, await self._functions.cancelled_calls(id))
        if not all(job in reached for job in jobs):
            return False
        await self._store.drop_notes(notes)
        return True

    async def stop_called(self, namespace: str, rows: Sequence[Any]) -> None:
        """Ask jobs and runs that a durable function has called to stop."""
        jobs = [row["job_id"] for row in rows if row["kind"] == CheckpointKind.CALL]
        if jobs:
            async with self._database.shared_transaction("stop_called"):
                await JobStore(self._database).cancel_jobs(namespace, sorted(jobs))
        for row in rows:
            if row["kind"] == CheckpointKind.RUN:
                await self.cancel(row["job_id"], namespace)

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
        """Decide until nothing follows: what ends here may be what others waited for."""
        await self._store.lock_open_steps(run["id"])
        names: Names = {}
        while await self._decide_once(run, names):
            pass

    async def _decide_once(self, run: Any, names: Names) -> bool:
        """Decide about what is pending now. Return whether something was settled by that."""
        rows = await self._store.take_pending(run["id"])
        if run["state"] != RunState.RUNNING:
            return False
        for row in rows:
            if row["kind"] == StepKind.WORKFLOW and row["state"] == StepState.RUNNING:
                await self._end_child(run, row)
        ready = [row for row in rows if row["state"] == StepState.WAITING and row["verdict"]]
        ends = any(row["kind"] == StepKind.END for row in ready)
        verdicts = {
            row["number"]: await self._verdict(run, row, names)
            for row in ready
            if row["kind"] != StepKind.END
        }
        start = [number for number, state in verdicts.items() if state is StepState.RUNNING]
        settled = {number: state for number, state in verdicts.items() if state and state.is_final}
        if start:
            await self._store.start_steps(run["id"], start)
        if settled:
            await self._store.settle_steps(run["id"], settled)
        elif ends and not await self._store.has_open_steps(run["id"]):
            await self._store.finish_run(run["id"])
        return bool(settled)

    async def _verdict(self, run: Any, row: Any, names: Names) -> StepState | None:
        """Return what becomes of a step that waits for nothing more; None: nothing at the moment."""
        verdict = StepState(row["verdict"])
        if run["cancel_at"] is not None and row["rule"] != Rule.ALWAYS:
            return StepState.CANCELLED
        if verdict is not StepState.RUNNING:
            return verdict
        if run["paused_at"] is not None and run["cancel_at"] is None:
            return None  # resuming looks at every step again
        try:
            if row["condition"] is not None and not await self._holds(run, row, names):
                return StepState.SKIPPED
            if row["kind"] == StepKind.MAP:
                return await self._start_map(run, row)
            if row["kind"] == StepKind.WORKFLOW:
                with translated_errors():
                    async with self._database.transaction():  # a savepoint: it may be refused
                        await self._start_child(run, row)
                return None
        except Exception as error:
            refused = isinstance(error, _REFUSED) or blames_the_data(error)
            if not refused or isinstance(error, KeyMissing):
                raise  # another node may have the key
            await self._fail(run, row, Failure(type(error).__name__, storable(str(error))))
            return StepState.FAILED
        return StepState.RUNNING

    async def _fail(self, run: Any, row: Any, failure: Failure | None) -> None:
        """Note why a step fails. It may quote a value."""
        encryption = await self._encryption(run["namespace"])
        if encryption.required:
            encryptor = encryption.for_job(row["job_id"] or run["id"])
            failure = encrypted_failure(encryptor, failure)
        text = msgspec.json.encode(failure).decode()
        await self._store.fail_step(run["id"], row["number"], text)

    async def _holds(self, run: Any, row: Any, names: Names) -> bool:
        condition = Condition(row["condition"])
        if not names:
            found = await self._store.step_names(run["id"])
            names |= {name: number for number, name in enumerate(found)}
        numbers = {name: names[name] for name in condition.names if name in names}
        results = await self._results(run, list(numbers.values()))
        values = {name: results.get(number) for name, number in numbers.items()}
        return condition.holds({**values, "input": await self._input(run)})

    async def _start_child(self, run: Any, row: Any) -> None:
        """Start the run of a sub-workflow, or let that of an earlier round go on, unless its input
        would be another now."""
        arguments = msgspec.json.decode(row["arguments"])
        numbers = [int(each.name) for each in find_references(arguments) if each.kind == STEP]
        results = await self._results(run, numbers)
        given = complete(arguments, await self._input(run), results, row["name"])
        earlier = await self._store.lock_child(run["id"], row["number"])
        if earlier is not None and await self._input(earlier) == given:
            child, text = earlier["id"], "{}"
        else:
            child, text = new_id(), msgspec.json.encode(given).decode()
            encryption = await self._encryption(run["namespace"])
            if encryption.required:
                text = encryption.for_job(child).json("input", text.encode())
        await self._store.start_child(run["id"], row["number"], child, text)

    async def _start_map(self, run: Any, row: Any) -> StepState | None:
        """Start a map, with the chunks of its list unless it has them from an earlier round."""
        maps, definition = MapStore(self._database), msgspec.json.decode(row["map"])
        stored = await maps.progress(run["id"], row["number"])
        if stored and not await self._is_whole(run, row, definition, stored[0]):
            await maps.forget(run["id"], row["number"])
            stored = []
        if not stored:
            encryption, id = await self._encryption(run["namespace"]), new_id()
            items = await self._items(run, row, definition)
            chunks: list[NewChunk] = []
            if items is not None:
                limit = self._database.settings.max_payload_bytes
                size = chosen_size(definition, len(items), rated=row["rated"])
                chunks = list(
                    Chunker(encryption, id, size, limit, f"step {row['name']!r}").all(items)
                )
            await maps.make(
                run["id"], row["number"], id, each_job=definition["each"] == "job",
                at_once=definition["at_once"], tolerated=definition["tolerated"],
                share=definition["share"], closed=items is not None, chunks=chunks,
            )  # fmt: skip
        state = StepState(await maps.start(run["id"], row["number"]))
        return state if state.is_final else None

    async def _items(self, run: Any, row: Any, definition: Any) -> list[Any] | None:
        """Return the list that a map is over; None: its members are added while it runs."""
        check_mapped(
            f"step {row['name']!r}", row["task"], each=definition["each"], size=definition["size"],
            guarantee=row["guarantee"], rated=row["rated"],
            keys=["concurrency_key"] if row["per_key"] else (),
        )  # fmt: skip
        if definition["over"] == STREAM:
            return None
        items = await self._over(run, row, definition)
        if not isinstance(items, list):
            kind = "nothing" if items is None else f"a value of type {type(items).__name__}"
            raise ConfigError(f"step {row['name']!r} maps over a list, and was given {kind}")
        return items

    async def _over(self, run: Any, row: Any, definition: Any) -> Any:
        over = definition["over"]
        numbers = [int(each.name) for each in find_references(over) if each.kind == STEP]
        results = await self._results(run, numbers)
        return complete(over, await self._input(run), results, row["name"])

    async def _is_whole(self, run: Any, row: Any, definition: Any, stored: Any) -> bool:
        """Return whether the stored list of a map is the one to use. What a generator stored that didn't
        come to its end, or whose step was skipped by hand, is not."""
        if definition["over"] == STREAM:
            return True
        over = await self._over(run, row, definition) if stored["closed"] else None
        return isinstance(over, list) or over == {"count": stored["members"]}

    async def _end_child(self, run: Any, row: Any) -> None:
        child = await self._store.child_outcome(row["job_id"])
        if child is None or child["state"] == RunState.RUNNING:
            return
        states = {
            RunState.SUCCEEDED: StepState.SUCCEEDED, RunState.CANCELLED: StepState.CANCELLED
        }  # fmt: skip
        state = states.get(RunState(child["state"]), StepState.FAILED)
        await self._store.end_child(run["id"], row["number"], row["job_id"], state, child["error"])

    async def _input(self, run: Any) -> Mapping[str, Any]:
        encryption = await self._encryption(run["namespace"])
        given: Mapping[str, Any] = encryption.value(run["input"], run["id"], "input")
        return given

    async def _results(self, run: Any, numbers: list[int]) -> dict[int, Any]:
        if not numbers:
            return {}
        encryption = await self._encryption(run["namespace"])
        keys = [(run["id"], number) for number in numbers]
        stored = await self._store.results(keys, partial(encryption.value, field="result"))
        return {number: value for (_, number), value in stored.items()}

    async def _encryption(self, namespace: str) -> Encryption:
        """Return the encryption of a run's namespace: a scheduler serves all of them."""
        if namespace == self._database.encryption.namespace:
            return await self._database.known_encryption()
        if namespace not in self._encryptions:
            settings = self._database.settings.replace(namespace=namespace)
            self._encryptions[namespace] = Encryption(settings)
        encryption = self._encryptions[namespace]
        if encryption.stale:
            encryption.learn(await self._database.fetchval("is_encrypted", namespace))
        return encryption
