"""Jobs: submitting, looking at and steering them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody, QueryParameter

from rota.client.wire import Attempts, JobPage, JobResult
from rota.core.access import Principal
from rota.core.explain import Explanation
from rota.lib import tracing
from rota.model import (
    Accepted,
    Cancelled,
    Discarded,
    Job,
    ManyChanged,
    OutcomeName,
    State,
    StateName,
)
from rota.operations.job_request import JobRequest, Text
from rota.operations.jobs import MANY, Action
from rota.operations.preconditions import matches
from rota.operations.rota import Rota
from rota.server.api.bodies import SubmitOperation, decode_body
from rota.server.api.conditions import tag_of
from rota.server.api.encoded import Encoded
from rota.server.api.pages import Cursor, Limit, make_page, read_cursor
from rota.server.dependencies import TenantDep
from rota.server.policy import OPERATOR, VIEWER
from rota.server.problems import Problem
from rota.server.requests import RotaRequest
from rota.store.search import JobFilter

_decoder = msgspec.json.Decoder(JobRequest)

StateFilter = Annotated[
    list[StateName] | None,
    QueryParameter(name="state", description="One or several (repeat it).", max_items=8),
]
Moment = Annotated[datetime | None, QueryParameter(description="With a time zone.")]
OutcomeFilter = Annotated[
    OutcomeName | None, QueryParameter(description="How the last attempt ended.")
]
Filter = Annotated[str | None, QueryParameter(max_length=200)]


class BulkAction(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which jobs are meant. At least one of the filters has to be given."""

    state: list[StateName] | None = None
    task: Text | None = None
    queue: Text | None = None
    tag: Text | None = None
    since: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    until: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    text: Text | None = None
    schedule: Text | None = None
    outcome: OutcomeName | None = None
    dry_run: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=MANY)] = MANY


@post(
    "/v1/jobs", policy=OPERATOR.unaudited, summary="Submit a job", status_code=201,
    description="Answered when the job is committed. With an `Idempotency-Key` (or `key`), the same "
    "task and payload give the same answer again, and others are a conflict.",
    operation_class=SubmitOperation, opt={"uncompressed": True},
)  # fmt: skip
async def submit_job(request: RotaRequest) -> Response[Accepted]:
    # The busiest route: what the framework would look up for it costs as much as all that it does.
    context, headers = request.context, request.headers
    tenant = context.tenants.get(request.principal.namespace)
    data = await decode_body(request, _decoder)
    if (key := headers.get("idempotency-key")) is not None:
        data.key = _checked_key(data.key, key)
    if "traceparent" in headers:
        # What the job's own headers say goes first.
        data.headers = {**tracing.incoming(headers), **(data.headers or {})} or None
    check_task_of_token(request.principal, data.name)
    accepted = await tenant.submissions.submit_request(data)
    told = [(b"location", f"/v1/jobs/{accepted.id}".encode())]
    if accepted.existed:
        told.append((b"idempotent-replayed", b"true"))
        # In the header alone: the same request gets the same body again.
        accepted = msgspec.structs.replace(accepted, existed=False)
    return Encoded(accepted, 201, told)


def check_task_of_token(principal: Principal, task: str) -> None:
    if not principal.may_submit(task):
        only = ", ".join(principal.identity.tasks)
        raise Problem(403, "forbidden", f"this token submits only jobs of {only}, not of {task}")


def _checked_key(said: str | None, header: str) -> str:
    wrong = None
    if said not in (None, header):
        wrong = "key and Idempotency-Key differ; give one of them"
    elif not 1 <= len(header) <= 255:
        wrong = "Idempotency-Key must be 1 to 255 characters long"
    if wrong is not None:
        raise Problem(422, "invalid", wrong, fields={"Idempotency-Key": wrong})
    return header


@get("/v1/jobs", policy=VIEWER, summary="List jobs, newest first")
async def list_jobs(
    tenant: TenantDep,
    states: StateFilter = None,
    task: Filter = None,
    queue: Filter = None,
    tag: Filter = None,
    since: Moment = None,
    until: Moment = None,
    text: Filter = None,
    schedule: Filter = None,
    outcome: OutcomeFilter = None,
    cursor: Cursor = None,
    limit: Limit = 50,
    count: Annotated[
        bool, QueryParameter(description="Count all that match, if only roughly.")
    ] = False,
) -> JobPage:
    wanted = JobFilter.of(
        states=states, task=task, queue=queue, tag=tag, since=zoned("since", since),
        until=zoned("until", until), text=text, schedule=schedule, outcome=outcome,
    )  # fmt: skip
    before = read_cursor(cursor, UUID, wanted)
    found = await tenant.jobs.search(wanted, before=before, limit=limit + 1)
    page = make_page(found, limit, lambda job: job.id, wanted)
    counted = await tenant.jobs.count_matching(wanted) if count else None
    return JobPage(page.items, page.next, counted)


