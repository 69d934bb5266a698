"""The log on the page of a job: attempts as tabs, levels, a search, and the whole of it as a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated
from uuid import UUID

import msgspec
from litestar.params import FromPath, QueryParameter
from litestar.response import Stream

from rota.model import Job, LogLine
from rota.operations.rota import Rota
from rota.server.dashboard import pages
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest, TenantDep

_LINES = 300
_LOOKED_AT = 5_000  # lines in which is searched
# A level with those above it. What a job printed is beside them, and errors count as such.
LEVELS = {
    "all": frozenset[str](),
    "info": frozenset({"info", "warning", "error", "critical", "stderr"}),
    "warning": frozenset({"warning", "error", "critical", "stderr"}),
    "error": frozenset({"error", "critical"}),
    "printed": frozenset({"stdout", "stderr"}),
}

AttemptNumber = Annotated[int | None, QueryParameter(name="attempt", ge=1, le=100_000)]
Level = Annotated[str, QueryParameter(max_length=20)]
Find = Annotated[str | None, QueryParameter(max_length=200)]


class JobLog(msgspec.Struct, frozen=True):
    """The lines to show, and what they were chosen by."""

    lines: Sequence[LogLine]
    attempts: Sequence[int]
    attempt: int | None
    level: str
    find: str
    more: bool  # there are more lines that match than are shown
    unsearched: bool  # the log is longer than what was searched

    @property
    def filtered(self) -> bool:
        return self.level != "all" or bool(self.find)


async def read_log(
    tenant: Rota, job: Job, attempt: int | None, level: str, find: str | None
) -> JobLog:
    """Read the lines of a job that match. Lines may be encrypted, so that the search is here."""
    level = level if level in LEVELS else "all"
    wanted, words = LEVELS[level], (find or "").strip().casefold()
    most = _LOOKED_AT if wanted or words else _LINES
    read = await tenant.jobs.log_lines(job.id, attempt=attempt, read={}, limit=most + 1)
    found = [
        line for line in read[:most]
        if (not wanted or line.stream in wanted) and words in line.text.casefold()
    ]  # fmt: skip
    attempts = sorted({one.number for one in job.attempts} | set(range(1, job.attempt + 1)))[-20:]
    return JobLog(
        found[:_LINES], attempts, attempt, level, (find or "").strip(),
        more=len(found) > _LINES or (len(read) > most and not (wanted or words)),
        unsearched=bool(wanted or words) and len(read) > most,
    )  # fmt: skip


@pages.page("/jobs/{job_id:uuid}/log", policy=VIEWER)
async def download_log(
    request: RotaRequest, tenant: TenantDep, job_id: FromPath[UUID], attempt: AttemptNumber = None
) -> Stream:
    """Give out the whole log as a text, line by line."""
    job = await tenant.jobs.get(job_id)
    name = f"{job_id}" + (f"-attempt-{attempt}" if attempt else "")

    async def lines() -> AsyncIterator[bytes]:
        async for line in tenant.jobs.logs(job.id, attempt=attempt):
            yield f"{line.at.isoformat()} {line.attempt} {line.stream} {line.text}\n".encode()

    return Stream(
        lines(), media_type="text/plain",
        headers={"Content-Disposition": f'attachment; filename="{name}.log"'},
    )  # fmt: skip


ROUTES = [download_log]
