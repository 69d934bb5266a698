"""FastAPI, with a worker in the same process: `uvicorn frameworks.fastapi_app:api`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from fastapi import FastAPI

from frameworks.jobs import app, confirm
from rota.integrations.fastapi import RotaApp, lifespan

api = FastAPI(lifespan=lifespan(app, worker=True, migrate=True))


@api.post("/orders/{order_id}", status_code=202)
async def take(order_id: int) -> dict[str, str]:
    job = await confirm.submit(order_id)
    return {"job": str(job.id)}


@api.get("/jobs/{id}")
async def show(id: UUID, rota: RotaApp) -> dict[str, Any]:
    job = await rota.jobs.get(id)
    return {"state": job.state, "result": job.result}
