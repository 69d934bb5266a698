"""The status page of the installation: may be public, and says nothing that is secret.

Protocol. Off unless `status_page` is set: then both paths answer 404, like paths that don't exist. On,
anybody may ask, so that an answer costs little: the database is asked at most every few seconds, by one
request at a time, and all others get what that one found. Shown are three words and times: no names,
no numbers, no versions, no reasons.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from time import monotonic
from typing import Literal
from weakref import WeakKeyDictionary

import msgspec
from litestar import get
from litestar.openapi.datastructures import ResponseSpec

from rota.errors import StoreUnavailable
from rota.server.api.health import check_readiness
from rota.server.context import ServerContext
from rota.server.dashboard.pages import Html, show_bare
from rota.server.policy import PUBLIC
from rota.server.problems import Problem, ProblemDetails
from rota.server.requests import ContextDep
from rota.store.maintenance import AnnouncedWindow, MaintenanceStore

FRESH = 5.0  # seconds for which an answer is kept

# What a check of /readyz means to somebody outside; `nodes` stands for both when they can't be counted.
_PARTS = {
    "Submitting jobs": ("database", "schema"),
    "Schedules": ("database", "schema", "nodes", "scheduler"),
    "Running jobs": ("database", "schema", "nodes", "worker"),
}


class StatusPart(msgspec.Struct, frozen=True):
    """A thing that users of the installation rely on."""

    name: str
    works: bool


class InstallationStatus(msgspec.Struct, frozen=True):
    """The state of the installation: `up`, `degraded` when a part doesn't work, or `down`."""

    status: Literal["up", "degraded", "down"]
    parts: Sequence[StatusPart]
    maintenance: Sequence[AnnouncedWindow] = ()


class _Known:
    """The answer that all requests get for a while."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._found: InstallationStatus | None = None
        self._asked = 0.0

    async def get(self, context: ServerContext) -> InstallationStatus:
        async with self._lock:
            if self._found is None or monotonic() - self._asked >= FRESH:
                self._found = await look(context)
                self._asked = monotonic()
            return self._found


_known: WeakKeyDictionary[ServerContext, _Known] = WeakKeyDictionary()


async def look(context: ServerContext) -> InstallationStatus:
    """Find out what works."""
    failed = {check.name for check in await check_readiness(context) if not check.ok}
    parts = [StatusPart(name, not failed & {*checks}) for name, checks in _PARTS.items()]
    windows: Sequence[AnnouncedWindow] = ()
    if not failed & {"database", "schema"}:
        with contextlib.suppress(StoreUnavailable):
            store = MaintenanceStore(context.database)
            windows = await store.announced(context.settings.namespace)
    works = [part.works for part in parts]
    status: Literal["up", "degraded", "down"] = (
        "up" if all(works) else "degraded" if works[0] else "down"
    )
    return InstallationStatus(status, parts, windows)


async def _status(context: ServerContext) -> InstallationStatus:
    if not context.settings.status_page:
        raise Problem(404, "not-found", "Not Found")
    return await _known.setdefault(context, _Known()).get(context)


_OFF = {
    404: ResponseSpec(
        ProblemDetails, description="The status page is off", generate_examples=False,
        media_type="application/problem+json",
    )
}  # fmt: skip


@get(
    "/status", policy=PUBLIC, summary="Show the status page", media_type="text/html", responses=_OFF
)
async def status_page(context: ContextDep) -> Html:
    """For people; off unless `status_page` is set."""
    return show_bare("status.html", found=await _status(context))


@get("/status.json", policy=PUBLIC, summary="Get the status of the installation", responses=_OFF)
async def status_document(context: ContextDep) -> InstallationStatus:
    """The same for programs. It is answered with 200 whatever the status is."""
    return await _status(context)


ROUTES = [status_page, status_document]
