"""The submit that hooks see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from rota.core.payloads import Limits, encode_payload

HEADER_LIMITS = Limits(16_384, 64)


class Submission(msgspec.Struct):
    """A submit that is about to happen, for `App.on_submit`."""

    task: str  # or the name of the workflow that is started
    headers: dict[str, Any]  # travel with the job; a hook may add to them
    is_run: bool = False  # whether it starts a run of a workflow or of a durable function


SubmitHook: TypeAlias = Callable[[Submission], None]


def apply_hooks(
    hooks: Sequence[SubmitHook], task: str, headers: Any, *, is_run: bool = False
) -> Any:
    """Call hooks, and return the headers as they are to be stored: JSON, or None."""
    submission = Submission(task, msgspec.json.decode(headers) if headers else {}, is_run)
    for hook in hooks:
        hook(submission)
    if not submission.headers:
        return None
    return msgspec.Raw(encode_payload(submission.headers, HEADER_LIMITS, task, "headers field"))
