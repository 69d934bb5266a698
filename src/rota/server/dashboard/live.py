"""The stream that makes open pages reload.

Protocol. A stream of server-sent events. For the page of a job, the job is read twice a second, and an
event is sent when it has changed; other pages get an event every two seconds. The page then requests
itself in the background, and replaces what is different; after an event that arrives meanwhile, it does
so once more. A hidden page requests nothing. When the server stops, the stream ends; the page shows
that, and reconnects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated
from uuid import UUID

from litestar import get
from litestar.params import QueryParameter
from litestar.response import Stream

from rota.operations.rota import Rota
from rota.server.api.streams import MEDIA_TYPE, event_bytes, pause, stream_of
from rota.server.context import ServerContext
from rota.server.policy import VIEWER
from rota.server.requests import ContextDep, RotaRequest, TenantDep

_LOOK = 0.5
_TICK = 2.0


@get(
    "/live/stream", policy=VIEWER, include_in_schema=False, media_type=MEDIA_TYPE,
    opt={"uncompressed": True},
)  # fmt: skip
async def live(
    request: RotaRequest,
    tenant: TenantDep,
    context: ContextDep,
    job: Annotated[UUID | None, QueryParameter()] = None,
) -> Stream:
    return stream_of(request, _ticks(context) if job is None else _changes(tenant, context, job))


async def _ticks(context: ServerContext) -> AsyncIterator[bytes]:
    number = 0
    while True:
        yield event_bytes("look", str(number), {})
        number += 1
        await pause(context, _TICK)


async def _changes(tenant: Rota, context: ServerContext, id: UUID) -> AsyncIterator[bytes]:
    database = (await tenant.store()).database
    seen, number = None, 0
    while True:
        found = await database.fetchval("job_mark", tenant.namespace, id)
        if number == 0 or found != seen:
            yield event_bytes("look", str(number), {})
            seen, number = found, number + 1
        else:
            yield b""
        await pause(context, _LOOK)


ROUTES = [live]
