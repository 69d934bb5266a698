"""Answers of relays, as a worker reads them. A newer relay may say more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec


class Registered(msgspec.Struct):
    heartbeat_seconds: float
    lease_seconds: float


class Held(msgspec.Struct):
    job: UUID
    token: int


class HeartbeatAnswer(msgspec.Struct):
    cancel: Sequence[Held]
    lost: Sequence[Held]
    heartbeat_seconds: float
    lease_seconds: float


class Offer(msgspec.Struct, kw_only=True):
    job: UUID
    token: int
    task: str
    payload: msgspec.Raw
    attempt: int
    max_attempts: int
    guarantee: str
    timeout: float | None
    due_at: datetime
    key: str | None
    headers: msgspec.Raw
    go: bool = False  # it may start without `begin`


class Claimed(msgspec.Struct):
    jobs: Sequence[Offer]
    cancel: Sequence[Held]
    seen: int


class BeginAnswer(msgspec.Struct):
    go: Sequence[Held]
