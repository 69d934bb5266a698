"""Which set of schedules that code declares is in force: pure decisions.

An application declares a set of schedules; releases of it declare different sets, and nodes of several
releases may start in any order. A set that another one has superseded isn't put back by a node that
happens to start later, unless its release says that it is newer than all before, or a person says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

Verdict = Literal["apply", "older_release", "superseded"]


class Declaration(msgspec.Struct, frozen=True):
    """A set that was brought, by its digest; the one that was brought last is in force."""

    digest: str
    release: str
    declared_at: datetime


def decide(digest: str, release: str, history: Sequence[Declaration]) -> Verdict:
    """Whether a set replaces what is in force. `history` has the newest first."""
    if not history or history[0].digest == digest:
        return "apply"
    if release and all(is_newer(release, known.release) for known in history if known.release):
        return "apply"
    if release and history[0].release and is_newer(history[0].release, release):
        return "older_release"
    if any(known.digest == digest for known in history):
        return "superseded"
    return "apply"


def is_newer(one: str, other: str) -> bool:
    """Numbers in releases are compared as numbers: 1.10 is newer than 1.9."""
    return _parts(one) > _parts(other)


def _parts(release: str) -> list[tuple[int, int, str]]:
    found = re.findall(r"\d+|[^\W\d_]+", release)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in found]
