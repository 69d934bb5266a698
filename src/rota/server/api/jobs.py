"""REST routes of jobs."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Response, get, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import FromPath, JSONBody, PathParameter, QueryParameter

from rota.client.wire import Attempts, JobPage, JobResult
from rota.core.access import Principal
from rota.core.explain import Explanation
from rota.lib import tracing
from rota.model import (
    Accepted,
    Cancelled,
    Discarded,
    FinalStateName,
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
from rota.server.api.bodies import Encoded, decode_body, describe_body
from rota.server.api.pages import Cursor, Limit, Page, make_cursor, make_page, read_cursor
from rota.server.policy import OPERATOR, VIEWER
from rota.server.problems import Problem
from rota.server.requests import RotaRequest, TenantDep
from rota.store.search import JobFilter


def _tag_of(value: Any) -> str:
    """Return an ETag that changes with any field of the value."""
    digest = hashlib.blake2b(msgspec.json.encode(value), digest_size=12).hexdigest()
    return f'"{digest}"'


_decoder = msgspec.json.Decoder(JobRequest)
_SubmitOperation = describe_body(
    JobRequest,
    {"name": "Idempotency-Key", "schema": {"type": "string", "minLength": 1, "maxLength": 255},
     "description": "The same key, task and payload return the same job."},
    {"name": "traceparent", "schema": {"type": "string", "maxLength": 200},
     "description": "W3C trace context, stored with the job (as is `tracestate`)."},
)  # fmt: skip

StateFilter = Annotated[
    list[StateName] | None, QueryParameter(name="state", description="Repeatable.", max_items=8)
]
QueryMoment = Annotated[datetime | None, QueryParameter(description="With a time zone.")]
OutcomeFilter = Annotated[
    OutcomeName | None, QueryParameter(description="How the last attempt ended.")
]
Filter = Annotated[str | None, QueryParameter(max_length=200)]
Fingerprint = Annotated[
    str, PathParameter(pattern="^[0-9a-f]{16}$", description="Identifies a group in the list.")
]


class BulkAction(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The jobs to change. At least one filter is required."""

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
    "/v1/jobs", policy=OPERATOR, summary="Submit a job", status_code=201,
    description="Answered when the job is committed. With an `Idempotency-Key` (or `key`), the same "
    "task and payload get the same answer again; others are a conflict.",
    operation_class=_SubmitOperation, opt={"uncompressed": True},
)  # fmt: skip
async def submit_job(request: RotaRequest) -> Response[Accepted]:
    # The busiest route: dependencies of the framework would cost as much as the rest of it.
    context, headers = request.context, request.headers
    tenant = context.tenant(request.principal.namespace)
    data = await decode_body(request, _decoder)
    if (key := headers.get("idempotency-key")) is not None:
        data.key = _checked_key(data.key, key)
    if "traceparent" in headers:
        # The job's own headers take precedence.
        data.headers = {**tracing.incoming(headers), **(data.headers or {})} or None
    check_job_of_token(request.principal, data.name, data.queue)
    if request.principal.identity.submits_per_second is not None:
        await context.quotas.admit_token(request.principal.identity, 1)
    only_some = request.principal.names_queues
    accepted = await tenant.submissions.submit_request(data, one_queue=only_some)
    answer = [(b"location", f"/v1/jobs/{accepted.id}".encode())]
    if accepted.existed and not accepted.duplicate:
        answer.append((b"idempotent-replayed", b"true"))
        # Only in the header: the same request gets the same body again.
        accepted = msgspec.structs.replace(accepted, existed=False)
    return Encoded(accepted, 201, answer)


def check_job_of_token(principal: Principal, task: str, queue: str | None) -> None:
    if (refusal := principal.refusal_of(task, queue)) is not None:
        raise Problem(403, "forbidden", refusal)


def _checked_key(key: str | None, header: str) -> str:
    wrong = None
    if key not in (None, header):
        wrong = "key and Idempotency-Key differ; send one of them"
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
    since: QueryMoment = None,
    until: QueryMoment = None,
    text: Filter = None,
    schedule: Filter = None,
    outcome: OutcomeFilter = None,
    cursor: Cursor = None,
    limit: Limit = 50,
    count: Annotated[
        bool,
        QueryParameter(
            description="Also count the jobs that match; the number may be an estimate."
        ),
    ] = False,
) -> JobPage:
    """A page with filters is of the next 20,000 jobs (of the states asked for): it may have fewer items
    than `limit`, or none, while `next` goes on with older ones. `looked_back_to`: how far it looked."""
    wanted = JobFilter.of(
        states=states, task=task, queue=queue, tag=tag, since=zoned("since", since),
        until=zoned("until", until), text=text, schedule=schedule, outcome=outcome,
    )  # fmt: skip
    before = read_cursor(cursor, UUID, wanted)
    found = await tenant.jobs.look(wanted, before=before, limit=limit + 1)
    page = make_page(found.jobs, limit, lambda job: job.id, wanted)
    counted = await tenant.jobs.count_matching(wanted) if count else None
    if found.until is not None:
        following = make_cursor(found.until, wanted)
        return JobPage(page.items, following, counted, found.back_to)
    return JobPage(page.items, page.next, counted)


