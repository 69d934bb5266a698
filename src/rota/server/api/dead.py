"""REST routes of dead letters: failed jobs, in groups, by type of error, and by their ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import get, post
from litestar.params import JSONBody, QueryParameter

from rota.client.wire import DeadCounts, DeadGroups, JobIds
from rota.model import ManyChanged
from rota.operations.jobs import MANY
from rota.server.api.jobs import Filter, Fingerprint
from rota.server.api.pages import Limit
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import TenantDep


class GroupRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    dry_run: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=MANY)] = MANY


@get("/v1/dead", policy=VIEWER, summary="List dead letters in groups, the largest first")
async def list_dead(
    tenant: TenantDep, task: Filter = None, queue: Filter = None, limit: Limit = 100
) -> DeadGroups:
    """Groups are by task and error: messages that differ in numbers and ids only are one group. For
    single jobs, see `GET /v1/jobs?state=failed`."""
    return DeadGroups(await tenant.dead.groups(task=task, queue=queue, limit=limit))


@post("/v1/dead/{fingerprint:str}/retry", policy=OPERATOR, summary="Retry a group", status_code=200)
async def retry_group(
    tenant: TenantDep, fingerprint: Fingerprint, data: JSONBody[GroupRequest | None] = None
) -> ManyChanged:
    """Run its jobs again, the oldest first."""
    data = data or GroupRequest()
    return await tenant.dead.retry_group(fingerprint, limit=data.limit, dry_run=data.dry_run)


@post(
    "/v1/dead/{fingerprint:str}/discard", policy=OPERATOR, summary="Discard a group",
    status_code=200,
)  # fmt: skip
async def discard_group(
    tenant: TenantDep, fingerprint: Fingerprint, data: JSONBody[GroupRequest | None] = None
) -> ManyChanged:
    """Take its jobs off the list for good. They can be read until their retention ends."""
    data = data or GroupRequest()
    return await tenant.dead.discard_group(fingerprint, limit=data.limit, dry_run=data.dry_run)


@get("/v1/dead:errors", policy=VIEWER, summary="Count dead letters by task and type of error")
async def count_dead(tenant: TenantDep, task: Filter = None, queue: Filter = None) -> DeadCounts:
    """The most frequent first."""
    return DeadCounts(await tenant.dead.count_by_error(task=task, queue=queue))


@get("/v1/dead:ids", policy=VIEWER, summary="List the ids of dead letters, oldest first")
async def list_dead_ids(
    tenant: TenantDep,
    task: Filter = None,
    queue: Filter = None,
    error: Annotated[
        str | None,
        QueryParameter(max_length=200, description="The type of error: CardDeclined."),
    ] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=MANY)] = MANY,
) -> JobIds:
    """The ids of the failed jobs that match."""
    return JobIds(await tenant.jobs.dead_letters(task=task, queue=queue, error=error, limit=limit))


class DeadIds(msgspec.Struct, forbid_unknown_fields=True):
    """Ids of failed jobs."""

    ids: Annotated[Sequence[UUID], msgspec.Meta(min_length=1, max_length=MANY)]


@post("/v1/dead:retry", policy=OPERATOR, summary="Retry dead letters by their ids", status_code=200)
async def retry_dead_ids(tenant: TenantDep, data: JSONBody[DeadIds]) -> JobIds:
    """Run them again. The answer names those that were; others had not failed, or don't exist."""
    return JobIds(await tenant.jobs.retry_many(data.ids))


@post(
    "/v1/dead:discard", policy=OPERATOR, summary="Discard dead letters by their ids",
    status_code=200,
)  # fmt: skip
async def discard_dead_ids(tenant: TenantDep, data: JSONBody[DeadIds]) -> JobIds:
    """Take them off the list for good. The answer names those that were on it."""
    return JobIds(await tenant.jobs.discard_many(data.ids))


ROUTES = [
    list_dead, retry_group, discard_group, count_dead, list_dead_ids, retry_dead_ids,
    discard_dead_ids,
]  # fmt: skip
