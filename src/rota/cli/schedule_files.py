"""`rota schedules apply|import`: schedules from YAML files and crontabs."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from rota.cli.options import DryRun, Yes, argument, option
from rota.cli.output import Screen
from rota.cli.schedules import schedules_group
from rota.cli.session import Session, command
from rota.errors import ConfigError, InvalidArguments
from rota.files import changes as changing
from rota.files.changes import Action, Change, Present, difference
from rota.files.crontab import Crontab, read_crontab
from rota.files.yaml_nodes import MAX_BYTES, Source
from rota.files.yaml_schedules import Wanted, read_schedules
from rota.operations.schedule_reads import lint_tasks

# By action: a mark, its style, and the words for a count of them, planned and done.
_MARKS: dict[Action, tuple[str, str, str, str]] = {
    "create": ("+", "green", "to create", "created"),
    "update": ("~", "yellow", "to update", "updated"),
    "delete": ("-", "red", "to delete", "deleted"),
    "unchanged": ("=", "dim", "unchanged", "unchanged"),
}
_LONGEST = 160


@command(schedules_group, "apply")
def apply(
    session: Session,
    files: Annotated[list[str], argument("FILE", "YAML files; - is standard input.")],
    prune: Annotated[
        bool, option("Delete schedules that came from files and are in none of these.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Apply schedules from YAML files: show the changes, ask, apply them.

    A file with an error changes nothing. Applying a file again changes nothing either.
    """
    present = session.run(Present.of(session.app))
    wanted = read_schedules(map(_read, files), present.calendars, session.app.rota.limits)
    _check_owners(present, wanted)
    found = difference(present, wanted.schedules, wanted.calendars, prune="file" if prune else None)
    _check_tasks(session, wanted)
    apply_it = not dry_run and _is_something(found)
    _show(session.screen, found)
    if apply_it:
        _confirm(session, yes, from_stdin="-" in files)
        session.run(
            changing.apply(session.app, found, wanted.schedules, wanted.calendars, source="file")
        )
    _report(session.screen, found, apply_it)


def _confirm(session: Session, yes: bool, *, from_stdin: bool) -> None:
    if from_stdin and not yes:
        raise typer.BadParameter(
            "required with standard input, which can't also answer a question", param_hint="--yes"
        )
    session.confirm("Apply?", yes)


def _check_tasks(session: Session, wanted: Wanted) -> None:
    """Refuse arguments that a task doesn't take, and warn of unregistered tasks."""
    logging.getLogger("rota.schedules").setLevel(logging.ERROR)  # its warnings are shown here
    warned = session.run(lint_tasks(session.app.rota, wanted.schedules.values()))
    refused = [
        f"{wanted.places[each.schedule or '']}: {each.message}"
        for each in warned
        if each.code == "wrong_arguments"
    ]
    if refused:
        raise InvalidArguments("\n".join(refused))
    for each in warned:
        session.screen.note(f"Warning: {each.message}")


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


@command(schedules_group, "import")
def import_crontab(
    session: Session,
    crontab: Annotated[str, argument("CRONTAB", "Crontab file; - is standard input.")],
    user: Annotated[
        bool, option("Read a user's crontab, without a user column. This is the default.")
    ] = False,
    system: Annotated[
        bool, option("Read a crontab with a user column, like /etc/crontab.")
    ] = False,
    tz: Annotated[
        str | None,
        option("Time zone of its times, unless it sets CRON_TZ. (default: UTC)", metavar="ZONE"),
    ] = None,
    prefix: Annotated[str, option("Prefix of the schedules' names.", metavar="NAME")] = "crontab",
    skip_bad: Annotated[bool, option("Skip lines that can't be imported.")] = False,
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
    _show(session.screen, found, read.lines)
    _show_remarks(session.screen, read)
    if apply_it:
        _confirm(session, yes, from_stdin=crontab == "-")
        session.run(changing.apply(session.app, found, read.schedules, source="crontab"))
    remarks = {"warnings": read.warnings, "bad": read.bad}
    _report(session.screen, found, apply_it, read.lines, **remarks)
    if refused:
        session.screen.note("Nothing was imported: fix those lines, or use --skip-bad.")
        raise typer.Exit(1)
    if apply_it:
        session.screen.note(
            "These schedules run on workers that were started with --allow-commands."
        )


def _read(name: str) -> Source:
    if name == "-":
        return Source("<stdin>", sys.stdin.buffer.read(MAX_BYTES + 1))
    return Source.read(name)


def _crontab_text(name: str) -> str:
    source = _read(name)
    try:
        text = source.text()
    except ConfigError as error:
        raise ConfigError(f"{name} {error}") from None
    if "\0" in text:
        raise ConfigError(f"{name} has NUL characters: it is not a crontab")
    return text


# -- output


def _is_something(found: Sequence[Change]) -> bool:
    return any(change.action != "unchanged" for change in found)


def _show(screen: Screen, found: Sequence[Change], lines: dict[str, int] | None = None) -> None:
    if screen.structured:
        return
    for change in found:
        mark, style, *_ = _MARKS[change.action]
        kind = "" if change.kind == "schedule" else f"{change.kind} "
        line = f" (line {lines[change.name]})" if lines and change.name in lines else ""
        screen.say(f"{mark} {change.action} {kind}{change.name}{line}", style=style)
        for field in change.fields:
            before = "" if change.action == "create" else f"{_shown(field.old)} → "
            screen.say(f"    {field.field}: {before}{_shown(field.new)}")


def _shown(value: Any) -> str:
    if value is None:
        return "(default)"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = text.replace("\n", "⏎")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _show_remarks(screen: Screen, read: Crontab) -> None:
    if screen.structured:
        return
    for remark in read.warnings:
        screen.say(f"! line {remark.line}: {remark.message}", style="yellow")
    for remark in read.bad:
        screen.say(f"x line {remark.line}: {remark.message}", style="bold red")


def _report(
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
    parts = [
        f"{counts[action]} {words[3 if applied else 2]}"
        for action, words in _MARKS.items()
        if counts[action]
    ]
    screen.say(", ".join(parts) or "no schedules")
