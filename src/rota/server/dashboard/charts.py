"""Draw charts as SVG, without script and style attribute, each with a sentence for screen readers.

A plot is stretched to the width of the page; text is around it, since it must not be stretched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
from markupsafe import Markup

_WIDTH, _HEIGHT = 600.0, 100.0
_SVG = Markup(
    '<svg class="plot" viewBox="0 0 {0:g} {1:g}" preserveAspectRatio="none" role="img" '
    'aria-label="{2}">{3}</svg>'
)
_RECT = Markup('<rect class="{0}" x="{1:.1f}" y="{2:.1f}" width="{3:.1f}" height="{4:.1f}"/>')
_TITLED = Markup("<g><title>{0}</title>{1}</g>")
_PATH = Markup('<path class="{0}" d="{1}"/>')
_NOTHING = Markup("")


def bars(columns: Sequence[tuple[float, float]], label: str, titles: Sequence[str] = ()) -> Markup:
    """Draw columns of two parts: the first at the bottom, the failures on top."""
    highest = max((good + bad for good, bad in columns), default=0.0) or 1.0
    step = _WIDTH / max(len(columns), 1)
    drawn = _NOTHING
    for place, (good, bad) in enumerate(columns):
        x, width = place * step + step * 0.12, step * 0.76
        upper = _HEIGHT * good / highest
        top = max(_HEIGHT * bad / highest, 2.0) if bad else 0.0
        upper = min(upper, _HEIGHT - top)
        pair = _NOTHING
        if good:
            pair += _RECT.format("good", x, _HEIGHT - max(upper, 1.0), width, max(upper, 1.0))
        if bad:
            pair += _RECT.format("bad", x, _HEIGHT - upper - top, width, top)
        drawn += _TITLED.format(titles[place], pair) if titles and pair else pair
    return _SVG.format(_WIDTH, _HEIGHT, label, drawn)


# -- charts with axes: their text is part of them, and they keep their proportions

_W, _H, _LEFT, _TOP, _BOTTOM = 520.0, 194.0, 64.0, 8.0, 26.0
_CHART = Markup(
    '<svg class="chart" viewBox="0 0 {0:g} {1:g}" role="group" aria-label="{2}">{3}</svg>'
)
_WIDE_CHART = Markup(
    '<svg class="chart wide" viewBox="0 0 {0:g} {1:g}" role="group" aria-label="{2}">{3}</svg>'
)
# Every second label below a chart is left out where there is little room.
_LABEL = Markup('<text class="{0}" x="{1:.1f}" y="{2:.1f}" text-anchor="middle">{3}</text>')
_TEXT = Markup('<text x="{0:.1f}" y="{1:.1f}" text-anchor="{2}">{3}</text>')
_LINE = Markup('<line class="{0}" x1="{1:.1f}" y1="{2:.1f}" x2="{3:.1f}" y2="{4:.1f}"/>')
_LINK = Markup('<a href="{0}" aria-label="{1}"><title>{1}</title>{2}</a>')
_LABELS = 6
_LETTER, _PHONE_LETTER = 6.6, 9.2  # widths


class Bar(msgspec.Struct, frozen=True):
    """A column of a chart: its parts from the bottom up, where it leads, and what it says."""

    parts: Sequence[tuple[str, float]]
    href: str
    title: str


def columns(
    bars: Sequence[Bar], labels: Sequence[str], unit: Callable[[float], str], label: str
) -> Markup:
    """Draw columns with axes. Each leads to what it counts; `labels` stand below, as many as fit."""
    highest = _ceiling(max((sum(size for _, size in one.parts) for one in bars), default=0.0))
    drawn, step = _axes(highest, labels, unit), (_W - _LEFT) / max(len(bars), 1)
    for place, one in enumerate(bars):
        base, pieces = _H - _BOTTOM, _NOTHING
        for kind, size in one.parts:
            if size:
                height = max((_H - _TOP - _BOTTOM) * size / highest, 1.5)
                x = _LEFT + place * step + step * 0.1
                pieces += _RECT.format(kind, x, base - height, max(step * 0.8, 1.0), height)
                base -= height
        if pieces:
            drawn += _LINK.format(one.href, one.title, pieces)
    return _CHART.format(_W, _H, label, drawn)


def lines(
    series: Sequence[tuple[str, Sequence[float | None]]], labels: Sequence[str],
    unit: Callable[[float], str], label: str,
) -> Markup:  # fmt: skip
    """Draw lines with axes, on a scale by the powers of ten: durations differ by so much."""
    known = [value for _, values in series for value in values if value is not None]
    high = math.ceil(math.log10(max([*known, 0.01])))
    low = min(math.floor(math.log10(max(min([*known, 1.0]), 0.001))), high - 1)
    drawn, height = _NOTHING, _H - _TOP - _BOTTOM

    def y_of(value: float) -> float:
        share = (math.log10(max(value, 10.0**low)) - low) / (high - low)
        return _H - _BOTTOM - height * share

    for power in range(low, high + 1):
        y = y_of(10.0**power)
        drawn += _LINE.format("grid", _LEFT, y, _W, y)
        drawn += _beside(y, unit(10.0**power))
    count = max((len(values) for _, values in series), default=1)
    step = (_W - _LEFT) / max(count, 1)
    drawn += _below(labels, step)
    for kind, values in series:
        path, drawing = "", False
        for place, value in enumerate(values):
            if value is None:
                drawing = False
                continue
            x, y = _LEFT + (place + 0.5) * step, y_of(value)
            path += f"L{x:.1f} {y:.1f}" if drawing else f"M{x - 2:.1f} {y:.1f}L{x:.1f} {y:.1f}"
            drawing = True
        drawn += _PATH.format(f"curve {kind}", path) if path else _NOTHING
    return _CHART.format(_W, _H, label, drawn)


class Block(msgspec.Struct, frozen=True):
    """A stretch of a Gantt chart, given as shares of its length."""

    begin: float
    end: float
    kind: str
    href: str
    title: str


_ROW, _MOST_ROWS, _GANTT_W, _GANTT_LEFT = 13.0, 40, 1040.0, 6.0


def gantt(blocks: Sequence[Block], labels: Sequence[str], label: str) -> Markup:
    """Draw stretches in rows, each in the first row where it has room, in the order given."""
    free: list[float] = []
    placed: list[tuple[int, Block]] = []
    for one in blocks:
        row = next((place for place, end in enumerate(free) if end <= one.begin), len(free))
        if row < _MOST_ROWS:
            free[row : row + 1] = [one.end]
            placed.append((row, one))
    height = max(len(free), 1) * _ROW + _TOP + _BOTTOM
    drawn = _NOTHING
    for place, text in enumerate(labels):
        x = _GANTT_LEFT + (_GANTT_W - _GANTT_LEFT) * place / max(len(labels) - 1, 1)
        anchor = "start" if not place else "end" if place == len(labels) - 1 else "middle"
        drawn += _LINE.format("grid", x, _TOP, x, height - _BOTTOM)
        drawn += _TEXT.format(x, height - 6, anchor, text)
    for row, one in placed:
        x = _GANTT_LEFT + (_GANTT_W - _GANTT_LEFT) * min(max(one.begin, 0.0), 1.0)
        width = max((_GANTT_W - _GANTT_LEFT) * (min(one.end, 1.0) - max(one.begin, 0.0)), 1.5)
        box = _RECT.format(
            one.kind, min(x, _GANTT_W - width), _TOP + row * _ROW + 1, width, _ROW - 3
        )
        drawn += _LINK.format(one.href, one.title, box)
    return _WIDE_CHART.format(_GANTT_W, height, label, drawn)


def _axes(highest: float, labels: Sequence[str], unit: Callable[[float], str]) -> Markup:
    drawn, written = _NOTHING, {unit(0.0), unit(highest)}
    for part in (0.0, 0.5, 1.0):
        y = _H - _BOTTOM - (_H - _TOP - _BOTTOM) * part
        text = unit(highest * part)
        drawn += _LINE.format("grid", _LEFT, y, _W, y)
        if part != 0.5 or text not in written:  # the middle of 0 and 1 isn't 0
            drawn += _beside(y, text)
    return drawn + _below(labels, (_W - _LEFT) / max(len(labels), 1))


def _beside(y: float, text: str) -> Markup:
    """Label a line of the grid: in its middle, the lowest above it, since the times stand below."""
    return _TEXT.format(_LEFT - 5, y + (4 if y < _H - _BOTTOM else 0), "end", text)


def _below(labels: Sequence[str], step: float) -> Markup:
    """Write the labels that fit: on a phone letters are larger, and every second label is hidden."""
    longest = max((len(text) for text in labels), default=1)
    fitting = min(_LABELS, max(int((_W - _LEFT) / (longest * _LETTER + 14)), 1))
    drawn, every = _NOTHING, max(math.ceil(len(labels) / fitting), 1)
    for count, place in enumerate(range(0, len(labels), every)):
        kind, x = "second" if count % 2 else "first", _LEFT + (place + 0.5) * step
        if x + len(labels[place]) * _PHONE_LETTER / 2 <= _W:
            drawn += _LABEL.format(kind, x, _H - 5, labels[place])
    return drawn


def _ceiling(value: float) -> float:
    """Return a round number that is not less."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= value)


