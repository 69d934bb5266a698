"""Starlette, with a worker in the same process: `uvicorn frameworks.starlette_app:api`."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from frameworks.jobs import app, confirm
from rota.integrations.asgi import lifespan


async def take(request: Request) -> JSONResponse:
    job = await confirm.submit(request.path_params["order_id"])
    return JSONResponse({"job": str(job.id)}, 202)


async def show(request: Request) -> JSONResponse:
    job = await request.state.rota.jobs.get(request.path_params["id"])
    return JSONResponse({"state": job.state, "result": job.result})


api = Starlette(
    routes=[Route("/orders/{order_id:int}", take, methods=["POST"]), Route("/jobs/{id}", show)],
    lifespan=lifespan(app, worker=True, migrate=True),
)
