"""`rota tasks`: the tasks that nodes have registered, with what they take and return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from rota.cli.options import argument, option
from rota.cli.output import facts, first_line, pretty, table
from rota.cli.session import Session, callback, command
from rota.core.durations import format_duration
from rota.core.resources import said_public
from rota.model import TaskInfo
from rota.operations.statistics import WITHIN

Name = Annotated[str, argument("NAME", "Name of the task.")]

group = typer.Typer(help="List and show registered tasks, and statistics of their runs.")
_MOST = 1_000


@callback(group)
@command(group, "list")
def list_tasks(session: Session) -> None:
    """List the tasks that nodes have registered."""
    found = session.run(session.app.registry.list(limit=_MOST))
    session.screen.listing(
        found, "No node has registered a task so far. Start one: rota start module:app",
        ("task", "queue", "guarantee", "workers", "arguments"),
        (
            (each.name, each.queue, each.guarantee, f"{each.workers:,}",
             ", ".join((each.arguments or {}).get("properties", {})))
            for each in found
        ),
        right=["workers"], whole=["task"],
    )  # fmt: skip


@command(group, "show")
def show(session: Session, name: Name) -> None:
    """Show a task: its options, and the JSON Schemas of its arguments and its result."""
    task = session.run(session.app.registry.get(name))
    screen = session.screen
    if screen.structured:
        screen.document(task)
        return
    screen.show(facts(_facts(task)))
    if arguments := list(_arguments(task.arguments or {})):
        screen.show(table(("argument", "required", "type"), arguments, whole=["argument"]))
    if task.returns:
        screen.say("returns")
        screen.show(pretty(task.returns))


@command(group, "stats")
def stats(
    session: Session,
    name: Name,
    within: Annotated[str, option(f"Stretch of time: {', '.join(WITHIN)}.")] = "1h",
) -> None:
    """Show how often a task ran and failed, how long it took, and how late it began."""
    found = session.run(session.app.statistics.task(name, within))
    screen = session.screen
    if screen.structured:
        screen.document(found)
        return
    share = found.failed / found.runs if found.runs else 0.0
    rows = {"runs": f"{found.runs:,}", "failed": f"{found.failed:,} ({share:.1%})"}
    for label, values in (("took", found.duration), ("began late by", found.lag)):
        for quantile, seconds in (values or {}).items():
            rows[f"{label}, {quantile}"] = format_duration(seconds)
    screen.show(facts(rows))


def _facts(task: TaskInfo) -> dict[str, Any]:
    return {
        "task": task.name, "about": first_line(task.description) or None, "queue": task.queue,
        "needs": ", ".join(task.needs) or None,
        "resources": said_public(task.resources) or None, "near": task.near, "guarantee": task.guarantee,
        "attempts": f"{task.max_attempts:,}",
        "timeout": None if task.timeout is None else format_duration(task.timeout),
        "version": task.version if task.version > 1 else None, "workers": f"{task.workers:,}",
    }  # fmt: skip


def _arguments(schema: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    for name, own in schema.get("properties", {}).items():
        yield name, "yes" if name in schema.get("required", ()) else "", _type(own)


def _type(schema: dict[str, Any]) -> str:
    """Return a schema in a few words; `--json` has all of it."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_type(each) for each in schema["anyOf"]))
    if reference := schema.get("$ref"):
        return str(reference).rpartition("/")[2]
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    kind = str(schema.get("type", "any"))
    if kind == "array" and schema.get("items"):
        return f"array of {_type(schema['items'])}"
    return f"{kind} ({schema['format']})" if "format" in schema else kind
