"""Dead letters: failed jobs in groups of the same task and error."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get, post
from litestar.params import JSONBody, PathParameter

from rota.client.wire import DeadGroups
from rota.model import ManyChanged
from rota.operations.jobs import MANY
from rota.server.api.jobs import Filter
from rota.server.api.pages import Limit
from rota.server.dependencies import TenantDep
from rota.server.policy import OPERATOR, VIEWER

Fingerprint = Annotated[
    str, PathParameter(pattern="^[0-9a-f]{16}$", description="Identifies a group in the list.")
]


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


ROUTES = [list_dead, retry_group, discard_group]
