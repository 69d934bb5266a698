"""What a JSON body may be, judged before anything is built of it.

A parser recurses into what it reads, PostgreSQL can't store a NUL, and half a surrogate pair is no
text. None of that gets further than this.
"""

from __future__ import annotations

import re
from itertools import accumulate

from rota.core.arguments import has_nul
from rota.server.problems import Problem

_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = [0] * 256
for _opening in b"[{":
    _STEPS[_opening] = 1
for _closing in b"]}":
    _STEPS[_closing] = -1

# Half a pair: a high one that no low one follows, or a low one that no high one precedes. Pairs of
# backslashes before are text about it.
_ESCAPES = re.compile(rb"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)


def depth_of(body: bytes) -> int:
    """How deeply arrays and objects are nested. In a few passes at the speed of C."""
    brackets = _STRINGS.sub(b"", body).translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def has_half_surrogate(body: bytes) -> bool:
    if b"\\ud" not in body and b"\\uD" not in body:
        return False
    high_ends_at = None
    for escape in _ESCAPES.finditer(body):
        unit = int(escape[1], 16) if escape[1] else 0
        if high_ends_at is not None:
            if escape.start() != high_ends_at or not 0xDC00 <= unit <= 0xDFFF:
                return True
            high_ends_at = None
        elif 0xD800 <= unit <= 0xDBFF:
            high_ends_at = escape.end()
        elif 0xDC00 <= unit <= 0xDFFF:
            return True
    return high_ends_at is not None


def check_json(body: bytes, max_depth: int) -> None:
    """Refuses what is nested too deeply, or isn't storable text."""
    # Cheap first: there can't be more levels than opening brackets.
    if body.count(b"[") + body.count(b"{") > max_depth and (depth := depth_of(body)) > max_depth:
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
