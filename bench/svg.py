"""Small SVG plots, bars and lines on one scale, readable in light and dark, and by screen readers.

Nothing but text is needed to make them. Colours follow `prefers-color-scheme`; what is drawn is also
said in the title and the description, and each bar carries its figure as text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_ROW = 30
_LABEL = 150
_WIDTH = 720
_TOP = 46
_STYLE = """
  svg { background: transparent }
  text { font: 13px system-ui, sans-serif; fill: #1f2933 }
  .title { font-weight: 600; font-size: 15px }
  .quiet { fill: #52606d; font-size: 12px }
  .bar { fill: #7b8794 }
  .ours { fill: #0b69a3 }
  .line { fill: none; stroke-width: 1.6 }
  .line0, .key0 { stroke: #0b69a3 } .line1, .key1 { stroke: #b44d12 }
  .line2, .key2 { stroke: #3f7d20 } .line3, .key3 { stroke: #7b4397 }
  .spread { stroke: #1f2933; stroke-width: 1.5 }
  .axis { stroke: #cbd2d9 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e7eb }
    .quiet { fill: #9aa5b1 }
    .bar { fill: #7b8794 }
    .ours { fill: #47a3f3 }
    .spread { stroke: #e4e7eb }
    .axis { stroke: #3e4c59 }
  }
"""


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    low: float
    high: float
    ours: bool = False


def bars(title: str, unit: str, rows: Sequence[Bar], *, note: str = "", log: bool = False) -> str:
    """A bar for each row, with a line from its lowest to its highest round."""
    height = _TOP + _ROW * len(rows) + 12
    room = _WIDTH - _LABEL - 110
    place = _scale(rows, room, log)
    said = "; ".join(f"{row.label}: {figure(row.value)} {unit}".strip() for row in rows)
    lines = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
            f'aria-labelledby="title description" width="{_WIDTH}" height="{height}">'
        ),
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="description">{escape(said)}</desc>',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="0" y="18">{escape(title)}</text>',
        f'<text class="quiet" x="0" y="36">{escape(note)}</text>',
        f'<line class="axis" x1="{_LABEL}" y1="{_TOP}" x2="{_LABEL}" y2="{height - 8}"/>',
    ]
    for at, row in enumerate(rows):
        lines += _drawn(row, _TOP + at * _ROW, place, unit)
    return "\n".join([*lines, "</svg>", ""])


def _drawn(row: Bar, top: float, place: _Scale, unit: str) -> list[str]:
    middle = top + _ROW / 2
    length, low, high = (place(value) for value in (row.value, row.low, row.high))
    kind = "ours" if row.ours else "bar"
    return [
        f'<text x="{_LABEL - 8}" y="{middle + 4}" text-anchor="end">{escape(row.label)}</text>',
        f'<rect class="{kind}" x="{_LABEL}" y="{top + 5}" width="{length:.1f}" height="{_ROW - 10}"/>',
        (
            f'<line class="spread" x1="{_LABEL + low:.1f}" x2="{_LABEL + high:.1f}" '
            f'y1="{middle}" y2="{middle}"/>'
        ),
        (
            f'<text x="{_LABEL + max(length, high) + 6:.1f}" y="{middle + 4}">'
            f"{figure(row.value)} {escape(unit)}</text>"
        ),
    ]


_HEIGHT = 180
_POINTS = 300  # of a line: more can't be told apart


def lines(title: str, unit: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """A line for each series of points, on one scale that begins at zero."""
    given = [point for points in series.values() for point in points]
    right = max((x for x, _ in given), default=0.0) or 1.0
    top = max((y for _, y in given), default=0.0) or 1.0
    room, height = _WIDTH - 60, _TOP + _HEIGHT + 24 + 18 * len(series)
    said = "; ".join(
        f"{name}: {figure(points[-1][1])} at the end" for name, points in series.items() if points
    )
    base = _TOP + _HEIGHT
    drawn = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
            f'aria-labelledby="title description" width="{_WIDTH}" height="{height}">'
        ),
        f'<title id="title">{escape(title)}</title>',
        f'<desc id="description">{escape(said)}</desc>',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="0" y="18">{escape(title)}</text>',
        f'<text class="quiet" x="0" y="36">{escape(unit)}</text>',
        f'<line class="axis" x1="50" y1="{base}" x2="{50 + room}" y2="{base}"/>',
        f'<line class="axis" x1="50" y1="{_TOP}" x2="50" y2="{base}"/>',
        f'<text class="quiet" x="44" y="{_TOP + 10}" text-anchor="end">{figure(top)}</text>',
        f'<text class="quiet" x="44" y="{base}" text-anchor="end">0</text>',
        f'<text class="quiet" x="{50 + room}" y="{base + 16}" text-anchor="end">{figure(right)}</text>',
    ]
    for place, (name, points) in enumerate(series.items()):
        step = max(len(points) // _POINTS, 1)
        path = " ".join(
            f"{50 + x / right * room:.1f},{base - y / top * _HEIGHT:.1f}" for x, y in points[::step]
        )
        at = base + 28 + 18 * place
        drawn += [
            f'<polyline class="line line{place % 4}" points="{path}"/>',
            f'<line class="line key{place % 4}" x1="50" x2="70" y1="{at - 4}" y2="{at - 4}"/>',
            f'<text x="78" y="{at}">{escape(name)}</text>',
        ]
    return "\n".join([*drawn, "</svg>", ""])


class _Scale:
    def __init__(self, top: float, room: float, bottom: float | None) -> None:
        self._top, self._room, self._bottom = top, room, bottom

    def __call__(self, value: float) -> float:
        if self._bottom is None:
            return value / self._top * self._room
        whole = math.log(self._top / self._bottom) or 1.0
        return max(math.log(max(value, self._bottom) / self._bottom) / whole * self._room, 1.0)


def _scale(rows: Sequence[Bar], room: float, log: bool) -> _Scale:
    top = max((row.high for row in rows), default=1.0) or 1.0
    if not log:
        return _Scale(top, room, None)
    least = min(row.low for row in rows if row.low > 0)
    return _Scale(top, room, 10 ** math.floor(math.log10(least)))


def figure(value: float) -> str:
    """Three digits are all that a measurement can say."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        digits = max(math.floor(math.log10(abs(value))) - 2, 0)
        return f"{round(value / 10**digits) * 10**digits:,.0f}"
    return f"{value:.3g}"
