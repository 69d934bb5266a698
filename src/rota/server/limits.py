"""What a JSON body may be, judged before anything is built of it.

A parser recurses into what it reads, PostgreSQL can't store a NUL, and half a surrogate pair is no
text. None of that gets further than this.
"""

from __future__ import annotations

import re

from rota.core.arguments import has_nul, json_depth
from rota.server.problems import Problem

# Text in which every escaped half of a surrogate pair has its other half beside it. Possessive: a byte
# is looked at once.
_WHOLE_PAIRS = re.compile(
    rb"(?:[^\\]++"
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\u(?![dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|\\[^u])*+\\?",
    re.DOTALL,
)


def has_half_surrogate(body: bytes) -> bool:
    """Whether a string holds a half that isn't beside its other half."""
    if b"\\ud" not in body and b"\\uD" not in body:
        return False
    return _WHOLE_PAIRS.fullmatch(body) is None


def check_json(body: bytes, max_depth: int) -> None:
    """Refuses what is nested too deeply, or isn't storable text."""
    # Cheap first: there can't be more levels than opening brackets.
    if body.count(b"[") + body.count(b"{") > max_depth and (depth := json_depth(body)) > max_depth:
        raise Problem(
            400, "too-deep", f"the body is nested {depth} levels deep, the limit is {max_depth}"
        )
    if has_nul(body) or b"\0" in body:
        raise Problem(
            400, "nul", "a string in the body holds a NUL character, which can't be stored"
        )
    if has_half_surrogate(body):
        raise Problem(400, "not-text", "a string in the body holds half a surrogate pair")
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Problem(
            400, "not-text", f"the body is not UTF-8: byte {error.start} can't be read"
        ) from None
