"""Reports of attempts that an endpoint answered with 202. See `rota.operations.endpoint_callbacks`.

Public: it needs no token, but the key that the push carried, which is for one attempt of one job. A key
that isn't good is answered in the same way whether there is such a job or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec
from litestar import post
from litestar.params import FromPath
from msgspec import Meta

from rota.errors import NotFound
from rota.lib.encryption import Encryptor
from rota.operations.endpoint_callbacks import KEY_HEADER, read_key
from rota.server.api.bodies import DecodedHere, decode_body, schema_of
from rota.server.context import ServerContext
from rota.server.dependencies import ContextDep
from rota.server.policy import PUBLIC
from rota.server.problems import Problem
from rota.server.requests import RotaRequest
from rota.store.endpoints import EndpointStore, Reported
from rota.worker.runners.results import mark_unencrypted

_NULL = msgspec.Raw(b"null")


class CallbackRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How it ended. The last three are of a failure: its message, whether never to try again, and the
    seconds after which to (else the task's own policy holds)."""

    outcome: Literal["succeeded", "failed"] = "succeeded"
    result: Annotated[msgspec.Raw, Meta(description="Any JSON.", extra_json_schema={})] = (
        msgspec.field(default_factory=lambda: _NULL)
    )
    error: Annotated[str, Meta(max_length=2_000)] = ""
    fatal: bool = False
    retry_after: Annotated[float, Meta(ge=0, le=86_400)] | None = None


class CallbackAccepted(msgspec.Struct, frozen=True):
    """It is written. The same report again gets the same answer."""

    id: UUID
    outcome: Literal["succeeded", "failed"]


@dataclass
class CallbackOperation(DecodedHere):
    body: ClassVar[dict[str, Any]] = {
        "required": True,
        "content": {"application/json": {"schema": schema_of(CallbackRequest)}},
    }

    def to_schema(self) -> dict[str, Any]:
        schema = super().to_schema()
        header = {
            "name": KEY_HEADER, "in": "header", "required": True,
            "description": "As the push carried it.", "schema": {"type": "string"},
        }  # fmt: skip
        schema["parameters"] = [*schema.get("parameters", ()), header]
        return schema


_decoder = msgspec.json.Decoder(CallbackRequest)


@post(
    "/v1/jobs/{job_id:uuid}/callback", policy=PUBLIC, status_code=200,
    summary="Report how a pushed job ended", operation_class=CallbackOperation,
    description="For endpoints that answered a push with 202. It needs no token, but the key that the "
    "push carried. 409: the attempt is over, and another has the job, or it was reported otherwise.",
)  # fmt: skip
async def take_callback(
    request: RotaRequest, context: ContextDep, job_id: FromPath[UUID]
) -> CallbackAccepted:
    store = EndpointStore(context.database)
    key = request.headers.get(KEY_HEADER.lower(), "")
    # Before anything of the body is read: who has no key costs nothing.
    token = read_key(await store.callback_secret(), job_id, key)
    if token is None:
        raise NotFound(f"no attempt of job {job_id} has this key: send the push's {KEY_HEADER}")
    request.trust_body()
    said = await decode_body(request, _decoder)
    reported = Reported(said.outcome == "succeeded", said.error, said.fatal, said.retry_after)
    result, dropped = _result(said, context.settings.max_result_bytes)
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
    return CallbackAccepted(job_id, said.outcome)


def _encryptor_of(
    context: ServerContext, place: tuple[str, bool] | None, job: UUID
) -> Encryptor | None:
    """What is reported of a job whose payload is encrypted is encrypted, too."""
    if place is None or not place[1]:
        return None
    encryption = context.tenants.get(place[0]).connector.encryption
    if encryption.ring is None:
        raise Problem(
            503,
            "key-missing",
            "this job is encrypted, and this server has no key: report to another",
        )
    return encryption.for_job(job)


async def _check_the_same(store: EndpointStore, job: UUID, token: int, reported: Reported) -> None:
    before = (await store.find_callbacks([(job, token)])).get((job, token))
    if before is None:
        raise Problem(
            409, "stale",
            f"this attempt of job {job} is over: it timed out, was cancelled, or its node was lost and "
            "another attempt has the job, under a higher token. What is reported of it no longer counts",
        )  # fmt: skip
    if before.succeeded != reported.succeeded:
        ended = "succeeded" if before.succeeded else "failed"
        raise Problem(409, "reported", f"this attempt of job {job} was reported before, as {ended}")


def _result(said: CallbackRequest, limit: int) -> tuple[bytes | None, str | None]:
    """It was done, so it stays done: a result that can't be kept is left out, and said so."""
    if said.outcome == "failed":
        return None, None
    try:
        value = msgspec.json.decode(said.result)
    except (msgspec.DecodeError, RecursionError) as error:
        return None, f"the result can't be kept: {error}"
    encoded = None if value is None else msgspec.json.encode(value)
    if encoded is not None and len(encoded) > limit:
        return None, f"the result has {len(encoded):,} bytes, the limit is {limit:,}"
    return encoded, None


ROUTES = [take_callback]
