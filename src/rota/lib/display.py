"""Jobs and runs as people see them: a line of text, HTML for notebooks, and a bar that moves.

What is shown comes from payloads, results and errors, so that everything is escaped in HTML and control
characters never reach a terminal.
"""

from __future__ import annotations

import html
import math
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, Self, TypeVar

_LONGEST = 300  # characters of a value
_COLORS = {
    "succeeded": "#1a7f37", "failed": "#cf222e", "cancelled": "#6e7781", "running": "#0969da",
}  # fmt: skip


class Bar(NamedTuple):
    """The progress of something. Without a total, its end is not known."""

    words: str
    done: float
    total: float | None


class Shown(Protocol):
    """A `Job` or a `Run`, which can be shown."""

    @property
    def state(self) -> str: ...
    def bar(self) -> Bar: ...
    def _repr_html_(self) -> str: ...


T = TypeVar("T", bound=Shown)


def progress_bar(words: str, progress: Any) -> Bar:
    """Return the bar of what a handler reported: ``{"done": 3, "total": 10, "message": "..."}``."""
    given = progress if isinstance(progress, dict) else {}
    message = given.get("message")
    done, total = _number(given.get("done")), _number(given.get("total"))
    if total is not None and total <= 0:
        total = None
    return Bar(f"{words}: {message}" if message else words, done or 0.0, total)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return max(0.0, float(value))


def amount(bar: Bar) -> str:
    """Return how far it has come, in words; an empty text if nobody knows."""
    if bar.total is not None:
        return f"{bar.done:g} of {bar.total:g}"
    return f"{bar.done:g}" if bar.done else ""


def printable(text: str) -> str:
    """Return a text without characters that could steer a terminal or break a line."""
    return "".join(each if each.isprintable() else " " for each in text)


def brief(value: Any) -> str:
    """Return a value as a text of a bounded length, without control characters."""
    text = printable(repr(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def as_html(title: str, state: str, bar: Bar, rows: dict[str, Any]) -> str:
    """Return a small table that needs no script and no widget."""
    color = _COLORS.get(state, "#9a6700")
    lines = [
        f"<b>{_escape(title)}</b> <span style='color:{color}'>{_escape(state)}</span>",
    ]
    if bar.total is not None:
        most, done = f"{bar.total:g}", f"{min(bar.done, bar.total):g}"
        lines.append(f"<progress max='{most}' value='{done}'></progress> {_escape(amount(bar))}")
    elif bar.done:
        lines.append(_escape(amount(bar)))
    cells = "".join(
        f"<tr><th style='text-align:left'>{_escape(name)}</th>"
        f"<td style='text-align:left'>{_escape(_text(value))}</td></tr>"
        for name, value in rows.items()
        if value is not None
    )
    return f"<div class='rota'>{'<br>'.join(lines)}<table>{cells}</table></div>"


def _escape(text: str) -> str:
    return html.escape(printable(text))


def _text(value: Any) -> str:
    text = brief(value)
    return text[1:-1] if isinstance(value, str) and text[:1] in "'\"" else text


class _Nowhere(AbstractContextManager["_Nowhere"]):
    """Shows nothing: standard error is a file, and there is no notebook."""

    def draw(self, shown: Shown) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class _Notebook(_Nowhere):
    """Shows HTML below the cell, and replaces it."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._handle: Any = None

    def draw(self, shown: Shown) -> None:
        if self._handle is None:
            self._handle = self._display(shown, display_id=True)
        else:
            self._handle.update(shown)


class _Terminal(_Nowhere):
    """Draws a bar on standard error."""

    def __init__(self) -> None:
        self._bars: Any = terminal_bars()
        self._bar: Any = None

    def __enter__(self) -> Self:
        self._bars.__enter__()
        return self

    def draw(self, shown: Shown) -> None:
        if self._bar is None:
            self._bar = self._bars.add_task("", total=None)
        draw_bar(self._bars, self._bar, shown.bar())

    def __exit__(self, *error: object) -> None:
        self._bars.__exit__(*error)


def terminal_bars(**settings: Any) -> Any:
    """Return the bars of rich, in the form that all of Rota's have."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(),
               TaskProgressColumn())  # fmt: skip
    if "console" not in settings:
        from rich.console import Console

        settings["console"] = Console(stderr=True)
    return Progress(*columns, **settings)


def draw_bar(bars: Any, number: Any, bar: Bar) -> None:
    """Move a bar of rich."""
    bars.update(number, description=printable(bar.words), total=bar.total, completed=bar.done)


def _where() -> _Nowhere:
    shell = sys.modules.get("IPython")
    if shell is not None and hasattr(shell.get_ipython(), "kernel"):
        return _Notebook(sys.modules["IPython"].display.display)
    if sys.stderr is not None and sys.stderr.isatty():
        return _Terminal()
    return _Nowhere()


async def follow(changes: AsyncIterator[T]) -> T:
    """Show what an iterator yields, each in place of the one before. Return the last."""
    last: T | None = None
    with _where() as place:
        async for last in changes:
            place.draw(last)
    assert last is not None, "a job or run is seen at least once"
    return last
