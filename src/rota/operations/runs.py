"""Operations on runs of workflows: start, find, cancel, pause and resume them, retry and skip steps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.core.explain import Explanation
from rota.core.payloads import encode_payload
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import CheckpointKind, Definition, Rule, RunState, StepKind, StepState
from rota.errors import ConfigError, Conflict, InvalidArguments, KeyConflict, NotFound
from rota.lib import tracing
from rota.lib.encryption import mark_unencrypted
from rota.lib.ids import new_id
from rota.lib.sync_bridge import sync_bridge
from rota.model import (
    GraphStep,
    MapMember,
    MapProgress,
    Run,
    RunChanged,
    RunCheckpoint,
    RunStep,
    SignalSent,
)
from rota.operations.members import Members, progress_of
from rota.operations.run_advance import RunAdvance
from rota.operations.run_explain import explain
from rota.run_handle import Declared, RunHandle
from rota.store.changes import Change, changing, current_actor
from rota.store.drivers import (
    start_all_through,
    start_all_through_sync,
    start_through,
    start_through_sync,
)
from rota.store.durable_functions import DurableFunctionStore
from rota.store.encrypted import Encryption
from rota.store.maps import MapStore
from rota.store.rows import NewRun, Submitted
from rota.store.workflows import WorkflowStore
from rota.submission import apply_hooks
from rota.task import Task

if TYPE_CHECKING:
    from rota.operations.rota import Rota

# Inside Runs, `list` is its method.
RunList: TypeAlias = list[Run]
Handles: TypeAlias = list[RunHandle]
NewRuns: TypeAlias = list[NewRun]
Steps: TypeAlias = list[RunStep]
Numbers: TypeAlias = list[int]
Graphed: TypeAlias = list[GraphStep]
Checkpoints: TypeAlias = list[RunCheckpoint]
MemberList: TypeAlias = list[MapMember]
MANY = 10_000


@contextmanager
def _starting_all(runs: Sequence[NewRun]) -> Iterator[None]:
    with ExitStack() as spans:
        for run in runs:
            spans.enter_context(tracing.starting(run))
        yield


def _as_id(id: UUID | str) -> UUID:
    try:
        return id if isinstance(id, UUID) else UUID(id)
    except ValueError:
        raise ConfigError(f"{id!r} is not a run's id: give the UUID that a start printed") from None


class Runs:
    """`app.runs`"""

    def __init__(self, rota: Rota) -> None:
        self._rota = rota

    async def _store(self) -> WorkflowStore:
        return WorkflowStore((await self._rota.store()).database)

    @property
    def settings(self) -> Settings:
        return self._rota.settings

    # -- starting

    def input_of(
        self, function: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the input of a run of a durable function with these arguments, checked."""
        payload = function.arguments.encode(args, kwargs, self._rota.limits)
        given: dict[str, Any] = msgspec.json.decode(payload)
        return given

    async def start_declared(
        self, workflow: Declared, given: Mapping[str, Any], options: Mapping[str, Any]
    ) -> RunHandle:
        """Start a run of a workflow that this process declares; see `Workflow.start`."""
        run = await self.new_declared(workflow, given, options)
        if (connection := options.get("connection")) is None:
            return await self._start(run)
        with tracing.starting(run):
            answer = await start_through(connection, run, self._rota.settings.schema)
        return self._handle(run, answer)

    def start_declared_sync(
        self, workflow: Declared, given: Mapping[str, Any], options: Mapping[str, Any]
    ) -> RunHandle:
        """Start a run from synchronous code, also in a transaction on a synchronous connection."""
        if (connection := options.get("connection")) is None:
            return sync_bridge.call(lambda: self.start_declared(workflow, given, options), "start")
        run = sync_bridge.call(lambda: self.new_declared(workflow, given, options), "start")
        with tracing.starting(run):
            answer = start_through_sync(connection, run, self._rota.settings.schema)
        return self._handle(run, answer)

    async def start_all_declared(
        self, workflow: Declared, inputs: Iterable[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> Handles:
        """Start many runs, all or none; see `Workflow.start_many`."""
        if not (runs := await self._new_all_declared(workflow, list(inputs), options)):
            return []
        with _starting_all(runs):
            if (connection := options.get("connection")) is not None:
                answers = await start_all_through(connection, runs, self._rota.settings.schema)
            else:
                store = await self._rota.store()
                workflows = WorkflowStore(store.database)
                answers = await store.persistently(lambda _: workflows.start_all(runs))
        return [self._handle(*each) for each in zip(runs, answers, strict=True)]

    def start_all_declared_sync(
        self, workflow: Declared, inputs: Iterable[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> Handles:
        """Start many runs from synchronous code, also in a transaction on a synchronous connection."""
        given = list(inputs)  # here, and not in the thread of the bridge
        if (connection := options.get("connection")) is None:
            start = partial(self.start_all_declared, workflow, given, options)
            return sync_bridge.call(start, "start_many")
        make = partial(self._new_all_declared, workflow, given, options)
        if not (runs := sync_bridge.call(make, "start_many")):
            return []
        with _starting_all(runs):
            answers = start_all_through_sync(connection, runs, self._rota.settings.schema)
        return [self._handle(*each) for each in zip(runs, answers, strict=True)]

    async def _new_all_declared(
        self, workflow: Declared, inputs: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> NewRuns:
        if options.get("key") is not None:
            raise InvalidArguments("start_many can't give one key to many runs")
        if not inputs:
            return []
        version = await self._rota.workflows.put_declared(workflow)
        chosen = {name: value for name, value in options.items() if name != "connection"}
        return [await self._new_run(workflow.graph, version, each, **chosen) for each in inputs]

    async def new_declared(
        self, workflow: Declared, given: Mapping[str, Any], options: Mapping[str, Any]
    ) -> NewRun:
        """Make a run of what this process declares, to be stored by the caller."""
        version = await self._rota.workflows.put_declared(workflow)
        chosen = {name: value for name, value in options.items() if name != "connection"}
        return await self._new_run(workflow.graph, version, given, **chosen)

    async def start(
        self, name: str, given: Mapping[str, Any] | None = None, *, version: int | None = None,
        key: str | None = None, priority: int | None = None, deadline: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RunHandle:  # fmt: skip
        """Start a run of a stored workflow, by its name. `headers` go to the jobs of all its steps."""
        info = await self._rota.workflows.get(name, version)
        graph = Graph(msgspec.convert(info.definition, Definition))
        run = await self._new_run(
            graph, version, given or {}, key=key, priority=priority, deadline=deadline
        )
        run.headers = msgspec.Raw(msgspec.json.encode(headers)) if headers else None
        return await self._start(run)

    async def _new_run(
        self, graph: Graph, version: int | None, given: Mapping[str, Any], *,
        key: str | None = None, priority: int | None = None, deadline: float | None = None,
    ) -> NewRun:  # fmt: skip
        """Check what is given, and make the run that is to be stored."""
        name = graph.definition.name
        check_input(graph, given)
        text = encode_payload(given, self._rota.limits, name, "input")
        if (admit := self._rota.submissions.admit) is not None:
            await admit(self._rota.namespace, len(graph.steps), len(text))
        encryption = await (await self._rota.store()).database.known_encryption()
        run = NewRun(
            id=new_id(), namespace=self._rota.namespace, workflow=name, input=msgspec.Raw(text),
            version=version, priority=priority, deadline=deadline, key=key,
        )  # fmt: skip
        if hooks := self._rota.submissions.hooks:
            run.headers = apply_hooks(hooks, name, None, is_run=True)
        encryption.encrypt_run(run)
        return run

    async def _start(self, run: NewRun) -> RunHandle:
        """Store a run. Repeated when the answer is lost: its id is stored once."""
        store = await self._rota.store()
        workflows = WorkflowStore(store.database)
        with tracing.starting(run):
            answer = await store.persistently(lambda _: workflows.start(run))
        return self._handle(run, answer)

    def _handle(self, run: NewRun, answer: Submitted) -> RunHandle:
        if answer.conflict:
            raise KeyConflict(run.key or "", str(answer.id))
        function = self._rota.tasks.get(run.workflow)
        reader = function.result_reader if function is not None else None
        return RunHandle(self, answer.id, existed=answer.id != run.id, reader=reader)

    # -- reading

    async def get(self, id: UUID | str) -> Run:
        """Return the run as it is now; `NotFound` when there is none (any more)."""
        store = await self._store()
        row = await store.get_run(self._rota.namespace, _as_id(id))
        if row is None:
            raise self._not_found(id)
        return self._run(store, row, steps=row["steps"], ended_steps=row["ended"])

    async def has_ended(self, id: UUID | str) -> bool:
        """Return whether a run has ended. Reads one row, where `get` counts the run's steps."""
        ended = await (await self._store()).has_ended(self._rota.namespace, _as_id(id))
        if ended is None:
            raise self._not_found(id)
        return ended

    def _not_found(self, id: UUID | str) -> NotFound:
        return NotFound(f"there is no run {id} in namespace {self._rota.namespace!r}", subject=id)

    async def list(
        self, *, workflow: str | None = None, state: str | None = None,
        before: tuple[datetime, UUID] | None = None, limit: int = 50,
    ) -> RunList:  # fmt: skip
        """List runs, newest first. For the next page pass `(created_at, id)` of the last one."""
        if not 1 <= limit <= MANY:
            raise ConfigError(f"limit must be from 1 to {MANY}, not {limit}", field="limit")
        store = await self._store()
        number = None if state is None else int(RunState.parse(state))
        rows = await store.list_runs(self._rota.namespace, workflow, number, before, limit)
        return [self._run(store, row) for row in rows]

    async def steps(
        self, id: UUID | str, *, after: int = -1, state: str | None = None, limit: int = 1000
    ) -> Steps:
        """Return steps of a run, by their numbers. For the next page pass the last number as `after`."""
        run_id = (await self.get(id)).id
        store = await self._store()
        number = None if state is None else int(StepState.parse(state))
        rows = await store.steps(run_id, after, number, limit)
        names = await store.step_names(run_id)
        before = await store.predecessors(run_id, [row["number"] for row in rows])
        maps = await self._progress(run_id, rows)
        return [
            self._step(
                store, row, [names[each] for each in before.get(row["number"], ())],
                maps.get(row["number"]),
            )
            for row in rows
        ]  # fmt: skip

    async def _progress(self, run: UUID, rows: Sequence[Any]) -> dict[int, MapProgress]:
        """Return how far the maps among steps have come, by their numbers."""
        if not any(row["kind"] == StepKind.MAP for row in rows):
            return {}
        database = (await self._rota.store()).database
        return {row["step"]: progress_of(row) for row in await MapStore(database).progress(run)}

    async def graph(self, id: UUID | str) -> Graphed:
        """Return all steps of a run with their states and what they come after, by their numbers."""
        run = await self.get(id)
        rows = await (await self._store()).run_graph(run.id)
        after: dict[int, Numbers] = {row["number"]: [] for row in rows}
        for row in rows:
            for number in row["successors"]:
                if number in after:
                    after[number].append(row["number"])
        maps = await self._progress(run.id, rows)
        return [
            GraphStep(
                number=row["number"], name=row["name"], kind=StepKind(row["kind"]).label,
                task=row["task"], state=StepState(row["state"]).label, after=after[row["number"]],
                started_at=row["started_at"], ended_at=row["ended_at"], job_id=row["job_id"],
                progress=maps.get(row["number"]),
            )
            for row in rows
        ]  # fmt: skip

    async def step(self, id: UUID | str, name: str) -> RunStep:
        """Return one step of a run; `NotFound` when it has none of this name."""
        run = await self.get(id)  # one of this namespace
        number = await self._number(await self._store(), run.id, name)
        return (await self.steps(id, after=number - 1, limit=1))[0]

    async def result(self, id: UUID | str) -> Any:
        """Return the result of a run: that of its last step, or those of several by name."""
        run = await self.get(id)
        graph = Graph(await self._rota.workflows.definition(run.workflow, run.version))
        only = graph.result_step()
        names = [only] if only is not None else graph.sinks()
        store = await self._store()
        keys = [(run.id, graph.numbers[name]) for name in names]
        shown = partial(store.database.encryption.shown, field="result")
        stored = await store.results(keys, shown)
        values = {graph.order[number]: value for (_, number), value in stored.items()}
        return values.get(only) if only is not None else values

    async def explain(self, id: UUID | str, step: str | None = None) -> Explanation:
        """Explain what a run waits for, or one step of it, and what to do."""
        return await explain(self._rota, _as_id(id), step)

    # -- acting

    @asynccontextmanager
    async def _changing(
        self, action: str, id: UUID | str, *, wakes: bool = False
    ) -> AsyncIterator[tuple[WorkflowStore, Any, Change]]:
        """Lock a run for a change, which is recorded with its state before."""
        run_id, store = _as_id(id), await self._store()
        async with changing(store.database, action, f"run {run_id}") as change:
            if wakes:
                await DurableFunctionStore(store.database).lock_function(run_id)
            run = await store.lock_run(run_id, self._rota.namespace)
            if run is None:
                raise NotFound(f"there is no run {run_id}", subject=run_id)
            change.before = {"state": RunState(run["state"]).label}
            yield store, run, change

    async def cancel(self, id: UUID | str) -> RunChanged:
        """Cancel a run: close what waits, ask what runs to stop; steps that always run still do.

        Raises `Conflict` for a run that has ended.
        """
        async with self._changing("cancel", id) as (store, run, change):
            _check_running(run, "cancelled")
            if run["cancel_at"] is None:
                await store.close_run(run["id"])
            else:
                # Its durable function was told, and has not ended: it is stopped now.
                await DurableFunctionStore(store.database).force_cancel(run["id"])
            change.after = {"state": "cancelling"}
        # In a transaction of its own: it locks jobs, which come before runs.
        advance = RunAdvance(store.database)
        await advance.advance(run["id"])
        return RunChanged(run["id"], "cancelling")

    async def pause(self, id: UUID | str) -> RunChanged:
        """Start no further steps of a run until it is resumed. What runs goes on."""
        async with self._changing("pause", id) as (store, run, change):
            _check_running(run, "paused")
            _check_not_cancelling(run)
            await store.pause_run(run["id"])
            change.after = {"state": "paused"}
        return RunChanged(run["id"], "paused")

    async def resume(self, id: UUID | str) -> RunChanged:
        """Let a run go on: after a pause, or from the steps that failed or were cancelled.

        Raises `Conflict` for a run that is neither paused nor failed nor cancelled.
        """
        async with self._changing("resume", id, wakes=True) as (store, run, change):
            again: Numbers = []
            if run["paused_at"] is not None:
                await store.lock_open_steps(run["id"])
                await store.unpause_run(run["id"])
            elif run["state"] in (RunState.FAILED, RunState.CANCELLED):
                await DurableFunctionStore(store.database).forget_failure(run["id"])
                again = await store.steps_to_resume(run["id"])
                await MapStore(store.database).reopen(run["id"], again)
                await store.resume_run(run["id"], again)
            else:
                state = RunState(run["state"]).label
                raise Conflict(
                    f"run {run['id']} can't be resumed: it is {state}. Only paused, failed and "
                    "cancelled runs can", code="not-resumable", subject=run["id"],
                )  # fmt: skip
            change.after = {"state": "running", "steps": len(again)}
        return RunChanged(run["id"], "resumed", len(again))

    async def retry(self, id: UUID | str, step: str) -> RunChanged:
        """Run a step that has ended again, and everything that comes after it. Of a durable function:
        from something in its history on, or from the beginning if `step` is the function's name.

        Raises `Conflict` if one of those steps is running.
        """
        async with self._changing("retry", id) as (store, run, change):
            _check_not_cancelling(run)
            number = await self._number_to_retry(store, run, step)
            again = await self._resettable(store, run, [number], "retried")
            maps = MapStore(store.database)
            await maps.reopen(run["id"], again)
            await maps.renew(run["id"], number)
            await store.resume_run(run["id"], again)
            change.after = {"step": step, "steps": len(again)}
        return RunChanged(run["id"], "retried", len(again))

    async def skip(self, id: UUID | str, step: str, result: Any = None) -> RunChanged:
        """Let a step count as succeeded with this result, without running it; what comes after it is
        decided again. Raises `Conflict` if one of those steps is running."""
        async with self._changing("skip", id) as (store, run, change):
            _check_not_cancelling(run)
            number = await self._number(store, run["id"], step)
            again = await self._resettable(store, run, [number], "skipped")
            text = encode_payload({"result": result}, self._rota.limits, step, "result")
            value = await self._skip_result(store, run["id"], step, text)
            note = {"type": "SkippedByHand", "message": f"skipped by {current_actor().name}"}
            await store.supply_result(run["id"], number, value, msgspec.json.encode(note).decode())
            await MapStore(store.database).reopen(run["id"], again)
            await store.resume_run(run["id"], [each for each in again if each != number])
            change.after = {"step": step}
            if not store.database.encryption.required:
                change.after["result"] = result
        return RunChanged(run["id"], "skipped", 1)

    async def _skip_result(self, store: WorkflowStore, run: UUID, step: str, text: bytes) -> str:
        """Return a result as it is stored: encrypted where those of jobs are."""
        value = mark_unencrypted(msgspec.json.encode(msgspec.json.decode(text)["result"]))
        encryption = await store.database.known_encryption()
        if not encryption.required:
            return value.decode()
        job = (await self.step(run, step)).job_id
        return encryption.for_job(job or run).json("result", value)

    # -- members of maps

    async def members(
        self, id: UUID | str, step: str, *, after: int = -1, state: str | None = None,
        limit: int = 100,
    ) -> MemberList:  # fmt: skip
        """Return members of a map, by their numbers: items, results and errors. For the next page pass
        the last number as `after`."""
        run, store = await self.get(id), await self._store()
        number = await self._map_number(store, run.id, step)
        encryption = await store.database.known_encryption()
        return await Members(MapStore(store.database), encryption, run.id, number).page(
            after, state, limit
        )

    async def retry_members(
        self, id: UUID | str, step: str, numbers: Sequence[int] | None = None
    ) -> RunChanged:
        """Run members of a map that have failed again, all or some, and what comes after the map.

        Raises `Conflict` if a step after the map is running, or a member has not failed, or its chunk
        still runs.
        """
        if numbers is not None and not all(0 <= number < 2**62 for number in numbers):
            raise ConfigError("numbers of members are whole numbers from 0", field="numbers")
        async with self._changing("retry_members", id) as (store, run, change):
            _check_not_cancelling(run)
            number, maps = await self._map_number(store, run["id"], step), MapStore(store.database)
            await store.lock_open_steps(run["id"])
            running = await store.running_among(run["id"], [number])
            again: Numbers = []
            if not running:
                again = await self._resettable(store, run, [number], "retried")
            count = await maps.reopen_members(run["id"], number, numbers)
            if numbers is not None and count != len({*numbers}):
                raise Conflict(
                    f"run {run['id']}, step {step!r}: of these {len({*numbers})} members {count} have "
                    "failed, in chunks that have ended: only those can be retried",
                    code="not-failed", subject=run["id"],
                )  # fmt: skip
            if numbers is None and not count:
                raise Conflict(
                    f"run {run['id']}, step {step!r}: no member has failed", code="not-failed",
                    subject=run["id"],
                )  # fmt: skip
            if running:
                await maps.restart_members(run["id"], number)
            else:
                await maps.reopen(run["id"], again, number)
                await store.resume_run(run["id"], again)
            change.after = {"step": step, "members": count}
        return RunChanged(run["id"], "retried", count)

    async def _map_number(self, store: WorkflowStore, run: UUID, step: str) -> int:
        number = await self._number(store, run, step)
        [row] = await store.steps(run, number - 1, None, 1)
        if row["kind"] != StepKind.MAP:
            raise Conflict(
                f"run {run}: step {step!r} is no map, and has no members",
                code="no-map",
                subject=step,
            )
        return number

    async def _resettable(
        self, store: WorkflowStore, run: Any, first: Sequence[int], word: str
    ) -> Numbers:
        """Return these steps and all after them, none of which may be running."""
        await store.lock_open_steps(run["id"])  # else one of them could start after the look
        again = await store.steps_from(run["id"], first)
        running = await store.running_among(run["id"], again)
        if running:
            raise Conflict(
                f"run {run['id']}: the step can't be {word} while {running[0]!r} is running: wait "
                "for it, or cancel the run", code="running", subject=run["id"],
            )  # fmt: skip
        return again

    async def _number_to_retry(self, store: WorkflowStore, run: Any, step: str) -> int:
        """Return the number of a step. What a durable function has done from there on is forgotten:
        `step` is then the function, or something in its history."""
        functions = DurableFunctionStore(store.database)
        if await functions.forget_from(run["id"], step):
            return 0
        return await self._number(store, run["id"], step)

    async def _number(self, store: WorkflowStore, run: UUID, step: str) -> int:
        numbers = await store.step_numbers(run, [step])
        if step not in numbers:
            raise NotFound(f"run {run} has no step {step!r}", subject=step)
        return numbers[step]

    # -- durable functions

    async def send(
        self, id: UUID | str, signal: str, payload: Any = None, *, once: str | None = None
    ) -> SignalSent:
        """Send a signal to a run of a durable function, which takes it with ``ctx.wait(signal)``.

        Raises `Conflict` for a run that has ended, and for one of a graph: no function would receive it.
        """
        run = await self.get(id)
        if run.ended_at is not None:
            raise Conflict(
                f"run {run.id} has already {run.state}: no function would receive the signal {signal!r}",
                code="ended", subject=run.id,
            )  # fmt: skip
        steps = await self.steps(run.id, limit=1)
        if steps and steps[0].kind != StepKind.FUNCTION.label:
            raise Conflict(
                f"run {run.id} is of the graph {run.workflow!r}, which takes no signals: send "
                f"{signal!r} to the run of a durable function", code="no-function", subject=run.id,
            )  # fmt: skip
        return await self._rota.signals.send(signal, str(run.id), payload, once=once)

    async def history(self, id: UUID | str, *, after: int = 0, limit: int = 1000) -> Checkpoints:
        """Return what the durable function of a run has done so far, and waits for."""
        run = await self.get(id)
        database = (await self._rota.store()).database
        rows = await DurableFunctionStore(database).list_checkpoints(run.id, after, limit)
        return [_checkpoint(database.encryption, run.id, row) for row in rows]

    # -- rows

    def _run(self, store: WorkflowStore, row: Any, **counts: int) -> Run:
        return Run(
            id=row["id"], namespace=row["namespace"], workflow=row["name"], version=row["version"],
            state=RunState(row["state"]).label, round=row["round"], created_at=row["created_at"],
            ended_at=row["ended_at"], deadline_at=row["deadline_at"], paused_at=row["paused_at"],
            cancel_requested_at=row["cancel_at"], key=row["key"], priority=row["priority"],
            input=store.database.encryption.shown(row["input"], row["id"], "input"),
            error=_shown(store.database.encryption, _decoded(row["error"]), row["id"]),
            schedule_id=row["schedule_id"],
            parent_id=row["parent_id"], problem=_decoded(row.get("problem")),
            restarts=row["restarts"],
            status=store.database.encryption.shown(row.get("status"), row["id"], "status"),
            **counts,
        )  # fmt: skip

    def _step(
        self, store: WorkflowStore, row: Any, after: Sequence[str], progress: MapProgress | None
    ) -> RunStep:
        error = _decoded(row["error"])
        by_hand = isinstance(error, dict) and error.get("type") == "SkippedByHand"
        shown, id = store.database.encryption.shown, row["job_id"] or row["run_id"]
        return RunStep(
            number=row["number"], name=row["name"], kind=StepKind(row["kind"]).label,
            task=row["task"], state=StepState(row["state"]).label, rule=Rule(row["rule"]).label,
            waits=row["waits"], after=tuple(after), when=row["condition"], job_id=row["job_id"],
            started_at=row["started_at"], ended_at=row["ended_at"],
            result=None if by_hand else shown(row["result"], id, "result"),
            error=None if by_hand else _shown(store.database.encryption, error, id),
            note=error["message"] if by_hand else None, progress=progress,
        )  # fmt: skip


def _checkpoint(encryption: Encryption, run: UUID, row: Any) -> RunCheckpoint:
    owner, text = row["job_id"] or run, row["result"]
    if row["kind"] == CheckpointKind.RUN and text is not None:
        answer = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        owner = msgspec.json.decode(answer["job"], type=UUID | None) or owner
        text = bytes(answer["result"]).decode()
    return RunCheckpoint(
        number=row["number"], kind=CheckpointKind(row["kind"]).label, name=row["name"],
        state=StepState(row["state"]).label, attempt=row["attempt"], job_id=row["job_id"],
        created_at=row["created_at"], ended_at=row["ended_at"], wake_at=row["wake_at"],
        signal=row["signal"], signal_key=row["signal_key"],
        digest=encryption.shown_text(row["digest"], run, "digest"),
        result=encryption.shown(text, owner, "result"),
        error=_shown(encryption, _decoded(row["error"]), owner),
    )  # fmt: skip


def check_input(graph: Graph, given: Mapping[str, Any]) -> None:
    """Refuse an input that lacks a name which steps read, or has one that none does."""
    name = graph.definition.name
    if not isinstance(given, Mapping):
        raise InvalidArguments(
            f"workflow {name!r}: the input must be an object of names and values"
        )
    wanted = graph.input_names()
    for each, required in wanted.items():
        if required and each not in given:
            raise InvalidArguments(f"workflow {name!r}: its input lacks {each!r}", field=each)
    reads_all = any(step.when and "input" in step.when for step in graph.definition.steps)
    for each in given:
        if each not in wanted and not reads_all:
            known = ", ".join(sorted(wanted)) or "none"
            raise InvalidArguments(
                f"workflow {name!r}: no step reads {each!r} from the input; read are: {known}",
                field=each,
            )


def _check_running(run: Any, word: str) -> None:
    if run["state"] != RunState.RUNNING:
        state = RunState(run["state"]).label
        raise Conflict(
            f"run {run['id']} can't be {word}: it has already {state}", code="ended",
            subject=run["id"],
        )  # fmt: skip


def _check_not_cancelling(run: Any) -> None:
    if run["state"] == RunState.RUNNING and run["cancel_at"] is not None:
        raise Conflict(
            f"run {run['id']} is being cancelled: wait until it has ended", code="cancelling",
            subject=run["id"],
        )  # fmt: skip


def _shown(encryption: Encryption, error: Any, id: UUID) -> Any:
    """Return an error as it is shown: decrypted, with what it quotes of a step's job."""
    if not isinstance(error, dict):
        return error
    texts = {name: error[name] for name in ("message", "traceback") if error.get(name)}
    shown = encryption.shown_text
    error = {**error, **{name: shown(text, id) for name, text in texts.items()}}
    if error.get("cause") and error.get("job_id"):
        error["cause"] = _shown(encryption, error["cause"], UUID(error["job_id"]))
    return error


def _decoded(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
