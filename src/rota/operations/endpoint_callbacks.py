"""Attempts that were answered with 202, and wait for a report.

Protocol. A push carries a key: an HMAC, with the database's own secret, of its job and token. Whoever
has it can report on that attempt at any server, which checks the key, and then writes what is reported
in one statement, if the attempt still has its job (`take_callback`). A success ends the job right there:
nothing that happens to the node afterwards changes it. A failure is only recorded, because what follows
from it is the node's to judge. Then the node is notified. It also polls at the pace of its heartbeats,
once for all that wait: a lost hint costs seconds. It polls first thing after a 202: a report may have
been quicker than the answer.

If the node dies, its lease runs out, and the job is pushed again under another token. What is then
reported with the old key finds no such attempt, and is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from rota.store.endpoints import EndpointStore, Reported

if TYPE_CHECKING:
    from rota.operations.rota import Rota

log = logging.getLogger("rota.endpoints")

KEY_HEADER = "Rota-Callback-Key"
URL_HEADER = "Rota-Callback"


def callback_path(job: UUID) -> str:
    return f"/v1/jobs/{job}/callback"


def make_key(secret: str, job: UUID, token: int) -> str:
    """Make the key that a push carries, and that its callback returns."""
    return f"{token}-{_digest(secret, job, token)}"


def read_key(secret: str, job: UUID, key: str) -> int | None:
    """Return the token of the attempt that this key is for; None when the key is not valid."""
    text, _, digest = key.partition("-")
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        return None
    token = int(text)
    expected = _digest(secret, job, token)
    return token if hmac.compare_digest(expected.encode(), digest.encode()) else None


def _digest(secret: str, job: UUID, token: int) -> str:
    text = f"callback.{job}.{token}".encode()
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


class Callbacks:
    """The attempts that wait in this process, and one poll for all of them."""

    def __init__(self, rota: Rota) -> None:
        self._rota = rota
        self._waiting: dict[tuple[UUID, int], asyncio.Future[Reported]] = {}
        self._news = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def expecting(self, job: UUID, token: int) -> Iterator[asyncio.Future[Reported]]:
        report: asyncio.Future[Reported] = asyncio.get_running_loop().create_future()
        self._waiting[job, token] = report
        try:
            yield report
        finally:
            del self._waiting[job, token]
            report.cancel()
            if not self._waiting:
                self._news.set()  # nothing waits any more: the poll ends

    async def wait(self, report: asyncio.Future[Reported]) -> Reported:
        """Wait for a report, and poll for it from here on."""
        if self._looking is None or self._looking.done():
            self._news = asyncio.Event()
            self._looking = asyncio.create_task(self._look())
        self._news.set()
        return await report

    def look_now(self) -> None:
        """Look for reports: one was sent to this node."""
        self._news.set()

    async def _look(self) -> None:
        while self._waiting:
            self._news.clear()
            try:
                store = EndpointStore((await self._rota.store()).database)
                found = await store.find_callbacks(list(self._waiting))
            except Exception as error:  # noqa: BLE001 - they wait on, and it is tried again
                log.warning("could not look for callbacks, trying again: %s", error)
                found = {}
            for attempt, reported in found.items():
                report = self._waiting.get(attempt)
                if report is not None and not report.done():
                    report.set_result(reported)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._rota.settings.heartbeat):
                    await self._news.wait()
