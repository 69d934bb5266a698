"""Litestar, with a worker in the same process: `uvicorn frameworks.litestar_app:api`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from litestar import Litestar, get, post

from frameworks.jobs import app, confirm
from rota.integrations.asgi import lifespan


@post("/orders/{order_id:int}", status_code=202)
async def take(order_id: int) -> dict[str, str]:
    job = await confirm.submit(order_id)
    return {"job": str(job.id)}


@get("/jobs/{job_id:uuid}")
async def show(job_id: UUID) -> dict[str, Any]:
    job = await app.jobs.get(job_id)
    return {"state": job.state, "result": job.result}


api = Litestar([take, show], lifespan=[lifespan(app, worker=True, migrate=True)])
