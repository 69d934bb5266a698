"""REST routes of remote workers. docs/guide/http-workers.md describes the protocol."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from litestar import Response, delete, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody

from rota.lib.ids import new_id
from rota.server.authorization import authorize_again
from rota.server.policy import WORKER
from rota.server.problems import Problem, ProblemDetails
from rota.server.remote_workers import messages
from rota.server.remote_workers.claims import Asker
from rota.server.requests import RotaRequest, WorkersDep

_GONE = {
    410: ResponseSpec(
        ProblemDetails, description="Declared dead, or left: register again",
        generate_examples=False, media_type="application/problem+json",
    )
}  # fmt: skip


@post(
    "/v1/workers", policy=WORKER, summary="Register a worker", status_code=201, responses=_GONE,
    description="A request that is repeated with the same `id` registers the same worker.",
)  # fmt: skip
async def register_worker(
    request: RotaRequest, workers: WorkersDep, data: JSONBody[messages.WorkerRequest]
) -> Response[messages.Registered]:
    host = request.client.host if request.client else "-"
    worker = data.to_worker(data.id or new_id(), host)
    await workers.register(worker, data.to_tasks())
    answer = workers.registered(worker.id)
    return Response(answer, status_code=201, headers={"Location": f"/v1/workers/{worker.id}"})


@post(
    "/v1/workers/{worker_id:uuid}/heartbeat", policy=WORKER, summary="Send a heartbeat",
    status_code=200, responses=_GONE,
)  # fmt: skip
async def send_heartbeat(
    workers: WorkersDep, worker_id: FromPath[UUID], data: JSONBody[messages.HeartbeatRequest]
) -> messages.HeartbeatAnswer:
    return await workers.heartbeat(worker_id, data)


@post(
    "/v1/workers/{worker_id:uuid}/claim", policy=WORKER, summary="Claim jobs", status_code=200,
    responses=_GONE, opt={"uncompressed": True},
    description="Waits up to `wait` seconds for the first job. Counts as a heartbeat. A claim that is "
    "repeated with the same `request` returns the same jobs with another token.",
)  # fmt: skip
async def claim_jobs(
    request: RotaRequest, workers: WorkersDep, worker_id: FromPath[UUID],
    data: JSONBody[messages.ClaimRequest],
) -> messages.Claimed:  # fmt: skip
    worker = await workers.renew(worker_id)
    if worker.state == "draining":
        raise Problem(409, "worker-draining", f"worker {worker_id} is draining: it gets no jobs")
    asker = Asker(worker_id, _gone(request), partial(authorize_again, request))
    jobs, cancels = await request.context.claims.claim(workers.store, worker, data, asker)
    return messages.Claimed([messages.to_claimed(job) for job in jobs], messages.to_held(cancels))


async def _gone(request: RotaRequest) -> None:
    """Wait until the client disconnects. Its whole body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@post(
    "/v1/workers/{worker_id:uuid}/finish", policy=WORKER, summary="Report the outcomes of jobs",
    status_code=200,
    description="An outcome that was written before is accepted again, and changes nothing.",
)  # fmt: skip
async def finish_jobs(
    workers: WorkersDep, worker_id: FromPath[UUID], data: JSONBody[messages.FinishRequest]
) -> messages.Answers:
    return await workers.report(worker_id, data)


@post(
    "/v1/workers/{worker_id:uuid}/progress", policy=WORKER, summary="Report the progress of jobs",
    status_code=200,
)  # fmt: skip
async def report_progress(
    workers: WorkersDep, worker_id: FromPath[UUID], data: JSONBody[messages.ProgressRequest]
) -> messages.Answers:
    return await workers.report(worker_id, data)


@post(
    "/v1/workers/{worker_id:uuid}/logs", policy=WORKER, summary="Add log lines of jobs",
    status_code=200,
    description="The first megabyte of each attempt is kept, unless the server is configured otherwise.",
)  # fmt: skip
async def add_log_lines(
    workers: WorkersDep, worker_id: FromPath[UUID], data: JSONBody[messages.LogRequest]
) -> messages.Answers:
    return await workers.report(worker_id, data)


@delete(
    "/v1/workers/{worker_id:uuid}", policy=WORKER, status_code=200,
    summary="Leave, and give back the jobs that the worker holds",
)  # fmt: skip
async def leave(workers: WorkersDep, worker_id: FromPath[UUID]) -> messages.Left:
    await workers.find(worker_id)
    return messages.Left(await workers.leave(worker_id))


ROUTES = [
    register_worker, send_heartbeat, claim_jobs, finish_jobs, report_progress, add_log_lines, leave,
]  # fmt: skip
