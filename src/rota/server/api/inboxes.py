"""Messages that start jobs, over HTTP: see `rota.worker.sources.inbox`.

The route needs no token, but a signature. A request that is not signed gets the same answer whether
there is such a trigger or not.
"""

from __future__ import annotations

import logging
from typing import Annotated

import msgspec
from litestar import post
from litestar.params import PathParameter, QueryParameter

from rota.core.deliveries import Refused, check_delivery, check_signed, kept_headers
from rota.errors import NotFound
from rota.lib.encryption import TEXT
from rota.lib.ids import new_id
from rota.server.api.bodies import describe_body
from rota.server.policy import PUBLIC
from rota.server.requests import ContextDep, RotaRequest

log = logging.getLogger("rota.triggers")

_MOST_BYTES = 1_048_576
TriggerName = Annotated[str, PathParameter(max_length=100)]
NamespaceName = Annotated[
    str | None, QueryParameter(max_length=100, description="By default the server's own.")
]


class Sent(msgspec.Struct, frozen=True):
    """Any bytes; by default a JSON object with the task's arguments."""


class MessageAccepted(msgspec.Struct, frozen=True):
    """The message is stored, and becomes a job. `repeated`: it was stored before, by its id."""

    delivery: str
    repeated: bool


_TakeOperation = describe_body(
    Sent,
    {"name": "Rota-Signature", "required": False, "schema": {"type": "string"},
     "description": "t=SECONDS,v1=HEX: HMAC with SHA-256 of SECONDS.DELIVERY.BODY."},
    {"name": "Rota-Delivery", "required": False, "schema": {"type": "string"},
     "description": "The sender's id of the message: the same one again is stored once."},
)  # fmt: skip


@post(
    "/v1/triggers/{name:str}/messages", policy=PUBLIC, status_code=202,
    summary="Send a message to a trigger", operation_class=_TakeOperation,
    description="For triggers whose source is http. It needs no token, but a signature by one of the "
    "trigger's secrets: Rota's, Stripe's or GitHub's, as the trigger says. At most 1 MiB.",
)  # fmt: skip
async def take_message(
    request: RotaRequest, context: ContextDep, name: TriggerName, namespace: NamespaceName = None
) -> MessageAccepted:
    space = namespace or context.settings.namespace
    rows = (
        await context.database.fetch("find_inbox", space, name) if "\0" not in space + name else []
    )
    headers = {key.lower(): value for key, value in request.headers.items()}
    try:
        if not rows:
            raise Refused("there is no such trigger")
        form, secrets, now = rows[0]["form"], rows[0]["secrets"], rows[0]["now"]
        check_signed(form, headers)
        request.allow_body(_MOST_BYTES)
        body = await request.raw_body()
        delivery = check_delivery(form, secrets, headers, body, now)
    except Refused as error:
        raise _refuse(name, str(error)) from None
    id = new_id()
    tenant = context.tenant(space)
    encryption = await (await tenant.store()).database.known_encryption()
    if encryption.required:
        body = (TEXT + encryption.for_job(id).token("body", body)).encode()
    kept = msgspec.json.encode(kept_headers(headers)).decode()
    stored = await context.database.fetch(
        "store_message", space, name, delivery, id, body, encryption.required, kept
    )
    if not stored and not await context.database.fetch("find_message", space, name, delivery):
        raise _refuse(name, "it was removed just now")
    return MessageAccepted(delivery, repeated=not stored)


def _refuse(name: str, why: str) -> NotFound:
    """Give the same answer whatever is wrong; the log says what."""
    log.info("a message to trigger %.100r was refused: %s", name, why)
    return NotFound(
        "no trigger takes this message: check its name, the namespace, the secret, the id and the clock"
    )


ROUTES = [take_message]
