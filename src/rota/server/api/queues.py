"""Queues: list, pause, resume and configure them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar import get, post, put
from litestar.params import JSONBody, PathParameter
from msgspec import Meta

from rota.client.wire import QueueList
from rota.model import QueueStatus
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import TenantDep

QueueName = Annotated[str, PathParameter(max_length=100)]


@get("/v1/queues", policy=VIEWER, summary="List queues, with their jobs and lag")
async def list_queues(tenant: TenantDep) -> QueueList:
    """`lag`: the seconds for which the oldest ready job has been due."""
    return QueueList(await tenant.queues.list())


@get("/v1/queues/{name:str}", policy=VIEWER, summary="Get a queue")
async def get_queue(tenant: TenantDep, name: QueueName) -> QueueStatus:
    return await tenant.queues.get(name)


@post("/v1/queues/{name:str}/pause", policy=OPERATOR, summary="Pause a queue", status_code=200)
async def pause_queue(tenant: TenantDep, name: QueueName) -> QueueStatus:
    """Start none of its jobs until it is resumed. Running jobs are not affected."""
    return await tenant.queues.pause(name, must_exist=True)


@post("/v1/queues/{name:str}/resume", policy=OPERATOR, summary="Resume a queue", status_code=200)
async def resume_queue(tenant: TenantDep, name: QueueName) -> QueueStatus:
    return await tenant.queues.resume(name)


class QueueSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`max_run_time`: seconds that an attempt may take when its job has no timeout; null: the
    installation's maximum."""

    max_run_time: Annotated[float, Meta(ge=1, lt=1e9)] | None


@put("/v1/queues/{name:str}", policy=OPERATOR, summary="Set a queue's maximum run time")
async def set_queue(
    tenant: TenantDep, name: QueueName, data: JSONBody[QueueSettings]
) -> QueueStatus:
    """An attempt that runs longer is stopped, as after a timeout."""
    return await tenant.queues.set_max_run_time(name, data.max_run_time, must_exist=True)


ROUTES = [list_queues, get_queue, set_queue, pause_queue, resume_queue]
