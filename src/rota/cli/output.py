"""What people and programs see: tables and colours, or one JSON document."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

_ENDLESS = 100_000  # columns: in a pipe nothing is folded or cut

STYLES = {
    "waiting": "cyan", "scheduled": "cyan", "ready": "yellow", "running": "blue",
    "succeeded": "green", "failed": "bold red", "cancelled": "magenta", "skipped": "dim",
    "live": "green", "draining": "yellow", "silent": "bold red", "dead": "red", "stopped": "dim",
    "paused": "yellow",
    "raised": "red", "timed_out": "red", "heartbeat_timeout": "red",
    "crashed": "red", "lost": "red", "returned": "dim",
}  # fmt: skip

# All that could move a terminal's cursor, change its colours or its title.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Others' text without control characters: an error message must not steer the terminal."""
    return _CONTROL.sub("\ufffd", text)


def state(name: str) -> Text:
    return Text(name, style=STYLES.get(name, ""))


def pretty(value: Any) -> Text:
    """JSON for people."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    shown = Text(plain(text))
    JSONHighlighter().highlight(shown)
    return shown


def first_line(text: str, length: int = 120) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= length else f"{line[: length - 3]}..."


def make_console(*, stderr: bool = False) -> Console:
    console = Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = _ENDLESS
    return console


def table(*columns: str, right: Sequence[str] = (), whole: Sequence[str] = ()) -> Table:
    """`right` are columns of numbers; `whole` are never folded, however narrow the terminal."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(
            name, justify="right" if name in right else "left",
            no_wrap=name in whole, overflow="fold",
        )  # fmt: skip
    return made


class Screen:
    """Standard output and standard error of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.out = make_console()
        self.err = make_console(stderr=True)

    def json(self, document: Any) -> None:
        """The whole answer, as one document."""
        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def json_line(self, event: Any) -> None:
        """One of many, for commands that go on and on."""
        sys.stdout.write(f"{msgspec.json.encode(event).decode()}\n")
        sys.stdout.flush()

    def say(self, text: str | Text, style: str = "") -> None:
        shown = Text(plain(text), style=style) if isinstance(text, str) else text
        self.out.print(shown, soft_wrap=True)

    def show(self, *parts: RenderableType) -> None:
        for part in parts:
            self.out.print(part)

    def note(self, text: str) -> None:
        """Beside the answer: for people, and never in the way of a pipe."""
        if not self.as_json:
            self.err.print(Text(plain(text), style="dim"), soft_wrap=True)

    def fault(self, kind: str, message: str) -> None:
        if self.as_json:
            error = {"error": {"type": kind, "message": message}}
            sys.stderr.write(f"{msgspec.json.encode(error).decode()}\n")
        else:
            line = Text("error: ", style="bold red").append(plain(message), style="not bold red")
            self.err.print(line, soft_wrap=True)

    def help(self, context: typer.Context) -> None:
        typer.echo(context.get_help())
