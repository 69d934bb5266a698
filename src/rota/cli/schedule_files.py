"""`rota schedules apply|import`: schedules from YAML files and crontabs."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from rota.cli.options import DryRun, Yes
from rota.cli.output import Screen, plain
from rota.cli.session import Session, command
from rota.errors import ConfigError, InvalidArguments
from rota.files import changes as changing
from rota.files.changes import Action, Change, FieldChange, Present, difference
from rota.files.crontab import MAX_BYTES, Crontab, read_crontab
from rota.files.yaml_schedules import Source, Wanted, read_schedules
from rota.operations.schedule_reads import lint_tasks

# The mark, its style, and the words for so many of them before and after.
_MARKS: dict[Action, tuple[str, str, str, str]] = {
    "create": ("+", "green", "to create", "created"),
    "update": ("~", "yellow", "to update", "updated"),
    "delete": ("-", "red", "to delete", "deleted"),
    "unchanged": ("=", "dim", "unchanged", "unchanged"),
}
_LONGEST = 160


def add_to(group: typer.Typer) -> None:
    command(group, "apply")(apply)
    command(group, "import")(import_crontab)


def apply(
    session: Session,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="YAML files; - is standard input.")
    ],
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Delete schedules that came from files and are in none of these.",
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Apply schedules from YAML files: show the changes, ask, apply them.

    A file with an error changes nothing. Applying a file again changes nothing either.
    """
    present = session.run(Present.of(session.app))
    sources = [_source(name) for name in files]
    wanted = read_schedules(sources, present.calendars, session.app.rota.limits)
    _check_owners(present, wanted)
    found = difference(present, wanted.schedules, wanted.calendars, prune="file" if prune else None)
    _check_tasks(session, wanted)
    apply_it = not dry_run and _is_something(found)
    if not session.screen.structured:
        _show(session.screen, found)
    if apply_it:
        _confirm(session, yes, from_stdin="-" in files)
        made = changing.apply(session.app, found, wanted.schedules, wanted.calendars, source="file")
        session.run(made)
    _tell(session.screen, found, apply_it)


def _confirm(session: Session, yes: bool, *, from_stdin: bool) -> None:
    if from_stdin and not yes:
        raise typer.BadParameter(
            "required with standard input, which can't also answer a question", param_hint="--yes"
        )
    session.confirm("Apply?", yes)


def _source(name: str) -> Source:
    if name == "-":
        return Source("<stdin>", _stdin())
    return Source.read(Path(name))


def _stdin() -> bytes:
    return sys.stdin.buffer.read(MAX_BYTES + 1)


def _check_tasks(session: Session, wanted: Wanted) -> None:
    """Refuse arguments that a task doesn't take, and warn of unregistered tasks."""
    logging.getLogger("rota.schedules").setLevel(logging.ERROR)  # its warnings are shown here
    warned = session.run(lint_tasks(session.app.rota, wanted.schedules.values()))
    refused = [
        f"{wanted.places[told.schedule or '']}: {told.message}"
        for told in warned
        if told.code == "wrong_arguments"
    ]
    if refused:
        raise InvalidArguments("\n".join(refused))
    for told in warned:
        session.screen.note(f"Warning: {told.message}")


def _check_owners(present: Present, wanted: Wanted) -> None:
    """Refuse schedules that code declares: the next node that starts would restore them."""
    declared = [
        f"{wanted.places[name]}: schedules.{name}: is declared in code; change it there, or give "
        "this one another name"
        for name in wanted.schedules
        if name in present.schedules and present.schedules[name].source == "code"
    ]
    if declared:
        raise ConfigError("\n".join(declared))


