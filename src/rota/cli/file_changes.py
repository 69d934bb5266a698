"""Reads files for `apply`, shows the changes that they make, and asks before these are applied."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import typer

from rota.cli.output import Screen
from rota.cli.session import Session
from rota.files.changes import Action, Change
from rota.files.yaml_nodes import MAX_BYTES, Source

# By action: a mark, its style, and the words for a count of them, planned and done.
_MARKS: dict[Action, tuple[str, str, str, str]] = {
    "create": ("+", "green", "to create", "created"),
    "update": ("~", "yellow", "to update", "updated"),
    "delete": ("-", "red", "to delete", "deleted"),
    "retire": ("-", "red", "to retire", "retired"),
    "unchanged": ("=", "dim", "unchanged", "unchanged"),
}
_LONGEST = 160


def read_source(name: str) -> Source:
    if name == "-":
        return Source("<stdin>", sys.stdin.buffer.read(MAX_BYTES + 1))
    return Source.read(name)


def confirm(session: Session, yes: bool, *, from_stdin: bool) -> None:
    if from_stdin and not yes:
        raise typer.BadParameter(
            "required with standard input, which can't also answer a question", param_hint="--yes"
        )
    session.confirm("Apply?", yes)


def is_something(found: Sequence[Change]) -> bool:
    return any(change.action != "unchanged" for change in found)


def show_changes(
    screen: Screen, found: Sequence[Change], places: dict[str, str] | None = None
) -> None:
    if screen.structured:
        return
    for change in found:
        mark, style, *_ = _MARKS[change.action]
        kind = "" if change.kind == "schedule" else f"{change.kind} "
        place = f" ({places[change.name]})" if places and change.name in places else ""
        screen.say(f"{mark} {change.action} {kind}{change.name}{place}", style=style)
        for field in change.fields:
            before = "" if change.action == "create" else f"{_shown(field.old)} → "
            screen.say(f"    {field.field}: {before}{_shown(field.new)}")


def _shown(value: Any) -> str:
    if value is None:
        return "(default)"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = text.replace("\n", "⏎")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def report_changes(
    screen: Screen,
    found: Sequence[Change],
    applied: bool,
    places: dict[str, str] | None = None,
    **remarks: Any,
) -> None:
    if screen.structured:
        listed = [msgspec.to_builtins(change) for change in found]
        for change in listed:
            if places is not None:
                change["place"] = places.get(change["name"])
        screen.document({"applied": applied, "changes": listed, **remarks})
        return
    counts = Counter(change.action for change in found)
    parts = [
        f"{counts[action]} {words[3 if applied else 2]}"
        for action, words in _MARKS.items()
        if counts[action]
    ]
    screen.say(", ".join(parts) or "nothing to do")
