"""Reports of attempts that an endpoint answered with 202. See `rota.operations.endpoint_callbacks`.

The route needs no token, but the key that the push carried, which is valid for one attempt of one job. A
wrong key gets the same answer whether there is such a job or not.
"""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

import msgspec
from litestar import post
from litestar.params import FromPath
from msgspec import Meta

from rota.errors import NotFound
from rota.lib.encryption import Encryptor, mark_unencrypted
from rota.operations.endpoint_callbacks import KEY_HEADER, read_key
from rota.server.api.bodies import decode_body, describe_body
from rota.server.context import ServerContext
from rota.server.policy import PUBLIC
from rota.server.problems import Problem
from rota.server.requests import ContextDep, RotaRequest
from rota.store.endpoints import EndpointStore, Reported

_NULL = msgspec.Raw(b"null")


class CallbackRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The outcome of an attempt. Of a failure: `error` is its message; `fatal` prevents a retry;
    `retry_after` is the seconds until the retry (default: by the task's policy)."""

    outcome: Literal["succeeded", "failed"] = "succeeded"
    result: Annotated[msgspec.Raw, Meta(description="Any JSON.", extra_json_schema={})] = (
        msgspec.field(default_factory=lambda: _NULL)
    )
    error: Annotated[str, Meta(max_length=2_000)] = ""
    fatal: bool = False
    retry_after: Annotated[float, Meta(ge=0, le=86_400)] | None = None


class CallbackAccepted(msgspec.Struct, frozen=True):
    """The report was stored. The same report again gets the same answer."""

    id: UUID
    outcome: Literal["succeeded", "failed"]


_decoder = msgspec.json.Decoder(CallbackRequest)
_CallbackOperation = describe_body(
    CallbackRequest,
    {"name": KEY_HEADER, "required": True, "schema": {"type": "string"},
     "description": "The key that the push carried."},
)  # fmt: skip


@post(
    "/v1/jobs/{job_id:uuid}/callback", policy=PUBLIC, status_code=200,
    summary="Report how a pushed job ended", operation_class=_CallbackOperation,
    description="For endpoints that answered a push with 202. It needs no token, but the key that the "
    "push carried. 409: the attempt is over, or another outcome was reported before.",
)  # fmt: skip
async def take_callback(
    request: RotaRequest, context: ContextDep, job_id: FromPath[UUID]
) -> CallbackAccepted:
    store = EndpointStore(context.database)
    key = request.headers.get(KEY_HEADER.lower(), "")
    # Before the body is read, so that a request without a key costs little.
    token = read_key(await store.callback_secret(), job_id, key)
    if token is None:
        raise NotFound(f"no attempt of job {job_id} has this key: send the push's {KEY_HEADER}")
    request.trust_body()
    report = await decode_body(request, _decoder)
    reported = Reported(
        report.outcome == "succeeded", report.error, report.fatal, report.retry_after
    )
    result, dropped = _result(report, context.settings.max_result_bytes)
    encryptor = _encryptor_of(context, await store.attempt_place(job_id, token), job_id)
    if encryptor is not None:
        reported = msgspec.structs.replace(
            reported, message=encryptor.text("error", reported.message)
        )
        result = None if result is None else encryptor.json("result", result).encode()
        dropped = None if dropped is None else encryptor.text("error", dropped)
    elif result is not None:
        result = mark_unencrypted(result)
    if not await store.take_callback(job_id, token, reported, result, dropped):
        await _check_the_same(store, job_id, token, reported)
    return CallbackAccepted(job_id, report.outcome)


def _encryptor_of(
    context: ServerContext, place: tuple[str, bool] | None, job: UUID
) -> Encryptor | None:
    """Return the encryptor of a job whose payload is encrypted."""
    if place is None or not place[1]:
        return None
    encryption = context.tenant(place[0]).connector.encryption
    if encryption.ring is None:
        raise Problem(
            503,
            "key-missing",
            "this job is encrypted, and this server has no key: send the report to another",
        )
    return encryption.for_job(job)


async def _check_the_same(store: EndpointStore, job: UUID, token: int, reported: Reported) -> None:
    before = (await store.find_callbacks([(job, token)])).get((job, token))
    if before is None:
        raise Problem(
            409, "stale",
            f"this attempt of job {job} is over: it timed out, was cancelled, or its node was lost and "
            "another attempt has the job. Its report is ignored",
        )  # fmt: skip
    if before.succeeded != reported.succeeded:
        ended = "succeeded" if before.succeeded else "failed"
        raise Problem(409, "reported", f"this attempt of job {job} was reported before, as {ended}")


def _result(report: CallbackRequest, limit: int) -> tuple[bytes | None, str | None]:
    """Return the result, or why it can't be stored: the job has succeeded all the same."""
    if report.outcome == "failed":
        return None, None
    try:
        value = msgspec.json.decode(report.result)
    except (msgspec.DecodeError, RecursionError) as error:
        return None, f"the result can't be kept: {error}"
    encoded = None if value is None else msgspec.json.encode(value)
    if encoded is not None and len(encoded) > limit:
        return None, f"the result has {len(encoded):,} bytes, the limit is {limit:,}"
    return encoded, None


ROUTES = [take_callback]
