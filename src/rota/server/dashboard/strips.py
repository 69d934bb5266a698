"""The history of a schedule as a strip: a cell for each occurrence, with a word and a shape. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rota.core.time.plan import REASONS
from rota.model import State
from rota.operations.ledger import OccurrenceStatus, to_occurrence
from rota.server.dashboard.words import NOTHING

_LATE = 10.0  # seconds after which a start is called late
_KINDS = {"failed": "failed", "cancelled": "cancelled", "skipped": "skipped", "running": "running",
          "ready": "ready", "waiting": "waiting", "scheduled": "scheduled"}  # fmt: skip
SHAPES = {"on time": "✓", "late": "◷", "failed": "✕", "skipped": NOTHING, "running": "▶", "ready": "▷",
          "waiting": "◔", "scheduled": "○", "cancelled": "⊘", "gone": "·"}  # fmt: skip


class Cell(msgspec.Struct, frozen=True):
    """An occurrence: `kind` is one of the keys of SHAPES."""

    due_at: datetime
    kind: str
    why: str
    job_id: UUID | None
    occurrence: OccurrenceStatus

    @property
    def css(self) -> str:
        return self.kind.replace(" ", "-")

    @property
    def shape(self) -> str:
        return SHAPES.get(self.kind, "·")

    @property
    def told(self) -> str:
        """For those who don't see colours."""
        moment = f"{self.due_at:%Y-%m-%d %H:%M:%S} UTC"
        return f"{moment}: {self.kind}" + (f", {self.why}" if self.why else "")


def to_cells(rows: Sequence[Any]) -> list[Cell]:
    return [_to_cell(to_occurrence(row)) for row in rows]


def _to_cell(one: OccurrenceStatus) -> Cell:
    kind, why = judge(one)
    return Cell(one.due_at, kind, why, one.job_id, one)


def judge(one: OccurrenceStatus) -> tuple[str, str]:
    """What became of it, and why."""
    why = REASONS.get(one.reason or "", (one.reason or "").replace("_", " "))
    if one.state == "skipped":
        return "skipped", why
    if one.job_state is None:
        return "gone", "its job's retention is over"
    if one.job_state != State.SUCCEEDED.label:
        return _KINDS.get(one.job_state, one.job_state), why
    if one.lag is not None and one.lag > _LATE and one.reason != "backfilled":
        return "late", f"started {one.lag:,.0f} s after it was due"
    return "on time", "caught up" if one.caught_up and not why else why
