"""Reports on a node for probes: whether it is alive (`/healthz`) and does its work (`/readyz`).

Alive: the event loop runs, which an answer shows by itself, and the heartbeat's thread runs. It doesn't
depend on the database: a node that waits for its database must not be killed for it. Ready: the
database has confirmed the last heartbeat, the node is registered, and each of its roles does its work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Check(msgspec.Struct, frozen=True):
    """One condition."""

    name: str
    ok: bool
    reason: str = ""


class Report(msgspec.Struct, frozen=True):
    """All checks of one probe."""

    ok: bool
    roles: tuple[str, ...]
    checks: Sequence[Check]

    @classmethod
    def of(cls, roles: tuple[str, ...], checks: Sequence[Check]) -> Report:
        return cls(all(check.ok for check in checks), roles, checks)


class Probed(Protocol):
    """A node, as probes see it."""

    def health(self) -> Report: ...

    def readiness(self) -> Report: ...


def check(name: str, ok: bool, reason: str) -> Check:
    return Check(name, ok, "" if ok else reason)
