"""A forecast as a grid of days and hours."""

from __future__ import annotations

from datetime import date
from zoneinfo import ZoneInfo

import msgspec

from rota.core.durations import format_duration
from rota.core.time.forecast import Forecast


class Cell(msgspec.Struct):
    """An hour: runs due, share of all slots that is busy, longest wait in seconds."""

    due: int = 0
    share: float = 0.0
    waited: float = 0.0


class Day(msgspec.Struct):
    date: date
    cells: list[Cell | None]  # None: before the start, after the end, or an hour that isn't

    @property
    def due(self) -> int:
        return sum(cell.due for cell in self.cells if cell is not None)


class Grid(msgspec.Struct, frozen=True):
    days: list[Day]


class Chart(msgspec.Struct, frozen=True):
    found: Forecast
    grid: Grid
    slots: int
    tz: str

    def summary(self) -> str:
        found = self.found
        if not found.peak:
            return "nothing is due"
        at = found.peak.start.astimezone(ZoneInfo(self.tz))
        told = (
            f"{found.runs:,} runs on {self.slots:,} slot{'' if self.slots == 1 else 's'}, "
            f"{found.use:.1%} busy on average; "
            f"the busiest hour is {at:%a %Y-%m-%d %H:%M} "
            f"({found.peak.busy / (self.slots * 3600):.0%})"
        )
        if not found.pile_ups:
            return f"{told}; nothing waits"
        count = len(found.pile_ups)
        piles = "1 pile-up" if count == 1 else f"{count:,} pile-ups"
        return f"{told}; {piles}, the longest wait {format_duration(found.max_wait)}"


def make_grid(found: Forecast, slots: int, tz: ZoneInfo) -> Grid:
    """The buckets (of an hour) by the day and hour of a zone. An hour that comes twice is one cell."""
    days: dict[date, Day] = {}
    for bucket in found.buckets:
        local = bucket.start.astimezone(tz)
        day = days.setdefault(local.date(), Day(local.date(), [None] * 24))
        cell = day.cells[local.hour] or Cell()
        cell.due += bucket.due
        cell.share = max(cell.share, bucket.busy / (slots * 3600))
        cell.waited = max(cell.waited, bucket.waited)
        day.cells[local.hour] = cell
    return Grid([days[key] for key in sorted(days)])
