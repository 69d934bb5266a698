"""Makes outcomes of handlers' results."""

from __future__ import annotations

from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

import msgspec

from rota.core.codec import encode_hook
from rota.lib.encryption import ENVELOPE_BYTES
from rota.model import RESULT_DROPPED, Failure, Outcome, OutcomeKind

_SUCCEEDED = Outcome.succeeded()
_NEVER_RUN = (CoroutineType, GeneratorType, AsyncGeneratorType)


def encode_result(value: Any, limit: int) -> Outcome:
    """Make an outcome of a result. A result that can't be kept is dropped, and the outcome says so.

    Failing the attempt instead would repeat its effects.
    """
    if value is None:
        return _SUCCEEDED
    if isinstance(value, Outcome):
        return value  # of a task of our own, which knows more than a result
    try:
        encoded = msgspec.json.encode(value, enc_hook=encode_hook)
    except Exception as error:  # noqa: BLE001 - user types may raise anything
        if isinstance(value, _NEVER_RUN):
            return _never_run(value)
        return result_dropped(f"the result can't be written as JSON: {error}")
    if len(encoded) > limit:
        return result_dropped(f"the result has {len(encoded):,} bytes, the limit is {limit:,}")
    return Outcome.succeeded(told_apart(encoded))


def _never_run(value: Any) -> Outcome:
    """Fail an attempt that did no work, such as by a decorator that isn't a coroutine itself."""
    if isinstance(value, CoroutineType):
        value.close()  # or Python would warn that it was never awaited
    message = (
        f"the task returned a {type(value).__name__} that nothing runs; is it wrapped by a decorator "
        "that isn't a coroutine? Await it, or return what it gives"
    )
    return Outcome(OutcomeKind.RAISED, failure=Failure("NeverRun", message), fatal=True)


def told_apart(result: bytes) -> bytes:
    """Put a space before a result that looks encrypted and isn't, so that it isn't taken for that."""
    return b" " + result if result.startswith(ENVELOPE_BYTES) else result


def result_dropped(reason: str) -> Outcome:
    return Outcome(OutcomeKind.SUCCEEDED, failure=Failure(RESULT_DROPPED, reason))
