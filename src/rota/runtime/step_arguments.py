"""Completes the arguments of workflow steps when they start: results are passed by reference.

Protocol. One read for a batch of jobs, and no write but one: chunks of maps are opened, which writes
the token of the attempt into their rows (`rota.worker.chunks`). A database that is away leaves the jobs
to be given back; a reference that leads nowhere fails its step, since another attempt would find the
same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from rota.core.workflow.model import CHUNK_BASE
from rota.core.workflow.references import (
    CHUNK,
    RESULTS,
    STEP,
    complete,
    find_references,
    has_references,
)
from rota.errors import InvalidArguments, NotAuthentic
from rota.lib.encryption import ENVELOPE
from rota.model import Failure, Guarantee
from rota.operations.map_chunks import all_results, items_field
from rota.runtime.members import ChunkBody, OpenChunk
from rota.runtime.work import Work
from rota.store.database import Database
from rota.store.maps import MapStore
from rota.store.rows import TaskDefaults
from rota.store.workflows import WorkflowStore
from rota.task import TaskOptions

_DEFAULTS = TaskDefaults()


class _Step(NamedTuple):
    work: Work
    arguments: Any
    chunk: Any = None  # its row, if the work is a chunk of a map


class StepArguments:
    """Fills in what the arguments of steps refer to; sees to it that results are encrypted."""

    def __init__(self, database: Database, tasks: Mapping[str, Any] | None = None) -> None:
        self._database = database
        self._tasks = tasks  # None: workers over HTTP, which run no chunks
        self._encryption = database.encryption
        self._store = WorkflowStore(database)
        self._maps = MapStore(database)

    def are_needed(self, work: Work) -> bool:
        """Return whether a step's arguments have to be completed before it can start."""
        if work.run is None:
            return False
        if self._encryption.required and work.encryptor is None:
            work.encryptor = self._encryption.for_job(work.id)
        return self._encryption.stale or has_references(work.payload)

    async def complete(self, works: Sequence[Work], node: UUID) -> dict[UUID, Failure]:
        """Complete the payloads of works. Return why some of them can't run, by job.

        A chunk that is no longer this node's is marked as stopping: it must not start.
        """
        steps = [work for work in works if work.run is not None]
        if steps and (await self._database.known_encryption()).required:
            for work in steps:
                work.encryptor = self._encryption.for_job(work.id)
        waiting = [
            _Step(work, msgspec.json.decode(work.payload))
            for work in steps
            if has_references(work.payload)
        ]
        if any(is_chunk(work) for work in steps):
            waiting = await self._opened(waiting, node)
        if not waiting:
            return {}
        inputs, results = await self._inputs_and_results(waiting)
        failures: dict[UUID, Failure] = {}
        for step in waiting:
            work = step.work
            assert work.run is not None
            text = inputs.get(work.run, "{}")
            own = {number: value for (run, number), value in results.items() if run == work.run}
            try:
                members = await self._members(step)
                self._complete_one(step, text, own, members)
            except (InvalidArguments, NotAuthentic) as error:
                failures[work.id] = Failure(f"rota.errors.{type(error).__name__}", str(error))
        return failures

    async def _inputs_and_results(
        self, waiting: Sequence[_Step]
    ) -> tuple[dict[UUID, str], dict[tuple[UUID, int], Any]]:
        runs = {each.work.run for each in waiting if each.work.run}
        keys = {
            (step.work.run, int(reference.name))
            for step in waiting
            for reference in find_references(step.arguments)
            if reference.kind == STEP and step.work.run is not None
        }
        read = partial(self._encryption.value, field="result")
        return await self._store.inputs_and_results(list(runs), list(keys), read)

    async def _members(self, step: _Step) -> dict[int, Any]:
        """Return the results of maps whose members the arguments refer to."""
        numbers = {
            int(each.name) for each in find_references(step.arguments) if each.kind == RESULTS
        }
        run, limit = step.work.run, self._database.settings.max_result_bytes
        assert run is not None
        return {
            number: await all_results(
                self._maps, self._encryption, run, number, limit, step.work.task
            )
            for number in numbers
        }

    def _complete_one(
        self, step: _Step, text: str, results: dict[int, Any], members: dict[int, Any]
    ) -> None:
        work = step.work
        assert work.run is not None
        given = self._encryption.value(text, work.run, "input")
        arguments = complete(step.arguments, given, results, work.task, members)
        encrypted = text.startswith(ENVELOPE)
        if step.chunk is not None:
            encrypted |= step.chunk["items"].startswith(ENVELOPE)
            self._fill_in(step, arguments)
        else:
            work.payload = msgspec.json.encode(arguments)
        if encrypted and work.encryptor is None:
            work.encryptor = self._encryption.for_job(work.id)

    # -- maps

    async def _opened(self, waiting: Sequence[_Step], node: UUID) -> list[_Step]:
        """Open the chunks among works, and return all with the arguments that they have by now."""
        chunks = [step for step in waiting if is_chunk(step.work)]
        rows = await self._maps.open(
            node,
            [
                (work.id, work.token, work.run or work.id, (work.step or 0) - CHUNK_BASE,
                 arguments[CHUNK])
                for work, arguments, _ in chunks
            ],
        )  # fmt: skip
        opened = [step for step in waiting if not is_chunk(step.work)]
        for work, arguments, _ in chunks:
            row = rows.get(work.id)
            if row is None:
                work.stopping = work.stopping or "lease"
                continue
            if row["blamed"]:
                work.crashes = 0
            if not row["each_job"]:
                work.chunk = OpenChunk(arguments[CHUNK], row["map_id"])
            opened.append(_Step(work, msgspec.json.decode(row["arguments"]), row))
        return opened

    def _fill_in(self, step: _Step, arguments: dict[str, Any]) -> None:
        """Write the payload of a chunk, or of a member that is a job."""
        work, row = step.work, step.chunk
        number = msgspec.json.decode(work.payload)[CHUNK]
        definition = msgspec.json.decode(row["definition"])
        text = self._encryption.open(row["items"], row["map_id"], items_field(number))
        items = msgspec.json.decode(text, type=list[msgspec.Raw])
        if row["each_job"]:
            name = definition["item"] or self._first_free(work.task, arguments)
            work.payload = msgspec.json.encode({name: items[0], **arguments})
            return
        if work.guarantee is not Guarantee.AT_LEAST_ONCE:
            raise InvalidArguments(
                f"task {work.task!r} is {work.guarantee.label}, which a member of a chunk can't be: map "
                'it with each="job"'
            )
        if self._tasks is None:
            raise InvalidArguments(
                f"task {work.task!r} is mapped in chunks, which a worker over HTTP can't run: map it "
                'with each="job"'
            )
        work.payload = msgspec.json.encode(
            ChunkBody(
                first=row["first"], done=row["done"], careful=row["careful"],
                timed=work.timeout is not None or work.heartbeat_timeout is not None,
                max_attempts=row["max_attempts"], item=definition["item"],
                arguments=msgspec.Raw(msgspec.json.encode(arguments)), items=items,
                again=msgspec.json.decode(row["again"] or "[]"),
            )
        )  # fmt: skip

    def _first_free(self, task: str, arguments: Mapping[str, Any]) -> str:
        known = None if self._tasks is None else self._tasks.get(task)
        if known is not None:
            for name in known.arguments.describe().arguments:
                if name not in arguments:
                    return str(name)
        raise InvalidArguments(
            f"this node doesn't know which argument of task {task!r} takes the item: name it in the "
            "map, as `item`"
        )


def has_default_options(work: Work, options: TaskOptions) -> bool:
    """Return whether a step may have been stored before its task was registered: it has the defaults of
    all tasks where this one has others."""
    attempts = work.max_attempts == _DEFAULTS.max_attempts != options.retry.max_attempts
    timeout = work.timeout is None and options.timeout is not None
    return (attempts or timeout) and work.step is not None and 0 <= work.step < CHUNK_BASE


def is_chunk(work: Work) -> bool:
    """Return whether a work runs members of a map."""
    return work.step is not None and work.step >= CHUNK_BASE
