"""Payloads: the limits of what is stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import msgspec

from rota.core.json_values import check_numbers, encode_values, whose
from rota.errors import InvalidArguments, PayloadTooLarge
from rota.lib.encryption import ENVELOPE_BYTES

# A string, or what is left of one that doesn't end: each byte is looked at once, whatever comes. With
# the closing quote required, a body of escaped quotes would be scanned again from each of them.
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
# An odd number of backslashes before u0000 makes it an escape; an even one is text about it.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*+\\u0000")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = [0] * 256
for _opening in b"[{":
    _STEPS[_opening] = 1
for _closing in b"]}":
    _STEPS[_closing] = -1


class Limits(msgspec.Struct, frozen=True):
    payload_bytes: int
    payload_depth: int


def encode_payload(
    values: Mapping[str, Any], limits: Limits, task: str, what: str = "payload"
) -> bytes:
    """Encode values as JSON, or refuse them with an error that names the task."""
    payload = encode_values(values, task, what)
    check_payload(payload, limits, task, what)
    check_numbers(payload, values, task, what)
    return payload


def check_payload(payload: bytes, limits: Limits, task: str, what: str = "payload") -> None:
    """Refuse what is too large, too deep, or can't be stored."""
    if len(payload) > limits.payload_bytes:
        raise PayloadTooLarge(
            f"{whose(task, what)}: its {what} has {len(payload):,} bytes, the limit is "
            f"{limits.payload_bytes:,}. Store large data elsewhere and pass a reference"
        )
    # Cheap first: there can't be more levels than opening brackets.
    if payload.count(b"[") + payload.count(b"{") > limits.payload_depth:
        depth = json_depth(payload)
        if depth > limits.payload_depth:
            raise PayloadTooLarge(
                f"{whose(task, what)}: its {what} is nested {depth} levels deep, the limit is "
                f"{limits.payload_depth}"
            )
    if payload.startswith(ENVELOPE_BYTES):
        raise InvalidArguments(
            f'{whose(task, what)}: its {what} begins with the name "$rota-encrypted", which is '
            "Rota's own"
        )
    if has_nul(payload):
        raise InvalidArguments(
            f"{whose(task, what)}: a string in its {what} holds a NUL character, which PostgreSQL "
            "can't store"
        )


def json_depth(payload: bytes) -> int:
    """Return how deeply arrays and objects are nested, in linear time and without building them."""
    brackets = _STRINGS.sub(b"", payload).translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets), initial=0))


def has_nul(payload: bytes) -> bool:
    """Return whether a string in this JSON holds a NUL character."""
    return b"\\u0000" in payload and _NUL.search(payload) is not None
