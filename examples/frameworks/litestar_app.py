"""Litestar, with a worker in the same process: `uvicorn frameworks.litestar_app:api`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from litestar import Litestar, asgi, get, post
from litestar.connection import ASGIConnection
from litestar.types import Receive, Scope, Send

from frameworks.jobs import app, confirm
from rota.integrations.asgi import lifespan
from rota.integrations.mount import Dashboard, User


def who(scope: Any) -> User | None:
    """Return who sends a request: here, whoever a proxy says it is."""
    name = ASGIConnection[Any, Any, Any, Any](scope).headers.get("x-forwarded-user")
    return User(name, "operator") if name else None


dashboard = Dashboard(app, "/rota", authenticate=who)


@asgi("/rota", is_mount=True, copy_scope=True)
async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
    await dashboard(dict(scope), receive, send)


@post("/orders/{order_id:int}", status_code=202)
async def take(order_id: int) -> dict[str, str]:
    job = await confirm.submit(order_id)
    return {"job": str(job.id)}


@get("/jobs/{job_id:uuid}")
async def show(job_id: UUID) -> dict[str, Any]:
    job = await app.jobs.get(job_id)
    return {"state": job.state, "result": job.result}


api = Litestar(
    [take, show, mounted],
    lifespan=[lifespan(app, worker=True, migrate=True, mounted=[dashboard])],
)
