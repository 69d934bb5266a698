"""Completes the arguments of workflow steps when they start: results are passed by reference.

Protocol. Two reads for a batch of jobs, and no write. A database that is away leaves the jobs to be
given back; a reference that leads nowhere fails its step, since another attempt would find the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

import msgspec

from rota.core.workflow.references import STEP, complete, find_references, has_references
from rota.errors import InvalidArguments
from rota.lib.encryption import ENVELOPE
from rota.model import Failure
from rota.runtime.work import Work
from rota.store.database import Database
from rota.store.workflows import WorkflowStore


class StepArguments:
    """Fills in what the arguments of steps refer to; sees to it that results are encrypted."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._encryption = database.encryption
        self._store = WorkflowStore(database)

    def are_needed(self, work: Work) -> bool:
        """Return whether a step's arguments have to be completed before it can start."""
        if work.run is None:
            return False
        if self._encryption.required and work.encryptor is None:
            work.encryptor = self._encryption.for_job(work.id)
        return self._encryption.stale or has_references(work.payload)

    async def complete(self, works: Sequence[Work]) -> dict[UUID, Failure]:
        """Complete the payloads of works. Return why some of them can't run, by job."""
        steps = [work for work in works if work.run is not None]
        if steps and (await self._database.known_encryption()).required:
            for work in steps:
                work.encryptor = self._encryption.for_job(work.id)
        waiting = [
            (work, msgspec.json.decode(work.payload))
            for work in steps
            if has_references(work.payload)
        ]
        if not waiting:
            return {}
        inputs = await self._store.inputs(list({work.run for work, _ in waiting if work.run}))
        keys = {
            (work.run, int(reference.name))
            for work, arguments in waiting
            for reference in find_references(arguments)
            if reference.kind == STEP and work.run is not None
        }
        read = partial(self._encryption.value, field="result")
        results = await self._store.results(list(keys), read) if keys else {}
        failures: dict[UUID, Failure] = {}
        for work, arguments in waiting:
            assert work.run is not None
            text = inputs.get(work.run, "{}")
            own = {number: value for (run, number), value in results.items() if run == work.run}
            try:
                self._complete_one(work, arguments, text, own)
            except InvalidArguments as error:
                failures[work.id] = Failure("rota.errors.InvalidArguments", str(error))
        return failures

    def _complete_one(self, work: Work, arguments: Any, text: str, results: dict[int, Any]) -> None:
        assert work.run is not None
        given = self._encryption.value(text, work.run, "input")
        work.payload = msgspec.json.encode(complete(arguments, given, results, work.task))
        if text.startswith(ENVELOPE) and work.encryptor is None:
            work.encryptor = self._encryption.for_job(work.id)
