"""How an attempt is written into its job's list of attempts."""

from __future__ import annotations

from uuid import UUID

import msgspec

from rota.model import Failure, OutcomeKind


def attempt_entry(
    number: int, kind: OutcomeKind, token: int, node: UUID, failure: Failure | None
) -> str:
    """JSON; the database adds the moments."""
    entry: dict[str, object] = {
        "number": number, "outcome": kind.label, "token": token, "node": str(node),
    }  # fmt: skip
    if failure is not None:
        entry["error"] = failure
    return _text(entry)


def encode_failure(failure: Failure | None) -> str | None:
    return None if failure is None else _text(failure)


def _text(value: object) -> str:
    # PostgreSQL's jsonb has no NUL; a message with one must not cost us the outcome.
    return msgspec.json.encode(value).decode().replace("\\u0000", "\\ufffd")