def import_crontab(
    session: Session,
    crontab: Annotated[
        str, typer.Argument(metavar="CRONTAB", help="Crontab file; - is standard input.")
    ],
    user: Annotated[
        bool,
        typer.Option(
            "--user", help="Read a user's crontab, without a user column. This is the default."
        ),
    ] = False,
    system: Annotated[
        bool, typer.Option("--system", help="Read a crontab with a user column, like /etc/crontab.")
    ] = False,
    tz: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE", help="Time zone of its times, unless it sets CRON_TZ. (default: UTC)"
        ),
    ] = None,
    prefix: Annotated[
        str, typer.Option(metavar="NAME", help="Prefix of the schedules' names.")
    ] = "crontab",
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip lines that can't be imported.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Import a crontab: show the schedules that run its commands, ask, create them.

    They run on workers with --allow-commands. Importing it again changes only what has changed in it.
    """
    if user and system:
        raise typer.BadParameter("give --user or --system, not both", param_hint="--system")
    text = _crontab_text(crontab)
    read = read_crontab(text, with_user=system, tz=tz or "UTC", prefix=prefix)
    if tz is None and any(spec.tz == "UTC" for spec in read.schedules.values()):
        session.screen.note("Times without a zone are read as UTC; --tz changes that.")
    found = difference(session.run(Present.of(session.app)), read.schedules)
    refused = bool(read.bad) and not skip_bad
    apply_it = not dry_run and not refused and _is_something(found)
    if not session.screen.structured:
        _show(session.screen, found, read.lines)
        _show_remarks(session.screen, read)
    if apply_it:
        _confirm(session, yes, from_stdin=crontab == "-")
        session.run(changing.apply(session.app, found, read.schedules, source="crontab"))
    remarks = {"warnings": read.warnings, "bad": read.bad}
    _tell(session.screen, found, apply_it, read.lines, **remarks)
    if refused:
        session.screen.note("Nothing was imported: fix those lines, or use --skip-bad.")
        raise typer.Exit(1)
    if apply_it:
        session.screen.note(
            "These schedules run on workers that were started with --allow-commands."
        )


def _crontab_text(name: str) -> str:
    try:
        content = _stdin() if name == "-" else Source.read(Path(name)).content
        if len(content) > MAX_BYTES:
            raise ConfigError(f"{name} has over {MAX_BYTES:,} bytes")
        text = content.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{name} is not UTF-8 text") from None
    if "\0" in text:
        raise ConfigError(f"{name} has NUL characters: it is not a crontab")
    return text


# -- what is shown


def _is_something(found: Sequence[Change]) -> bool:
    return any(change.action != "unchanged" for change in found)


def _show(screen: Screen, found: Sequence[Change], lines: dict[str, int] | None = None) -> None:
    for change in found:
        mark, style, *_ = _MARKS[change.action]
        kind = "" if change.kind == "schedule" else f"{change.kind} "
        line = f" (line {lines[change.name]})" if lines and change.name in lines else ""
        screen.say(Text(f"{mark} {change.action} {kind}{plain(change.name)}{line}", style=style))
        for field in change.fields:
            screen.say(f"    {field.field}: {_said(change, field)}")


def _said(change: Change, field: FieldChange) -> str:
    if change.action == "create":
        return _shown(field.new)
    return f"{_shown(field.old)} → {_shown(field.new)}"


def _shown(value: Any) -> str:
    if value is None:
        return "(default)"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = text.replace("\n", "⏎")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _show_remarks(screen: Screen, read: Crontab) -> None:
    for remark in read.warnings:
        screen.say(Text(f"! line {remark.line}: {plain(remark.message)}", style="yellow"))
    for remark in read.bad:
        screen.say(Text(f"x line {remark.line}: {plain(remark.message)}", style="bold red"))


def _tell(
    screen: Screen,
    found: Sequence[Change],
    applied: bool,
    lines: dict[str, int] | None = None,
    **remarks: Any,
) -> None:
    if screen.structured:
        listed = [msgspec.to_builtins(change) for change in found]
        for change in listed:
            if lines is not None:
                change["line"] = lines.get(change["name"])
        screen.document({"applied": applied, "changes": listed, **remarks})
        return
    counts = Counter(change.action for change in found)
    said = [
        f"{counts[action]} {words[3 if applied else 2]}"
        for action, words in _MARKS.items()
        if counts[action]
    ]
    screen.say(", ".join(said) or "nothing there")