_UNCHANGED = ResponseSpec(
    data_container=None, description="It is as `If-None-Match` says", generate_examples=False
)


@get(
    "/v1/jobs/{job_id:uuid}", policy=VIEWER, summary="Get a job",
    responses={304: _UNCHANGED},
)  # fmt: skip
async def get_job(tenant: TenantDep, request: RotaRequest, job_id: FromPath[UUID]) -> Response[Job]:
    job = await tenant.jobs.get(job_id)
    tag = tag_of(job)
    if matches(request.headers.get("if-none-match"), tag):
        return Response(None, status_code=304, headers={"ETag": tag})  # type: ignore[arg-type]
    return Response(job, headers={"ETag": tag})


@get("/v1/jobs/{job_id:uuid}/result", policy=VIEWER, summary="Get the result of a job")
async def get_result(tenant: TenantDep, job_id: FromPath[UUID]) -> JobResult:
    job = await tenant.jobs.get(job_id)
    ended = State.parse(job.state).is_final
    return JobResult(job.id, job.state, ended, job.result, job.error, job.finished_at)  # type: ignore[arg-type]


@get("/v1/jobs/{job_id:uuid}/attempts", policy=VIEWER, summary="List the attempts of a job")
async def get_attempts(tenant: TenantDep, job_id: FromPath[UUID]) -> Attempts:
    job = await tenant.jobs.get(job_id)
    return Attempts(job.attempts, job.attempt, job.max_attempts)


@get("/v1/jobs/{job_id:uuid}/explain", policy=VIEWER, summary="Explain a job")
async def explain_job(tenant: TenantDep, job_id: FromPath[UUID]) -> Explanation:
    """Say why the job isn't running now, or what it does."""
    return await tenant.jobs.explain(job_id)


@post("/v1/jobs/{job_id:uuid}/cancel", policy=OPERATOR, summary="Cancel a job", status_code=200)
async def cancel_job(tenant: TenantDep, job_id: FromPath[UUID]) -> Cancelled:
    return await tenant.jobs.cancel(job_id)


@post("/v1/jobs/{job_id:uuid}/retry", policy=OPERATOR, summary="Retry a job", status_code=200)
async def retry_job(tenant: TenantDep, job_id: FromPath[UUID]) -> Accepted:
    """Run a failed job, or one that waits for its next retry, now, counting its attempts afresh."""
    return await tenant.jobs.retry(job_id)


@post("/v1/jobs/{job_id:uuid}/discard", policy=OPERATOR, summary="Discard a job", status_code=200)
async def discard_job(tenant: TenantDep, job_id: FromPath[UUID]) -> Discarded:
    """Take a failed job off the dead-letter list for good."""
    return await tenant.jobs.discard(job_id)


@post("/v1/jobs:cancel", policy=OPERATOR, summary="Cancel all jobs that match", status_code=200)
async def cancel_jobs(tenant: TenantDep, data: JSONBody[BulkAction]) -> ManyChanged:
    return await _act(tenant, "cancel", data)


@post("/v1/jobs:retry", policy=OPERATOR, summary="Retry all jobs that match", status_code=200)
async def retry_jobs(tenant: TenantDep, data: JSONBody[BulkAction]) -> ManyChanged:
    """Retry failed jobs, or those that wait for their next retry (`state: ["scheduled"]`)."""
    return await _act(tenant, "retry", data)


async def _act(tenant: Rota, action: Action, data: BulkAction) -> ManyChanged:
    wanted = JobFilter.of(
        states=data.state, task=data.task, queue=data.queue, tag=data.tag, since=data.since,
        until=data.until, text=data.text, schedule=data.schedule, outcome=data.outcome,
    )  # fmt: skip
    return await tenant.jobs.change_matching(action, wanted, limit=data.limit, dry_run=data.dry_run)


def zoned(field: str, moment: datetime | None) -> datetime | None:
    if moment is not None and moment.tzinfo is None:
        raise Problem(
            400, "invalid", f"{field}: say in which time zone, such as 2027-01-31T09:00:00Z",
            fields={field: "has no time zone"},
        )  # fmt: skip
    return moment


ROUTES = [
    submit_job, list_jobs, get_job, get_result, get_attempts, explain_job, cancel_job, retry_job,
    discard_job, cancel_jobs, retry_jobs,
]  # fmt: skip
