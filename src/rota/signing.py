"""Signatures by which receivers recognise requests of Rota: an HMAC over the moment and the content.

Webhooks sign their body. Pushes to endpoints also sign whose push it is (job, token, attempt, task):
a receiver that refuses stale tokens must be able to trust the token.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

import msgspec

SIGNATURE_HEADER = "Rota-Signature"
JOB_HEADER = "Rota-Job"
TOKEN_HEADER = "Rota-Token"  # noqa: S105 - a name
ATTEMPT_HEADER = "Rota-Attempt"
TASK_HEADER = "Rota-Task"

_TOLERANCE = 300.0


class Push(msgspec.Struct, frozen=True):
    """The job and attempt of a push. `token` rises with every try of the job: refuse lower ones."""

    job: str
    token: int
    attempt: int
    task: str

    @property
    def headers(self) -> dict[str, str]:
        return {
            JOB_HEADER: self.job, TOKEN_HEADER: str(self.token), ATTEMPT_HEADER: str(self.attempt),
            TASK_HEADER: self.task,
        }  # fmt: skip

    def signed(self, body: bytes) -> bytes:
        """Return what is signed besides the moment."""
        return f"{self.job}.{self.token}.{self.attempt}.{self.task}.".encode() + body


def sign(secret: str, body: bytes, at: int) -> str:
    """Return the header's value. `at`: seconds since 1970."""
    return f"t={at},v1={_digest(secret, body, at)}"


def sign_message(secret: str, delivery: str, body: bytes, at: int) -> str:
    """Return the signature of a message to a trigger, for senders: `delivery` is the id of the message,
    which the header `Rota-Delivery` has; `at` is now, in seconds since 1970.
    """
    return sign(secret, f"{delivery}.".encode() + body, at)


def verify(
    secret: str, header: str, body: bytes, now: float, tolerance: float = _TOLERANCE
) -> bool:
    """Return whether this body was signed with this secret, not long before or after `now`.

    For receivers. Pass the body as it came, before it is parsed.
    """
    fields = dict(part.partition("=")[::2] for part in header.split(","))
    moment, digest = fields.get("t", ""), fields.get("v1", "")
    if not _is_number(moment):
        return False
    if abs(now - int(moment)) > tolerance:
        return False
    return hmac.compare_digest(_digest(secret, body, int(moment)).encode(), digest.encode())


def verify_push(
    secret: str, headers: Mapping[str, str], body: bytes, now: float, tolerance: float = _TOLERANCE
) -> Push | None:
    """Return whose push this is, if it is signed with this secret and not old; else None.

    For receivers. `headers`: those of the request, however their names are written.
    """
    given = {name.lower(): value for name, value in headers.items()}
    token, attempt = given.get(TOKEN_HEADER.lower(), ""), given.get(ATTEMPT_HEADER.lower(), "")
    if not (_is_number(token) and _is_number(attempt)):
        return None
    push = Push(
        given.get(JOB_HEADER.lower(), ""), int(token), int(attempt),
        given.get(TASK_HEADER.lower(), ""),
    )  # fmt: skip
    signature = given.get(SIGNATURE_HEADER.lower(), "")
    return push if verify(secret, signature, push.signed(body), now, tolerance) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 20


def _digest(secret: str, body: bytes, at: int) -> str:
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