@get("/v1/jobs:whole", policy=VIEWER, summary="List whole jobs, newest first")
async def list_whole_jobs(
    tenant: TenantDep,
    in_state: Annotated[StateName | None, QueryParameter(name="state")] = None,
    task: Filter = None,
    queue: Filter = None,
    tag: Filter = None,
    outcome: OutcomeFilter = None,
    before: Annotated[
        UUID | None, QueryParameter(description="Only jobs older than this one.")
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[Job]:
    """List jobs with their payloads, results and attempts, as `GET /v1/jobs/{id}` has them. A page with
    filters is of the next 20,000 jobs: it may have fewer items than `limit`, while `next` goes on."""
    question = (in_state, task, queue, tag, outcome)
    before = read_cursor(cursor, UUID, question) or before
    found, until = await tenant.jobs.look_whole(
        state=in_state, task=task, queue=queue, tag=tag, outcome=outcome, before=before,
        limit=limit + 1,
    )  # fmt: skip
    if until is not None:
        return Page(list(found), make_cursor(until, question))
    return make_page(found, limit, lambda job: job.id, question)


@get("/v1/history", policy=VIEWER, summary="List the jobs that ended in a period")
async def list_ended_jobs(
    tenant: TenantDep,
    since: Annotated[datetime, QueryParameter(description="With a time zone.")],
    until: Annotated[datetime, QueryParameter(description="Not included. With a time zone.")],
    in_state: Annotated[FinalStateName | None, QueryParameter(name="state")] = None,
    task: Filter = None,
    queue: Filter = None,
    cursor: Cursor = None,
    limit: Limit = 50,
    after: Annotated[
        UUID | None, QueryParameter(description="Begin behind the job of this id.")
    ] = None,
) -> Page[Job]:
    """List jobs with their payloads, results and attempts, in the order in which they were submitted."""
    question = (since, until, in_state, task, queue, after)
    after = read_cursor(cursor, UUID, question) or after
    zoned("since", since)
    zoned("until", until)
    found = await tenant.history.page(
        since, until, state=in_state, task=task, queue=queue, after=after, limit=limit + 1
    )
    return make_page(found, limit, lambda job: job.id, question)


_UNCHANGED = ResponseSpec(
    data_container=None, description="The job is as `If-None-Match` says", generate_examples=False
)


@get(
    "/v1/jobs/{job_id:uuid}", policy=VIEWER, summary="Get a job",
    responses={304: _UNCHANGED},
)  # fmt: skip
async def get_job(tenant: TenantDep, request: RotaRequest, job_id: FromPath[UUID]) -> Response[Job]:
    job = await tenant.jobs.get(job_id)
    tag = _tag_of(job)
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
    """Explain why the job is not running, or what it does."""
    return await tenant.jobs.explain(job_id)


@post("/v1/jobs/{job_id:uuid}/cancel", policy=OPERATOR, summary="Cancel a job", status_code=200)
async def cancel_job(tenant: TenantDep, job_id: FromPath[UUID]) -> Cancelled:
    return await tenant.jobs.cancel(job_id)


@post("/v1/jobs/{job_id:uuid}/retry", policy=OPERATOR, summary="Retry a job", status_code=200)
async def retry_job(tenant: TenantDep, job_id: FromPath[UUID]) -> Accepted:
    """Run a failed job, or one that waits for its next retry, now. Its attempts are counted anew."""
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
    given = msgspec.structs.asdict(data)
    options = {name: given.pop(name) for name in ("limit", "dry_run")}
    wanted = JobFilter.of(states=given.pop("state"), **given)
    return await tenant.jobs.change_matching(action, wanted, **options)


def zoned(field: str, moment: datetime | None) -> datetime | None:
    if moment is not None and moment.tzinfo is None:
        raise Problem(
            400, "invalid", f"{field}: needs a time zone, such as 2027-01-31T09:00:00Z",
            fields={field: "has no time zone"},
        )  # fmt: skip
    return moment


ROUTES = [
    submit_job,
    list_jobs,
    get_job,
    get_result,
    get_attempts,
    explain_job,
    cancel_job,
    retry_job,
    discard_job,
    cancel_jobs,
    retry_jobs,
    list_whole_jobs,
    list_ended_jobs,
]
