"""Conditions of a change: it is made only if the schedule is as the caller saw it."""

from __future__ import annotations

from typing import Any

import msgspec

from rota.core.time.status import schedule_tag
from rota.errors import Conflict, PreconditionFailed


def matches(condition: str | None, tag: str) -> bool:
    """Return whether a list of tags, or `*`, names this one. Weak tags (`W/`) count as strong ones."""
    if condition is None:
        return False
    named = [part.strip().removeprefix("W/") for part in condition.split(",")]
    return "*" in named or tag in named


class Precondition(msgspec.Struct, frozen=True, kw_only=True):
    """`if_match` and `if_none_match` are lists of entity tags, or `*`, as in HTTP. `must_be_new`: there
    must be no schedule of that name."""

    must_be_new: bool = False
    if_match: str | None = None
    if_none_match: str | None = None

    def check(self, name: str, row: Any) -> None:
        """Raise `Conflict` unless the schedule (its locked row, or None) is as it has to be."""
        if row is None:
            if self.if_match is not None:
                raise PreconditionFailed(f"there is no schedule {name!r} to change", subject=name)
            return
        if self.must_be_new:
            raise Conflict(
                f"there is already a schedule {name!r}: change it instead of creating it",
                code="exists", field="name", subject=name,
            )  # fmt: skip
        tag = schedule_tag(row["version"], row["id"])
        if self.if_match is not None and not matches(self.if_match, tag):
            text = (
                f"schedule {name!r} has changed since it was read: read it again and decide again"
            )
        elif matches(self.if_none_match, tag):
            text = f"there is already a schedule {name!r}"
        else:
            return
        error = PreconditionFailed(text, subject=name)
        error.tag = tag
        raise error
