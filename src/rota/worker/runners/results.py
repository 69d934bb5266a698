"""Calls plain functions, and makes outcomes of what handlers return."""

from __future__ import annotations

from time import monotonic
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

import msgspec

from rota.context import SyncContext
from rota.core.codec import encode_hook
from rota.errors import JobStopped
from rota.lib.encryption import ENVELOPE_BYTES
from rota.model import RESULT_DROPPED, Failure, Outcome, OutcomeKind
from rota.store.sync_effects import SyncEffects, TransactionTerms
from rota.worker.runners.failures import message_of

_SUCCEEDED = Outcome.succeeded()
_NEVER_RUN = (CoroutineType, GeneratorType, AsyncGeneratorType)


def call_in_transaction(
    effects: SyncEffects, task: Any, payload: bytes, context: SyncContext, limit: int
) -> Outcome:
    """Call a plain function, and commit what it writes together with the end of its job."""
    answer, job = context._channel.call("transaction", b"null"), context.job
    terms = msgspec.json.decode(answer, type=TransactionTerms)
    began = monotonic()
    with effects.transaction(terms, job.id, job.token) as context._connection:
        outcome = encode_result(task.call(payload, context), limit)
        if outcome.kind is OutcomeKind.SUCCEEDED:
            effects.finish(terms, job.id, job.token, monotonic() - began, outcome.result)
    return outcome


def encode_result(value: Any, limit: int) -> Outcome:
    """Make an outcome of a result. A result that can't be kept is dropped, and the outcome says so.

    Failing the attempt instead would repeat its effects.
    """
    if value is None:
        return _SUCCEEDED
    if isinstance(value, Outcome):
        return value  # of a task of our own, which has more to report than a result
    try:
        encoded = msgspec.json.encode(value, enc_hook=encode_hook)
    except JobStopped:
        raise
    except BaseException as error:  # noqa: BLE001 - user types may raise anything
        if isinstance(value, _NEVER_RUN):
            return _never_run(value)
        reason = f"{type(error).__name__}: {message_of(error)}"
        return result_dropped(f"the result can't be encoded as JSON: {reason}")
    if len(encoded) > limit:
        return result_dropped(
            f"the result has {len(encoded):,} bytes, over max_result_bytes ({limit:,}): "
            "store it elsewhere and return a reference"
        )
    return Outcome.succeeded(mark_unencrypted(encoded))


def _never_run(value: Any) -> Outcome:
    """Fail an attempt that did no work, such as by a decorator that isn't a coroutine itself."""
    if isinstance(value, CoroutineType):
        value.close()  # or Python would warn that it was never awaited
    message = (
        f"the task returned a {type(value).__name__} that nothing runs; is it wrapped by a decorator "
        "that isn't a coroutine? Await it, or return its value"
    )
    return Outcome(OutcomeKind.RAISED, failure=Failure("NeverRun", message), fatal=True)


def mark_unencrypted(result: bytes) -> bytes:
    """Put a space before a result that looks encrypted and isn't, so that it isn't taken for that."""
    return b" " + result if result.startswith(ENVELOPE_BYTES) else result


def result_dropped(reason: str) -> Outcome:
    return Outcome(OutcomeKind.SUCCEEDED, failure=Failure(RESULT_DROPPED, reason))
