"""Reading what a job printed and logged, also while it runs.

Following is asking again, quickly while lines come and more slowly when none do. How far each attempt
was read is remembered by its token: the last lines of one may come after the first of the next. A job's
lines are written before its end is, so that little is to be waited for once it has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import UUID

from rota.errors import NotFound
from rota.model import State
from rota.store.jobs import JobStore
from rota.store.logs import LogLine, LogStore

_PAGE = 1_000
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_LAST_WAIT = 0.3  # for what an exactly_once handler said: its own transaction ended its job


async def read_logs(
    open_store: Callable[[], Awaitable[JobStore]], namespace: str, job_id: UUID,
    attempt: int | None, follow: bool,
) -> AsyncIterator[LogLine]:  # fmt: skip
    store = await open_store()
    logs = LogStore(store.database)
    if not await store.get_jobs(namespace, [job_id]):
        raise NotFound(f"there is no job {job_id} in namespace {namespace!r}")
    read: dict[int, int] = {}
    pause, ended = _FIRST_PAUSE, False
    while True:
        lines = await logs.read(namespace, job_id, attempt, read, _PAGE)
        for line in lines:
            read[line.token] = line.seq
            yield line
        if len(lines) == _PAGE:
            continue
        if not follow or ended:
            return
        ended = await _has_ended(store, namespace, job_id)
        pause = _FIRST_PAUSE if lines else min(pause * 1.5, _LONGEST_PAUSE)
        await asyncio.sleep(_LAST_WAIT if ended else pause)


async def _has_ended(store: JobStore, namespace: str, job_id: UUID) -> bool:
    jobs = await store.get_jobs(namespace, [job_id])
    return not jobs or State.parse(jobs[0].state).is_final
