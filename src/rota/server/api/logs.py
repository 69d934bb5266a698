"""What jobs print and log: what there is, and line by line as it comes.

How far a reader is, is one number per attempt (by its token): the last lines of an attempt may come
after the first of the next one. It travels as ``token-line`` pairs, in a cursor or a Last-Event-ID.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated
from uuid import UUID

from litestar import get
from litestar.params import FromPath, HeaderParameter, QueryParameter
from litestar.response import Stream

from rota.errors import NotFound
from rota.operations.rota import Rota
from rota.server.api.pages import Cursor, Limit, Page, make_cursor, read_cursor
from rota.server.api.streams import MEDIA_TYPE, event_bytes, pause, stream_of
from rota.server.context import ServerContext
from rota.server.dependencies import ContextDep, TenantDep
from rota.server.policy import VIEWER
from rota.server.problems import Problem
from rota.server.requests import RotaRequest
from rota.store.logs import LogLine

_PAGE = 1_000
_LOOK = 0.3  # seconds between looks
_MOST_ATTEMPTS = 100
_POSITION = re.compile(r"\d{1,18}-\d{1,9}(?:\.\d{1,18}-\d{1,9})*", re.ASCII)

Attempt = Annotated[int | None, QueryParameter(ge=1, le=32_000, description="Only of this one.")]


def parse_position(text: str) -> dict[int, int]:
    if not text:
        return {}
    pairs = text.split(".") if len(text) < 3000 and _POSITION.fullmatch(text) else []
    if not 1 <= len(pairs) <= _MOST_ATTEMPTS:
        raise Problem(400, "bad-position", "this is not a position in a job's log")
    numbers = [pair.split("-") for pair in pairs]
    return {int(token): min(int(line), 2**31 - 1) for token, line in numbers}


def position_text(read: dict[int, int]) -> str:
    """Of the latest attempts, if there are very many."""
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
    await tenant.jobs.get(job_id)  # NotFound if there is none
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
    description="Server-sent events of the kind `line`, from the first line on, or behind "
    "`Last-Event-ID`. When the job has ended, and all is told, an event `end` closes it.",
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
    await tenant.jobs.get(job_id)  # NotFound if there is none
    read = parse_position(last_event_id or "")
    return stream_of(request, _follow(tenant, context, job_id, attempt, read))


async def _follow(
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
        await pause(context, _LOOK)  # once more after the end: for what was said last


ROUTES = [get_logs, stream_logs]
