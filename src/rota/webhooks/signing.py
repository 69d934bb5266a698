"""How a receiver knows that a delivery is ours and new: an HMAC over the moment and the body."""

from __future__ import annotations

import hashlib
import hmac

SIGNATURE_HEADER = "Rota-Signature"
_TOLERANCE = 300.0


def sign(secret: str, body: bytes, at: int) -> str:
    """The header's value. `at`: seconds since 1970."""
    return f"t={at},v1={_digest(secret, body, at)}"


def verify(
    secret: str, header: str, body: bytes, now: float, tolerance: float = _TOLERANCE
) -> bool:
    """Whether this body was signed with this secret, not long before or after `now`.

    For receivers. Pass the body as it came, before it is parsed.
    """
    fields = dict(part.partition("=")[::2] for part in header.split(","))
    moment, digest = fields.get("t", ""), fields.get("v1", "")
    if not (moment.isascii() and moment.isdecimal() and len(moment) < 16):
        return False
    if abs(now - int(moment)) > tolerance:
        return False
    return hmac.compare_digest(_digest(secret, body, int(moment)).encode(), digest.encode())


def _digest(secret: str, body: bytes, at: int) -> str:
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