_SPARK = Markup(
    '<svg class="plot" viewBox="0 0 {0} 20" preserveAspectRatio="none" role="img" aria-label="{1}">'
    "{2}</svg>"
)
_SPARKS = 60  # columns


def spark(values: Sequence[float | None], label: str, kind: str = "live") -> Markup:
    """Draw small columns without axes, for a cell of a table: as one path, since a page has many."""
    every = -(-len(values) // _SPARKS) or 1
    parts = [values[place : place + every] for place in range(0, len(values), every)]
    columns = [max((value for value in part if value), default=0.0) for part in parts]
    highest = max(columns, default=0.0)
    path, level, run = "", 20, 0
    for value in [*columns, 0.0] if highest else ():
        y = 20 - max(round(20 * value / highest), 1) if value else 20
        if y != level:
            path += (f"h{run}" if run else "") + f"V{y}"
            level, run = y, 0
        run += 1
    drawn = _PATH.format(kind, f"M0 20{path}z") if path else _NOTHING
    return _SPARK.format(max(len(columns), 1), label, drawn)


def ticks(shares: Sequence[float], label: str, kind: str = "live") -> Markup:
    """Draw moments on a line, given as shares of its length."""
    drawn = _NOTHING
    for share in shares:
        drawn += _RECT.format(kind, min(share, 0.995) * _WIDTH, 2.0, 4.0, _HEIGHT - 4)
    return _SVG.format(_WIDTH, _HEIGHT, label, drawn)


def bar(parts: Sequence[tuple[str, float, float]], label: str) -> Markup:
    """Draw sections (class, from, to) of a line, given as shares of its length."""
    drawn = _NOTHING
    for kind, first, end in parts:
        width = max((end - first) * _WIDTH, 3.0)
        drawn += _RECT.format(kind, min(first * _WIDTH, _WIDTH - 3.0), 8.0, width, _HEIGHT - 16)
    return _SVG.format(_WIDTH, _HEIGHT, label, drawn)
