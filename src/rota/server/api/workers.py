"""Workers over HTTP: the calls of the protocol that docs/guide/http-workers.md describes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from litestar import Response, delete, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody

from rota.lib.ids import new_id
from rota.server.api.worker_requests import (
    Answered,
    Answers,
    Claimed,
    ClaimRequest,
    FinishRequest,
    HeartbeatAnswer,
    HeartbeatRequest,
    Left,
    LogRequest,
    ProgressRequest,
    Registered,
    WorkerRequest,
    to_claimed,
    to_finished,
    to_held,
    to_said,
)
from rota.server.authorization import authorize_again
from rota.server.dependencies import ContextDep, PrincipalDep
from rota.server.policy import WORKER
from rota.server.problems import Problem, ProblemDetails
from rota.server.remote_workers.claims import Ask, Asker
from rota.server.remote_workers.workers import Answer
from rota.server.requests import RotaRequest
from rota.store.remote import JobToken

_GONE = {
    410: ResponseSpec(
        ProblemDetails, description="Declared dead, or left: register anew", generate_examples=False,
        media_type="application/problem+json",
    )
}  # fmt: skip


@post(
    "/v1/workers", policy=WORKER, summary="Register a worker", status_code=201, responses=_GONE,
    description="Repeated with the same `id`, it is the same worker.",
)  # fmt: skip
async def register_worker(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep,
    data: JSONBody[WorkerRequest],
) -> Response[Registered]:  # fmt: skip
    host = request.client.host if request.client else "-"
    worker = data.to_worker(data.id or new_id(), host)
    await context.remote.workers(principal.namespace).register(worker, data.to_tasks())
    settings = context.settings
    answer = Registered(worker.id, settings.heartbeat, settings.lease_seconds)
    return Response(answer, status_code=201, headers={"Location": f"/v1/workers/{worker.id}"})


@post(
    "/v1/workers/{worker_id:uuid}/heartbeat", policy=WORKER, summary="Say that a worker lives",
    status_code=200, responses=_GONE,
)  # fmt: skip
async def send_heartbeat(
    context: ContextDep, principal: PrincipalDep, worker_id: FromPath[UUID],
    data: JSONBody[HeartbeatRequest],
) -> HeartbeatAnswer:  # fmt: skip
    workers = context.remote.workers(principal.namespace)
    await workers.renew(worker_id, draining=data.draining)
    lost: Sequence[JobToken] = ()
    if data.alive:
        await workers.store.note_alive(worker_id, [(held.job, held.token) for held in data.alive])
    if data.jobs is not None:
        known = [(held.job, held.token) for held in data.jobs]
        await workers.give_back_unknown(worker_id, known)
        lost = await workers.store.moved_on(worker_id, known)
    cancels = await workers.store.cancels(worker_id)
    settings = context.settings
    return HeartbeatAnswer(
        to_held(cancels), to_held(lost), settings.heartbeat, settings.lease_seconds
    )


@post(
    "/v1/workers/{worker_id:uuid}/claim", policy=WORKER, summary="Claim jobs", status_code=200,
    responses=_GONE, opt={"uncompressed": True},
    description="Waits up to `wait` seconds for the first. Counts as a heartbeat. Repeated with the "
    "same `request`, it answers with the same jobs under another token.",
)  # fmt: skip
async def claim_jobs(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep,
    worker_id: FromPath[UUID], data: JSONBody[ClaimRequest],
) -> Claimed:  # fmt: skip
    workers = context.remote.workers(principal.namespace)
    await workers.renew(worker_id)
    worker = await workers.find(worker_id)
    if worker.state == "draining":
        raise Problem(409, "worker-draining", f"worker {worker_id} is draining: it gets no jobs")
    ask = Ask(worker_id, data.request or str(new_id()), data.max, data.wait)
    asker = Asker(_gone(request), partial(authorize_again, request))
    handed = await context.remote.claims.claim(workers.store, worker, ask, asker)
    return Claimed([to_claimed(job) for job in handed.jobs], to_held(handed.cancels))


async def _gone(request: RotaRequest) -> None:
    """Until the client hangs up. All of its body was read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


@post(
    "/v1/workers/{worker_id:uuid}/finish", policy=WORKER, summary="Say what became of jobs",
    status_code=200,
    description="An outcome that was written before is accepted again, and changes nothing.",
)  # fmt: skip
async def finish_jobs(
    context: ContextDep, principal: PrincipalDep, worker_id: FromPath[UUID],
    data: JSONBody[FinishRequest],
) -> Answers:  # fmt: skip
    workers = context.remote.workers(principal.namespace)
    await workers.find(worker_id)
    limit = context.settings.max_result_bytes
    finished = [to_finished(item, limit) for item in data.items]
    return _answers(data.items, await workers.finish(worker_id, finished) if finished else ())


@post(
    "/v1/workers/{worker_id:uuid}/progress", policy=WORKER, summary="Say how far jobs are",
    status_code=200,
)  # fmt: skip
async def report_progress(
    context: ContextDep, principal: PrincipalDep, worker_id: FromPath[UUID],
    data: JSONBody[ProgressRequest],
) -> Answers:  # fmt: skip
    workers = context.remote.workers(principal.namespace)
    await workers.find(worker_id)
    reports = [((item.job, item.token), item.done, item.total, item.message) for item in data.items]
    return _answers(data.items, await workers.report_progress(worker_id, reports))


@post(
    "/v1/workers/{worker_id:uuid}/logs", policy=WORKER, summary="Keep what jobs print",
    status_code=200, description="Of each attempt the first megabyte is kept, unless set otherwise.",
)  # fmt: skip
async def add_log_lines(
    context: ContextDep, principal: PrincipalDep, worker_id: FromPath[UUID],
    data: JSONBody[LogRequest],
) -> Answers:  # fmt: skip
    workers = context.remote.workers(principal.namespace)
    await workers.find(worker_id)
    return _answers(data.items, await workers.log(worker_id, [to_said(i) for i in data.items]))


@delete(
    "/v1/workers/{worker_id:uuid}", policy=WORKER, status_code=200,
    summary="Leave: what the worker still holds is given back",
)  # fmt: skip
async def leave(context: ContextDep, principal: PrincipalDep, worker_id: FromPath[UUID]) -> Left:
    workers = context.remote.workers(principal.namespace)
    await workers.find(worker_id)
    return Left(await workers.leave(worker_id))


def _answers(items: Sequence[Any], answers: Sequence[Answer]) -> Answers:
    return Answers(
        [
            Answered(item.job, item.token, answer)
            for item, answer in zip(items, answers, strict=True)
        ]
    )


ROUTES = [
    register_worker, send_heartbeat, claim_jobs, finish_jobs, report_progress, add_log_lines, leave,
]  # fmt: skip
