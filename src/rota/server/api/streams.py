"""Event streams (server-sent events), and the routes of events and of logs of jobs.

A stream ends when the client disconnects and when the server stops: the client's next request, with the
id of the last event, goes to another server and misses nothing. It also ends when the client may no
longer read it: token or session and role are checked again every half second, against a cache of five
seconds.

The position in a job's log is a line number per attempt (by its token), since the last lines of an
attempt may arrive after the first of the next. It is sent as ``token-line`` pairs, in a cursor or a
Last-Event-ID.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import get
from litestar.params import FromPath, HeaderParameter, QueryParameter
from litestar.response import Stream

from rota.errors import ConfigError, NotFound
from rota.model import Event, LogLine
from rota.operations.rota import Rota
from rota.server.api.jobs import Filter, zoned
from rota.server.api.pages import Cursor, Limit, Page, make_cursor, make_page, read_cursor
from rota.server.authorization import authorize_again
from rota.server.context import ServerContext
from rota.server.policy import VIEWER
from rota.server.problems import Problem
from rota.server.requests import ContextDep, RotaRequest, TenantDep
from rota.store.events import EventStream, Position

MEDIA_TYPE = "text/event-stream"

_KEEP_ALIVE_SECONDS = 15.0  # proxies close idle connections
_CHECK_SECONDS = 0.5
_REFUSED = b": the token or session is no longer valid for this\n\n"
_RECONNECT = b"retry: 1000\n\n"  # milliseconds
_encode = msgspec.json.Encoder().encode


def event_bytes(kind: str, id: str, data: Any) -> bytes:
    """Encode an event. Neither `kind` and `id` nor JSON contain a line end."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id.encode(), kind.encode(), _encode(data))


def stream_of(request: RotaRequest, events: AsyncIterator[bytes]) -> Stream:
    """Return a stream of events. An empty event only lets it check whether it has to end."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Stream(_alive(request, events), media_type=MEDIA_TYPE, headers=headers)


async def _alive(request: RotaRequest, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield _RECONNECT
    clock = asyncio.get_running_loop().time
    sent = checked = clock()
    async for event in events:
        if request.context.stopping.is_set():
            return
        if clock() - checked >= _CHECK_SECONDS:
            try:
                await authorize_again(request)
            except Problem:
                yield _REFUSED
                return
            checked = clock()
        if event:
            sent = clock()
            yield event
        elif clock() - sent >= _KEEP_ALIVE_SECONDS:
            sent = clock()
            yield b": keep-alive\n\n"


async def pause(context: ServerContext, seconds: float) -> None:
    """Wait, at most until the server stops."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await context.stopping.wait()


_EVENTS_POLL = 0.5  # seconds


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
    found = await stream.list(tenant.namespace, kind, zoned("since", since), limit + 1, before)
    return make_page(found, limit, lambda event: event.id, question)


@get(
    "/v1/events/stream", policy=VIEWER, summary="Follow events as they happen", media_type=MEDIA_TYPE,
    opt={"uncompressed": True},
    description="Server-sent events, from now on, or after `Last-Event-ID` (or `after`): no event is "
    "missed or repeated. `after=0.0` begins with the oldest event.",
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
            400,
            "bad-position",
            str(error),
            fields={"Last-Event-ID": "is not a position of this stream"},
        ) from None
    events = _follow_events(stream, context, tenant.namespace, position, kind)
    return stream_of(request, events)


async def _follow_events(
    stream: EventStream, context: ServerContext, namespace: str, position: Position,
    kind: str | None,
) -> AsyncIterator[bytes]:  # fmt: skip
    # The position is sent at once: a client that disconnects before the first event misses none.
    yield b"id: %s\n\n" % str(position).encode()
    while True:
        events, position = await stream.read(namespace, position, kind)
        for one in events:
            yield event_bytes(one.event.kind, str(one.position), one.event)
        if not events:
            yield b""
            await pause(context, _EVENTS_POLL)


_PAGE = 1_000
_LOG_POLL = 0.3  # seconds
_MOST_ATTEMPTS = 100
_POSITION = re.compile(r"\d{1,18}-\d{1,9}(?:\.\d{1,18}-\d{1,9})*", re.ASCII)

Attempt = Annotated[
    int | None, QueryParameter(ge=1, le=32_000, description="Only the lines of this attempt.")
]


def parse_position(text: str) -> dict[int, int]:
    if not text:
        return {}
    pairs = text.split(".") if len(text) < 3000 and _POSITION.fullmatch(text) else []
    if not 1 <= len(pairs) <= _MOST_ATTEMPTS:
        raise Problem(400, "bad-position", "this is not a position in the log of a job")
    numbers = [pair.split("-") for pair in pairs]
    return {int(token): min(int(line), 2**31 - 1) for token, line in numbers}


def position_text(read: dict[int, int]) -> str:
    """Encode a position: of the latest attempts, if there are very many."""
    latest = sorted(read.items())[-_MOST_ATTEMPTS:]
    return ".".join(f"{token}-{line}" for token, line in latest)


@get("/v1/jobs/{job_id:uuid}/logs", policy=VIEWER, summary="Get the log of a job")
async def get_logs(
    tenant: TenantDep,
    job_id: FromPath[UUID],
    attempt: Attempt = None,
    cursor: Cursor = None,
    limit: Limit = 500,
) -> Page[LogLine]:
    await tenant.jobs.get(job_id)  # raises NotFound
    question = (job_id, attempt)
    read = parse_position(read_cursor(cursor, str, question) or "")
    found = await tenant.jobs.log_lines(job_id, attempt=attempt, read=read, limit=limit + 1)
    items = found[:limit]
    read.update({line.token: line.seq for line in items})
    more = len(found) > limit
    return Page(items, make_cursor(position_text(read), question) if more else None)


@get(
    "/v1/jobs/{job_id:uuid}/logs/stream", policy=VIEWER, summary="Follow the log of a job",
    media_type=MEDIA_TYPE, opt={"uncompressed": True},
    description="Server-sent events of the kind `line`, from the first line on, or after "
    "`Last-Event-ID`. An event `end` follows the last line of a job that has ended.",
)  # fmt: skip
async def stream_logs(
    request: RotaRequest,
    tenant: TenantDep,
    context: ContextDep,
    job_id: FromPath[UUID],
    attempt: Attempt = None,
    last_event_id: Annotated[
        str | None, HeaderParameter(name="Last-Event-ID", max_length=3000)
    ] = None,
) -> Stream:
    await tenant.jobs.get(job_id)  # raises NotFound
    read = parse_position(last_event_id or "")
    return stream_of(request, _follow_log(tenant, context, job_id, attempt, read))


async def _follow_log(
    tenant: Rota, context: ServerContext, job_id: UUID, attempt: int | None, read: dict[int, int]
) -> AsyncIterator[bytes]:
    ended = False
    while True:
        lines = await tenant.jobs.log_lines(job_id, attempt=attempt, read=read, limit=_PAGE)
        for line in lines:
            read[line.token] = line.seq
            yield event_bytes("line", position_text(read), line)
        if len(lines) == _PAGE:
            continue
        if ended:
            yield event_bytes("end", position_text(read), {})
            return
        try:
            ended = await tenant.jobs.has_ended(job_id)
        except NotFound:
            ended = True
        yield b""
        await pause(context, _LOG_POLL)  # once more after the end, for the last lines


ROUTES = [list_events, stream_events, get_logs, stream_logs]
