"""Arguments checked by what nodes registered of their tasks, for those who don't have the code.

Protocol. The signatures of a task are asked of the database and remembered for ten seconds, so that a
stream of submits costs no statement each. A refusal is never given from memory: before it, the database
is asked again. That nobody has registered a task is remembered for a second: a deploy may be on its way.
"""

from __future__ import annotations

import logging
from time import monotonic
from uuid import UUID

import msgspec

from rota.core.signature import Signature, problem_with
from rota.errors import InvalidArguments, StoreUnavailable
from rota.store.database import Database

log = logging.getLogger("rota.submit")

_REMEMBERED = 10.0
_UNKNOWN_REMEMBERED = 1.0
_MOST = 10_000  # callers choose the names
_NOTHING: tuple[float, None] = (0.0, None)
_MOST_INSIDE = 65_536  # bytes
_OWN = "rota."
_decode = msgspec.json.Decoder(list[Signature]).decode


def unknown_task(task: str) -> str:
    return (
        f"no node has registered a task named {task!r}: its jobs wait until a worker does. "
        "Is the name right?"
    )


class Signatures:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[tuple[str, str], tuple[float, list[Signature] | None]] = {}

    async def check(self, namespace: str, task: str, payload: bytes) -> tuple[str, ...]:
        """Warnings about what is accepted; raises `InvalidArguments` when no live release accepts it."""
        if task.startswith(_OWN):
            return ()
        until, remembered = self._known.get((namespace, task), _NOTHING)
        if until > monotonic():
            if remembered is None:
                return (unknown_task(task),)
            if _problem(remembered, task, payload) is None:
                return ()
        known = await self._ask(namespace, task)
        if known is None:
            return (unknown_task(task),)
        if problem := _problem(known, task, payload):
            raise InvalidArguments(problem)
        return ()

    async def of(self, namespace: str, task: str) -> list[Signature] | None:
        """Return the signatures that live releases have registered; None: nobody knows the task."""
        return await self._ask(namespace, task)

    async def _ask(self, namespace: str, task: str) -> list[Signature] | None:
        found = await self._database.fetchval("signatures_of", namespace, task)
        if len(self._known) >= _MOST:
            self._known.clear()
        if found is None:
            self._known[namespace, task] = (monotonic() + _UNKNOWN_REMEMBERED, None)
            return None
        signatures = _decode(found)
        self._known[namespace, task] = (monotonic() + _REMEMBERED, signatures)
        return signatures

    def forget(self) -> None:
        """Ask the database again, also for what would be accepted from memory."""
        self._known.clear()

    async def note_unknown(self, namespace: str, task: str, job: UUID) -> None:
        """Tell of it by an event, once. The job is stored already: not being able to is no failure."""
        try:
            await self._database.fetch("note_unknown_task", namespace, task, job)
        except StoreUnavailable as error:
            log.warning("that task %r is unknown could not be noted: %s", task, error)


def _problem(signatures: list[Signature], task: str, payload: bytes) -> str | None:
    if not signatures:
        return None
    # A large one would hold up the event loop; its function looks into it anyway.
    inside = len(payload) <= _MOST_INSIDE
    return problem_with(signatures, task, msgspec.json.decode(payload), inside=inside)
