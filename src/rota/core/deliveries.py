"""Signed messages over HTTP: who sent this, when, and is it the same as one before?

Three forms, each an HMAC with SHA-256:

rota    `Rota-Signature: t=SECONDS,v1=HEX` over `SECONDS.DELIVERY.BODY`; `Rota-Delivery` is the id.
stripe  `Stripe-Signature: t=SECONDS,v1=HEX` over `SECONDS.BODY`; the field `id` of the body is the id.
github  `X-Hub-Signature-256: sha256=HEX` over the body; `X-GitHub-Delivery` is the id.

GitHub signs neither a moment nor the id: who sees a request can send it again under another id.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, get_args

import msgspec

from rota.errors import RotaError
from rota.signing import SIGNATURE_HEADER

Form: TypeAlias = Literal["rota", "github", "stripe"]
FORMS: tuple[str, ...] = get_args(Form)
DELIVERY_HEADER = "Rota-Delivery"
WINDOW = 300  # seconds that a signature is good for, before and after its moment
_LONGEST_ID = 200
_SIGNATURES = {
    "rota": SIGNATURE_HEADER.lower(), "github": "x-hub-signature-256", "stripe": "stripe-signature",
}  # fmt: skip
_SECRET_HEADERS = frozenset({*_SIGNATURES.values(), "x-hub-signature", "x-api-key", "x-auth-token"})


class Refused(RotaError):
    """Raised when a message is not signed as it should be, or has no id."""


class _Event(msgspec.Struct):
    id: str


def check_signed(form: str, headers: Mapping[str, str]) -> None:
    """Refuse a request that is not signed at all, before its body is read."""
    if not headers.get(_SIGNATURES[form]):
        raise Refused(f"the header {_SIGNATURES[form]} is missing")


def check_delivery(
    form: str, secrets: Sequence[str], headers: Mapping[str, str], body: bytes, now: float
) -> str:
    """Return the id of a message that one of the secrets has signed. `headers`: by lower-case name."""
    given = headers.get(_SIGNATURES[form], "")
    if form == "github":
        _check_digest(secrets, body, [given.removeprefix("sha256=")])
        return _id(headers.get("x-github-delivery", ""), "the header X-GitHub-Delivery")
    fields = [part.partition("=")[::2] for part in given.split(",")[:10]]
    moment = next((value for name, value in fields if name.strip() == "t"), "")
    if not (moment.isascii() and moment.isdecimal() and len(moment) < 16):
        raise Refused("the signature has no moment: t=SECONDS")
    if abs(now - int(moment)) > WINDOW:
        raise Refused(f"the signature is more than {WINDOW} seconds old, or of the future")
    digests = [value for name, value in fields if name.strip() == "v1"]
    if form == "stripe":
        _check_digest(secrets, f"{moment}.".encode() + body, digests)
        try:
            return _id(msgspec.json.decode(body, type=_Event).id, "the field id")
        except msgspec.MsgspecError:
            raise Refused("the body is no object with a field id") from None
    delivery = _id(headers.get(DELIVERY_HEADER.lower(), ""), f"the header {DELIVERY_HEADER}")
    _check_digest(secrets, f"{moment}.{delivery}.".encode() + body, digests)
    return delivery


def _check_digest(secrets: Sequence[str], signed: bytes, digests: Sequence[str]) -> None:
    for secret in secrets:
        own = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest().encode()
        if any(hmac.compare_digest(own, digest.strip().encode()) for digest in digests):
            return
    raise Refused("the signature is not made with a secret of this trigger")


def _id(text: str, where: str) -> str:
    if not 1 <= len(text) <= _LONGEST_ID or not text.isprintable():
        raise Refused(f"{where} must be the message's id, of 1 to {_LONGEST_ID} characters")
    return text


def kept_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that a filter may look at: `X-...` and the content type, without signatures."""
    kept = {}
    for name, value in headers.items():
        known = name == "content-type" or name.startswith(("x-", "ce-"))
        if known and name not in _SECRET_HEADERS and not name.startswith("x-forwarded"):
            kept[name] = value[:1_000].replace("\0", "\ufffd")
        if len(kept) == 30:
            break
    return kept
