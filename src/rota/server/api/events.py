"""Events: a list, and a stream of them as they happen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated

from litestar import get
from litestar.params import HeaderParameter, QueryParameter
from litestar.response import Stream

from rota.errors import ConfigError
from rota.server.api.jobs import Filter, zoned
from rota.server.api.pages import Cursor, Limit, Page, make_page, read_cursor
from rota.server.api.streams import MEDIA_TYPE, event_bytes, pause, stream_of
from rota.server.context import ServerContext
from rota.server.dependencies import ContextDep, TenantDep
from rota.server.policy import VIEWER
from rota.server.problems import Problem
from rota.server.requests import RotaRequest
from rota.store.event_stream import EventStream, Position
from rota.store.events import Event

_LOOK = 0.5  # seconds between looks


@get("/v1/events", policy=VIEWER, summary="List events, newest first")
async def list_events(
    tenant: TenantDep,
    kind: Filter = None,
    since: Annotated[datetime | None, QueryParameter(description="With a time zone.")] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[Event]:
    question = (kind, since)
    before = read_cursor(cursor, int, question)
    stream = await tenant.events.stream()
    found = await stream.page(tenant.namespace, kind, zoned("since", since), before, limit + 1)
    return make_page(found, limit, lambda event: event.id, question)


@get(
    "/v1/events/stream", policy=VIEWER, summary="Follow events as they happen", media_type=MEDIA_TYPE,
    opt={"uncompressed": True},
    description="Server-sent events. Begins with what happens from now on, or behind `Last-Event-ID` "
    "(or `after`): nothing is missed, and nothing is told twice. `after=0.0` begins at the beginning.",
)  # fmt: skip
async def stream_events(
    request: RotaRequest,
    tenant: TenantDep,
    context: ContextDep,
    kind: Filter = None,
    after: Annotated[str | None, QueryParameter(max_length=3000)] = None,
    last_event_id: Annotated[
        str | None, HeaderParameter(name="Last-Event-ID", max_length=3000)
    ] = None,
) -> Stream:
    stream = await tenant.events.stream()
    given = last_event_id or after
    try:
        position = await stream.end() if given is None else Position.parse(given)
    except ConfigError as error:
        raise Problem(
            400, "bad-position", str(error), fields={"Last-Event-ID": "not one of ours"}
        ) from None
    events = _follow(stream, context, tenant.namespace, position, kind)
    return stream_of(request, events)


async def _follow(
    stream: EventStream, context: ServerContext, namespace: str, position: Position,
    kind: str | None,
) -> AsyncIterator[bytes]:  # fmt: skip
    # Where it begins is told at once: whoever is cut off before the first event misses none.
    yield b"id: %s\n\n" % str(position).encode()
    while True:
        told, position = await stream.read(namespace, position, kind)
        for one in told:
            yield event_bytes(one.event.kind, str(one.position), one.event)
        if not told:
            yield b""
            await pause(context, _LOOK)


ROUTES = [list_events, stream_events]
