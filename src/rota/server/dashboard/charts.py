"""Draw charts as SVG, without script and style attribute, each with a sentence for screen readers.

A plot is stretched to the width of the page; text is around it, since it must not be stretched.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def curve(values: Sequence[float | None], label: str) -> Markup:
    """Draw a line, with gaps where no value is known."""
    highest = max((value for value in values if value is not None), default=0.0) or 1.0
    step = _WIDTH / max(len(values) - 1, 1)
    path, drawing = "", False
    for place, value in enumerate(values):
        if value is None:
            drawing = False
            continue
        x, y = place * step, _HEIGHT - 3 - (_HEIGHT - 6) * value / highest
        # A single point is a short stroke, to be visible.
        path += f"L{x:.1f} {y:.1f}" if drawing else f"M{x - 2:.1f} {y:.1f}L{x:.1f} {y:.1f}"
        drawing = True
    return _SVG.format(_WIDTH, _HEIGHT, label, _PATH.format("curve", path) if path else _NOTHING)


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
