"""Whether a node is alive (`/healthz`), and whether it does its work (`/readyz`), for probes.

Alive: the event loop turns, which an answer shows by itself, and the heartbeat's thread turns. It says
nothing of the database: a node that waits for its database must not be killed for it. Ready: the
database has confirmed the last heartbeat, the node is registered, and each of its roles does its work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Check(msgspec.Struct, frozen=True):
    """One thing that has to be so."""

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
    """What can be probed: a node."""

    def health(self) -> Report: ...

    def readiness(self) -> Report: ...


def check(name: str, ok: bool, reason: str) -> Check:
    return Check(name, ok, "" if ok else reason)
