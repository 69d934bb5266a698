"""Output of commands: tables and colours for people, one JSON or YAML document for programs."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import yaml
from rich.console import Console, RenderableType
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

Output = Literal["table", "json", "yaml"]

_ENDLESS = 100_000  # columns: in a pipe nothing is folded or cut

STYLES = {
    "waiting": "cyan", "scheduled": "cyan", "ready": "yellow", "running": "blue",
    "succeeded": "green", "failed": "bold red", "cancelled": "magenta", "skipped": "dim",
    "live": "green", "draining": "yellow", "silent": "bold red", "dead": "red", "stopped": "dim",
    "paused": "yellow",
    "raised": "red", "timed_out": "red", "heartbeat_timeout": "red",
    "crashed": "red", "lost": "red", "returned": "dim",
}  # fmt: skip

# Everything that could move a terminal's cursor, change its colours or its title.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """Remove control characters from text: an error message must not steer the terminal."""
    return _CONTROL.sub("\ufffd", text)


def state(name: str) -> Text:
    return Text(name, style=STYLES.get(name, ""))


def pretty(value: Any) -> Text:
    """Format a value as coloured JSON."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    shown = Text(plain(text))
    JSONHighlighter().highlight(shown)
    return shown


def first_line(text: str, length: int = 120) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= length else f"{line[: length - 3]}..."


def count(number: int, noun: str) -> str:
    """Format a number with its noun: '1 job', '1,200 jobs'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def make_console(*, stderr: bool = False) -> Console:
    console = Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not console.is_terminal:
        console.width = _ENDLESS
    return console


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str | Text]], *, right: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> Table:  # fmt: skip
    """Make a table, without control characters in its cells.

    `right` are columns of numbers; `whole` are never folded, however narrow the terminal.
    """
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(
            name, justify="right" if name in right else "left",
            no_wrap=name in whole, overflow="fold",
        )  # fmt: skip
    for row in rows:
        made.add_row(*(plain(cell) if isinstance(cell, str) else cell for cell in row))
    return made


def facts(named: Mapping[str, Any]) -> Table:
    """Make a table of names and values, without the values that are None."""
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in named.items():
        if value is not None:
            made.add_row(name, value if isinstance(value, Text | Table) else plain(str(value)))
    return made


def to_yaml(value: Any) -> str:
    plain_value = msgspec.to_builtins(value, str_keys=True)
    return yaml.safe_dump(plain_value, sort_keys=False, allow_unicode=True)


class Screen:
    """Standard output and standard error of one command."""

    def __init__(self, output: Output = "table") -> None:
        self.output = output
        self.structured = output != "table"  # for programs: JSON or YAML
        self.out = make_console()
        self.err = make_console(stderr=True)

    def document(self, document: Any) -> None:
        """Write the whole answer as one document."""
        if self.output == "yaml":
            self._write(to_yaml(document))
        else:
            text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
            self._write(f"{text}\n")

    def documents(self, items: Iterable[Any]) -> None:
        """Write a list as one document, item by item: in the memory of one."""
        empty = True
        for item in items:
            if self.output == "yaml":
                self._write(to_yaml([item]))
            else:
                text = msgspec.json.format(msgspec.json.encode(item), indent=2).decode()
                self._write(("[\n" if empty else ",\n") + textwrap.indent(text, "  "))
            empty = False
        if empty:
            self.document([])
        elif self.output != "yaml":
            self._write("\n]\n")

    def line(self, event: Any) -> None:
        """Write one of many documents: a line of JSON, or a YAML document after `---`."""
        if self.output == "yaml":
            self._write(f"---\n{to_yaml(event)}")
        else:
            self._write(f"{msgspec.json.encode(event).decode()}\n")

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def answer(self, document: Any, *lines: str) -> None:
        """Write the document for programs, or the lines for people."""
        if self.structured:
            self.document(document)
        else:
            for line in lines:
                self.say(line)

    def listing(
        self, found: Sequence[Any], empty: str, columns: Sequence[str],
        rows: Iterable[Sequence[str | Text]], *, right: Sequence[str] = (), whole: Sequence[str] = (),
    ) -> bool:  # fmt: skip
        """Write a list: as a document, as a table, or a note that it is empty.

        Returns whether it was a table. `rows` are read only for that.
        """
        if self.structured:
            self.document(found)
        elif not found:
            self.note(empty)
        else:
            self.show(table(columns, rows, right=right, whole=whole))
        return bool(found) and not self.structured

    def say(self, text: str | Text, style: str = "") -> None:
        shown = Text(plain(text), style=style) if isinstance(text, str) else text
        self.out.print(shown, soft_wrap=True)

    def show(self, *parts: RenderableType) -> None:
        for part in parts:
            self.out.print(part)

    def note(self, text: str) -> None:
        """Write a remark for people to standard error, where it isn't in the way of a pipe."""
        if not self.structured:
            self.err.print(Text(plain(text), style="dim"), soft_wrap=True)

    def fault(self, kind: str, message: str, **details: Any) -> None:
        if self.structured:  # JSON is also YAML
            error = {"error": {"type": kind, "message": message, **details}}
            sys.stderr.write(f"{msgspec.json.encode(error).decode()}\n")
        else:
            line = Text("error: ", style="bold red").append(plain(message), style="not bold red")
            self.err.print(line, soft_wrap=True)
