"""Queues: what they hold, and pausing them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from litestar import get, post, put
from litestar.params import JSONBody, PathParameter
from msgspec import Meta

from rota.model import QueueStatus
from rota.operations.rota import Rota
from rota.server.dependencies import TenantDep
from rota.server.policy import OPERATOR, VIEWER
from rota.store.changes import changing

QueueName = Annotated[str, PathParameter(max_length=100)]


class Queues(msgspec.Struct, frozen=True):
    items: Sequence[QueueStatus]


@get("/v1/queues", policy=VIEWER, summary="All queues, with how full and how late they are")
async def list_queues(tenant: TenantDep) -> Queues:
    """`lag`: the seconds for which the oldest ready job has been due."""
    return Queues(await tenant.queues.list())


@get("/v1/queues/{name:str}", policy=VIEWER, summary="One queue")
async def get_queue(tenant: TenantDep, name: QueueName) -> QueueStatus:
    return await _find(tenant, name)


@post("/v1/queues/{name:str}/pause", policy=OPERATOR, summary="Pause a queue", status_code=200)
async def pause_queue(tenant: TenantDep, name: QueueName) -> QueueStatus:
    """None of its jobs is started until it is resumed. What runs goes on."""
    database = (await tenant.store()).database
    async with changing(database, "pause", f"queue {name}") as change:
        change.before = {"paused_at": (await _find(tenant, name)).paused_at}
        await tenant.queues.pause(name)
        after = await _find(tenant, name)
        change.after = {"paused_at": after.paused_at}
    return after


@post("/v1/queues/{name:str}/resume", policy=OPERATOR, summary="Resume a queue", status_code=200)
async def resume_queue(tenant: TenantDep, name: QueueName) -> QueueStatus:
    database = (await tenant.store()).database
    async with changing(database, "resume", f"queue {name}") as change:
        change.before = {"paused_at": (await _find(tenant, name)).paused_at}
        await tenant.queues.resume(name)
    return await _find(tenant, name)


class QueueSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`max_run_time`: seconds that an attempt may take when its job has no timeout; null: the
    installation's maximum."""

    max_run_time: Annotated[float, Meta(ge=1, lt=1e9)] | None


@put("/v1/queues/{name:str}", policy=OPERATOR, summary="Set a queue's maximum run time")
async def set_queue(
    tenant: TenantDep, name: QueueName, data: JSONBody[QueueSettings]
) -> QueueStatus:
    """What runs longer is stopped, as after a timeout."""
    database = (await tenant.store()).database
    async with changing(database, "set", f"queue {name}") as change:
        change.before = {"max_run_time": (await _find(tenant, name)).max_run_time}
        await tenant.queues.set_max_run_time(name, data.max_run_time)
        change.after = {"max_run_time": data.max_run_time}
    return await _find(tenant, name)


async def _find(tenant: Rota, name: str) -> QueueStatus:
    for queue in await tenant.queues.list():
        if queue.name == name:
            return queue
    await tenant.queues.check_known(name)
    # A task declares it, and it has had no job yet.
    return QueueStatus(
        namespace=tenant.namespace, name=name, paused_at=None, ready=0, running=0,
        scheduled=0, lag=None,
    )  # fmt: skip


ROUTES = [list_queues, get_queue, set_queue, pause_queue, resume_queue]
