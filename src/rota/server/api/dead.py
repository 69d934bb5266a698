"""Dead letters: jobs that failed for good, in groups that are alike, and ways off the list."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import get, post
from litestar.params import FromPath, JSONBody, PathParameter

from rota.errors import NotFound
from rota.operations.rota import Rota
from rota.server.api.jobs import Filter
from rota.server.api.pages import Limit
from rota.server.dependencies import TenantDep
from rota.server.policy import OPERATOR, VIEWER
from rota.server.problems import Problem
from rota.store.changes import Change, changing
from rota.store.search import DeadGroup, JobSearch

_MANY = 10_000

Fingerprint = Annotated[
    str, PathParameter(pattern="^[0-9a-f]{16}$", description="Of a group, as the list tells it.")
]


class DeadGroups(msgspec.Struct, frozen=True):
    items: Sequence[DeadGroup]


class GroupRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    dry_run: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=_MANY)] = _MANY


class GroupDone(msgspec.Struct, frozen=True, kw_only=True):
    """`more`: there are others; run it again."""

    dry_run: bool
    matched: int
    changed: int
    more: bool


class Discarded(msgspec.Struct, frozen=True):
    id: UUID


@get("/v1/dead", policy=VIEWER, summary="Dead letters in groups, the largest first")
async def list_dead(
    tenant: TenantDep, task: Filter = None, queue: Filter = None, limit: Limit = 100
) -> DeadGroups:
    """By task and error: messages that differ in numbers and ids only are one group. The jobs one by
    one: `GET /v1/jobs?state=failed`."""
    search = JobSearch((await tenant.store()).database)
    return DeadGroups(await search.dead_groups(tenant.namespace, task, queue, limit))


@post("/v1/dead/{fingerprint:str}/retry", policy=OPERATOR, summary="Retry a group", status_code=200)
async def retry_group(
    tenant: TenantDep,
    fingerprint: Fingerprint,
    data: JSONBody[GroupRequest | None] = None,
) -> GroupDone:
    """Run its jobs again, the oldest first."""
    data = data or GroupRequest()
    ids = await _members(tenant, fingerprint, data.limit)
    done: Sequence[UUID] = ()
    if not data.dry_run:
        async with await _changing(tenant, "retry", fingerprint) as change:
            done = await tenant.jobs.retry_many(ids)
            change.after = {"count": len(done)}
    return _report(data, ids, done)


@post(
    "/v1/dead/{fingerprint:str}/discard", policy=OPERATOR, summary="Discard a group",
    status_code=200,
)  # fmt: skip
async def discard_group(
    tenant: TenantDep,
    fingerprint: Fingerprint,
    data: JSONBody[GroupRequest | None] = None,
) -> GroupDone:
    """Take its jobs off the list for good. They stay to be seen until their retention is over."""
    data = data or GroupRequest()
    ids = await _members(tenant, fingerprint, data.limit)
    done: Sequence[UUID] = ()
    if not data.dry_run:
        async with await _changing(tenant, "discard", fingerprint) as change:
            done = await tenant.jobs.discard(ids)
            change.after = {"count": len(done)}
    return _report(data, ids, done)


@post("/v1/jobs/{job_id:uuid}/discard", policy=OPERATOR, summary="Discard a job", status_code=200)
async def discard_job(tenant: TenantDep, job_id: FromPath[UUID]) -> Discarded:
    """Take a failed job off the dead-letter list for good."""
    if not await tenant.jobs.discard([job_id]):
        job = await tenant.jobs.get(job_id)
        raise Problem(
            409, "not-failed", f"job {job_id} can't be discarded: it is {job.state}, not failed"
        )
    return Discarded(job_id)


async def _changing(
    tenant: Rota, action: str, fingerprint: str
) -> AbstractAsyncContextManager[Change]:
    return changing((await tenant.store()).database, action, f"dead letters {fingerprint}")


async def _members(tenant: Rota, fingerprint: str, limit: int) -> list[UUID]:
    search = JobSearch((await tenant.store()).database)
    ids = await search.find_dead_group(tenant.namespace, fingerprint, limit)
    if not ids:
        raise NotFound(f"there are no dead letters {fingerprint!r}: perhaps not any more")
    return ids


def _report(data: GroupRequest, ids: Sequence[UUID], done: Sequence[UUID]) -> GroupDone:
    more = len(ids) == data.limit
    return GroupDone(dry_run=data.dry_run, matched=len(ids), changed=len(done), more=more)


ROUTES = [list_dead, retry_group, discard_group, discard_job]
