"""A forecast as a grid of days and hours, and that as a picture."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape
from zoneinfo import ZoneInfo

import msgspec

from rota.core.durations import format_duration
from rota.core.time.forecast import Forecast
from rota.errors import ConfigError

_LEVELS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)  # shares of all slots, and their words below
_WORDS = ("idle", "up to 10%", "to 25%", "to 50%", "to 75%", "more")
_CELL_W, _CELL_H, _LEFT, _TOP = 30, 26, 122, 116
_STYLE = """
    .card { fill: #ffffff; stroke: #d0d7de; }
    text { fill: #1f2328; }
    .soft { fill: #57606a; font-size: 13px; }
    .name { font-weight: 600; font-size: 17px; }
    .cell { stroke: #ffffff; stroke-width: 2; }
    .l0 { fill: #eef1f4; } .l1 { fill: #cfe2f3; } .l2 { fill: #9cc3e6; }
    .l3 { fill: #5b9bd5; } .l4 { fill: #2e6da4; } .l5 { fill: #163f66; }
    .waits { fill: none; stroke: #c0392b; stroke-width: 3; }
    .mark { fill: #ffffff; stroke: #c0392b; stroke-width: 2; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #161b22; stroke: #30363d; }
      text { fill: #e6edf3; }
      .soft { fill: #9aa4ae; }
      .cell { stroke: #161b22; }
      .l0 { fill: #21262d; } .l1 { fill: #16324f; } .l2 { fill: #1f4e7d; }
      .l3 { fill: #3577b4; } .l4 { fill: #6ea8dc; } .l5 { fill: #c4def4; }
      .waits { stroke: #ff8573; }
      .mark { fill: #161b22; stroke: #ff8573; }
    }
"""


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


def write_chart(chart: Chart, path: Path) -> None:
    text = svg(chart)
    try:
        if path.suffix == ".png":
            path.write_bytes(_png(text))
        else:
            path.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"{path} can't be written: {error}") from None


def _png(text: str) -> bytes:
    try:
        cairosvg: Any = importlib.import_module("cairosvg")
    except ImportError:
        raise ConfigError(
            "a .png needs the cairosvg package (pip install cairosvg); a .svg needs nothing"
        ) from None
    made: bytes = cairosvg.svg2png(bytestring=text.encode(), scale=2)
    return made


def svg(chart: Chart) -> str:
    days = chart.grid.days
    width = _LEFT + 24 * _CELL_W + 104
    height = _TOP + len(days) * _CELL_H + 72
    first, last = days[0].date, days[-1].date
    desc = (
        f"A row per day from {first} to {last}, a column per hour in {chart.tz}; the darker, the more "
        f"of the slots are busy. {chart.summary()}."
    )
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        'aria-labelledby="title desc" '
        'font-family="system-ui, -apple-system, \'Segoe UI\', Roboto, sans-serif" font-size="14">'
    )
    parts = [
        opening,
        '  <title id="title">Expected load of the schedules</title>',
        f'  <desc id="desc">{escape(desc)}</desc>',
        f"  <style>{_STYLE}  </style>",
        f'  <rect class="card" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="12"/>',
        f'  <text class="name" x="20" y="32">Expected load, {first} to {last}</text>',
        *_summary_lines(chart.summary()),
        *_hours(),
        *(line for row, day in enumerate(days) for line in _day(day, _TOP + row * _CELL_H)),
        *_legend(_TOP + len(days) * _CELL_H + 34),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _summary_lines(text: str) -> Iterator[str]:
    first, *rest = text.split("; ")
    for line, told in enumerate((first, "; ".join(rest))):
        yield f'  <text class="soft" x="20" y="{54 + 18 * line}">{escape(told)}</text>'


def _hours() -> Iterator[str]:
    for hour in range(0, 24, 3):
        x = _LEFT + hour * _CELL_W + 2
        yield f'  <text class="soft" x="{x}" y="{_TOP - 8}">{hour:02}:00</text>'


def _day(day: Day, y: int) -> Iterator[str]:
    yield f'  <text x="20" y="{y + 18}">{day.date:%a %d %b}</text>'
    for hour, cell in enumerate(day.cells):
        if cell is not None:
            yield from _cell(cell, f"{day.date} {hour:02}:00", _LEFT + hour * _CELL_W, y)
    x = _LEFT + 24 * _CELL_W + 10
    yield f'  <text class="soft" x="{x}" y="{y + 18}">{day.due:,} runs</text>'


def _cell(cell: Cell, when: str, x: int, y: int) -> Iterator[str]:
    told = f"{when}: {cell.due:,} due, {cell.share:.0%} busy"
    if cell.waited:
        told += f", waiting up to {format_duration(cell.waited)}"
    yield (
        f'  <rect class="cell l{_level(cell)}" x="{x}" y="{y}" width="{_CELL_W}" '
        f'height="{_CELL_H}" rx="4"><title>{escape(told)}</title></rect>'
    )
    if cell.waited:
        yield from _waiting(x, y)


def _waiting(x: int, y: int) -> Iterator[str]:
    yield (
        f'  <rect class="waits" x="{x + 2}" y="{y + 2}" width="{_CELL_W - 4}" '
        f'height="{_CELL_H - 4}" rx="3"/>'
    )
    yield f'  <circle class="mark" cx="{x + _CELL_W / 2:g}" cy="{y + _CELL_H / 2:g}" r="4"/>'


def _level(cell: Cell) -> int:
    """0 is for hours in which nothing is due and nothing runs."""
    if not cell.due and not cell.share:
        return 0
    return next((n for n, top in enumerate(_LEVELS) if n and cell.share <= top), len(_LEVELS) - 1)


def _legend(y: int) -> Iterator[str]:
    x = 20
    for level, word in enumerate(_WORDS):
        yield f'  <rect class="cell l{level}" x="{x}" y="{y - 14}" width="22" height="20" rx="4"/>'
        yield f'  <text class="soft" x="{x + 28}" y="{y + 1}">{word}</text>'
        x += 44 + 8 * len(word)
    yield from _waiting(x, y - 17)
    yield f'  <text class="soft" x="{x + 38}" y="{y + 1}">runs wait for a slot</text>'
