"""Decides which set of declared schedules is in force.

An application declares a set of schedules; releases of it declare different sets, and nodes of several
releases may start in any order. A set that another one has superseded isn't put back by a node that
happens to start later, unless its release is newer than all before, or a user forces it.
Releases that aren't versions have no order, and are treated like those that have no name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

import msgspec

Verdict = Literal["apply", "older_release", "superseded", "other_application"]


class Declaration(msgspec.Struct, frozen=True):
    """A set that was stored, by its digest; the one that was stored last is in force."""

    digest: str
    release: str
    declared_at: datetime


def decide(digest: str, release: str, history: Sequence[Declaration]) -> Verdict:
    """Decide whether a set replaces what is in force. `history` has the newest first."""
    if not history or history[0].digest == digest:
        return "apply"
    if release and all(is_newer(release, known.release) for known in history if known.release):
        return "apply"
    if release and history[0].release and is_newer(history[0].release, release):
        return "older_release"
    if any(known.digest == digest for known in history):
        return "superseded"
    return "apply"


def are_related(declared: Iterable[tuple[str, str]], in_force: Iterable[tuple[str, str]]) -> bool:
    """Return whether two sets look like releases of one application: they share a schedule or a task.

    Both are pairs of a schedule's name and its task's.
    """
    ours, theirs = list(declared), list(in_force)
    names = {name for name, _ in ours} & {name for name, _ in theirs}
    tasks = {task for _, task in ours} & {task for _, task in theirs}
    return bool(names or tasks) or not ours or not theirs


def is_newer(one: str, other: str) -> bool:
    """Return whether both are versions and the first is higher: 1.10 is newer than 1.9 and 1.10rc1."""
    higher, lower = _version(one), _version(other)
    return higher is not None and lower is not None and higher > lower


# A commit's hash, for one, isn't a version: its digits say nothing about its age.
_VERSION = re.compile(r"(?:[^\W\d_]+[-_/])*v?(?P<numbers>\d+(?:[._-].*)?)(?:\+.*)?", re.IGNORECASE)
_WORD, _END, _NUMBER = 1, 2, 4
_RANKED_WORDS = {"dev": 0, "post": 3}


def _version(release: str) -> list[tuple[int, int, str]] | None:
    """Return comparable parts: a word (rc1) comes before the end, `post` and a number after it."""
    if (found := _VERSION.fullmatch(release)) is None:
        return None
    parts = re.findall(r"\d+|[^\W\d_]+", found["numbers"].partition("+")[0].lower())
    ranked = [(_END, 0, "")]
    for part in reversed(parts):
        if not part.isdecimal():
            ranked.append((_RANKED_WORDS.get(part, _WORD), 0, part))
        elif int(part) or ranked[-1][0] == _NUMBER:  # 1.10.0 is 1.10
            ranked.append((_NUMBER, int(part), ""))
    return ranked[::-1]
