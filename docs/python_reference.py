"""The reference of the Python API, made from the code: signatures, docstrings, fields, verbs."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

import rota
import rota.client
import rota.testing
from rota.client import cluster
from rota.client.jobs import Jobs as ClientJobs
from rota.client.runs import Runs as ClientRuns
from rota.client.runs import Workflows as ClientWorkflows
from rota.client.schedules import Schedules as ClientSchedules
from rota.node import Node
from rota.operations.endpoints import Endpoints
from rota.operations.events import Events
from rota.operations.history import History
from rota.operations.jobs import Jobs
from rota.operations.nodes import Nodes
from rota.operations.queues import Queues
from rota.operations.registry import Registry
from rota.operations.runs import Runs
from rota.operations.schedules import Schedules
from rota.operations.statistics import Statistics
from rota.operations.webhooks import Webhooks
from rota.operations.workflows import Workflows
from rota.run_handle import RunHandle
from rota.workflow import Workflow

# What is for Rota's own use in a class that is otherwise for everybody.
_INTERNAL = {
    "App": {"limits", "open_database", "require_task", "signatures", "store", "submitter"},
    "Schedules": {"put_all"},
    "app.workflows": {"put", "put_all", "put_declared", "declare", "find"},
    "app.runs": {"start_declared", "start_declared_sync", "new_declared", "input_of", "settings"},
    "Workflow": {"new_run", "__init__"},
    "JobInfo": {"of"},
    "Sandbox": {"__init__"},
}
_BUILT_IN = {object.__init__, Exception.__init__}
_NODE = ("run", "start", "stop", "running", "request_stop")

SECTIONS: list[tuple[str, str, list[tuple[str, Any]]]] = [
    (
        "Applications and tasks",
        "",
        [("App", rota.App), ("Task", rota.Task), ("Retry", rota.Retry)],
    ),
    (
        "Submitted jobs",
        "",
        [(name, getattr(rota, name)) for name in ("JobHandle", "Job", "Attempt", "Failure")],
    ),
    (
        "In a handler",
        "",
        [
            (name, getattr(rota, name))
            for name in (
                "Context",
                "SyncContext",
                "JobInfo",
                "OccurrenceInfo",
                "State",
                "Submission",
            )
        ],
    ),
    (
        "Workflows and durable functions",
        "",
        [
            ("Workflow", rota.Workflow),
            ("DurableFunction", rota.DurableFunction),
            ("DurableContext", rota.DurableContext),
            ("SyncDurableContext", rota.SyncDurableContext),
            ("RunHandle", rota.RunHandle),
        ],
    ),
    (
        "Asking and steering",
        "",
        [
            ("app.jobs", Jobs),
            ("app.queues", Queues),
            ("app.nodes", Nodes),
            ("app.registry", Registry),
            ("app.statistics", Statistics),
            ("app.history", History),
            *(
                (name, getattr(rota, name))
                for name in ("Explanation", "QueueStatus", "NodeStatus", "ShardStatus", "Takeover")
            ),
        ],
    ),
    (
        "Schedules",
        "",
        [
            ("app.schedules", Schedules),
            *(
                (name, getattr(rota, name))
                for name in ("ScheduleSpec", "CatchUp", "All", "Latest", "NoCatchUp")
            ),
            *(
                (name, getattr(rota, name))
                for name in ("ScheduleStatus", "OccurrenceStatus", "Audit")
            ),
        ],
    ),
    (
        "Workflows",
        "",
        [
            ("Workflow", Workflow),
            ("chain", rota.chain),
            ("group", rota.group),
            ("chord", rota.chord),
            ("app.workflows", Workflows),
            ("app.runs", Runs),
            ("RunHandle", RunHandle),
        ],
    ),
    (
        "Events, webhooks and endpoints",
        "",
        [
            ("app.events", Events),
            ("Event", rota.Event),
            ("app.webhooks", Webhooks),
            ("app.endpoints", Endpoints),
        ],
    ),
    ("Settings", "All of them are in [the table](settings.md).", []),
    ("Running a node", "", [("Node", Node)]),
    (
        "Testing",
        "`import rota.testing`",
        [
            ("isolated", rota.testing.isolated),
            ("Sandbox", rota.testing.Sandbox),
            ("EndlessRun", rota.testing.EndlessRun),
        ],
    ),
]
CLIENT = {
    "client.jobs": ClientJobs,
    "client.schedules": ClientSchedules,
    "client.workflows": ClientWorkflows,
    "client.runs": ClientRuns,
    "client.queues": cluster.Queues,
    "client.nodes": cluster.Nodes,
    "client.tasks": cluster.Tasks,
    "client.dead": cluster.Dead,
    "client.events": cluster.Events,
}

_CLIENT = """
`from rota.client import Client, AsyncClient`. With `AsyncClient` the methods are awaited, and lists and
streams are iterated with `async for`. [The guide](../guide/client.md) shows how.
"""


def python_reference() -> str:
    """Return the whole page, but for its head."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line for line in _lines())).strip()


def _lines() -> Iterator[str]:
    for title, text, members in SECTIONS:
        yield f"\n## {title}\n"
        yield text
        for name, thing in members:
            yield from _describe(name, thing)
    yield "\n## Errors\n\nThey can be imported from `rota`, too: [errors](errors.md).\n"
    yield "\n## The client\n"
    yield _CLIENT
    for name in ("Client", "AsyncClient"):
        yield from _describe(name, getattr(rota.client, name))
    for name, noun in CLIENT.items():
        yield f"\n### {name}\n"
        for verb, made in vars(noun).items():
            if not verb.startswith("_"):
                yield from _function(f"{name}.{verb}", made.function)
    for name in ("JobsRefused", "Accepted", "Cancelled", "JobResult", "ManySubmitted"):
        yield from _describe(name, getattr(rota.client, name))


def _describe(name: str, thing: Any) -> Iterator[str]:
    yield f"\n### {name}\n\n"
    if not callable(thing):
        yield f"`{thing!r}`\n"
        return
    if not inspect.isclass(thing):
        yield _signature(name, thing)
        yield _prose(thing.__doc__)
        return
    fields = list(_fields(thing))
    if not fields and _is_made_by_users(name, thing):
        yield _signature(name, thing)
    yield _prose(thing.__doc__)
    if name in ("Client", "AsyncClient"):
        yield _prose(thing.__init__.__doc__)
    if fields:
        yield "\n| field | type | default |\n| --- | --- | --- |"
        yield from fields
    owner = name if "." in name else name[0].lower() + name[1:]
    for each, member in _members(name, thing):
        if isinstance(member, property):
            yield f"\n#### {owner}.{each}\n\n"
            yield _prose(member.__doc__)
        else:
            yield from _function(f"{owner}.{each}", member)


def _is_made_by_users(name: str, thing: type) -> bool:
    if name.startswith("app.") or "__init__" in _INTERNAL.get(name, ()):
        return False
    return thing.__init__ not in _BUILT_IN


def _members(name: str, thing: type) -> Iterator[tuple[str, Any]]:
    found: dict[str, Any] = {}
    for base in reversed(thing.__mro__):
        if base.__module__.startswith("rota"):
            found |= vars(base)
    for each, member in found.items():
        hidden = each.startswith("_") or each in _INTERNAL.get(name, ())
        if hidden or (name == "Node" and each not in _NODE):
            continue
        function = getattr(member, "__func__", member)  # of a static or class method
        if isinstance(member, property) or inspect.isfunction(function):
            yield each, function


def _function(name: str, function: Any) -> Iterator[str]:
    yield f"\n#### {name}\n\n"
    yield _signature(name, function)
    yield _prose(function.__doc__)


def _signature(name: str, thing: Any) -> str:
    """Return its signature as written, wrapped when it is long. The last overload has all options."""
    found = inspect.signature((typing.get_overloads(thing) or [thing])[-1])
    parameters = list(_parameters(found))
    returns = "" if inspect.isclass(thing) else _annotation(found.return_annotation)
    before = "await " if inspect.iscoroutinefunction(thing) else ""
    line = f"{before}{name}({', '.join(parameters)})"
    if len(line) > 100:
        inner = ",\n    ".join(parameters)
        line = f"{before}{name}(\n    {inner},\n)"
    return f"```text\n{line}{f' -> {returns}' if returns else ''}\n```\n"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    stars: dict[Any, str] = {
        inspect.Parameter.VAR_POSITIONAL: "*",
        inspect.Parameter.VAR_KEYWORD: "**",
    }
    before: Any = None
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if before is inspect.Parameter.POSITIONAL_ONLY is not parameter.kind:
            yield "/"
        keyword = inspect.Parameter.KEYWORD_ONLY
        if parameter.kind is keyword and before not in (keyword, inspect.Parameter.VAR_POSITIONAL):
            yield "*"
        before = parameter.kind
        text = stars.get(parameter.kind, "") + parameter.name
        if parameter.annotation is not inspect.Parameter.empty:
            text += f": {_annotation(parameter.annotation)}"
        if parameter.default is not inspect.Parameter.empty:
            text += f" = {parameter.default!r}"
        yield text


def _annotation(annotation: Any) -> str:
    if annotation is inspect.Signature.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"^Exchange\[(.*)\]$", r"\1", text)
    text = re.sub(r"\b(Pages|Stream)\[", "Iterator[", text)
    text = text.replace("Iterator[LogLine] | Iterator[LogLine]", "Iterator[LogLine]")
    return re.sub(r"\b(wire|bulk)\.", "", text)


def _fields(thing: type) -> Iterator[str]:
    notes = {
        name: note for base in reversed(thing.__mro__)
        for name, note in inspect.get_annotations(base).items()
    }  # fmt: skip
    defaults: list[tuple[str, Any]] = []
    if issubclass(thing, msgspec.Struct):
        defaults = [(field.name, _default(field)) for field in msgspec.structs.fields(thing)]
    elif dataclasses.is_dataclass(thing):
        defaults = [(field.name, _default(field)) for field in dataclasses.fields(thing)]
    for name, default in defaults:
        kind = str(notes[name]).replace("|", "\\|")  # in a table, "|" ends a cell
        yield f"| `{name}` | `{kind}` | {default} |"


def _default(field: Any) -> str:
    missing = (msgspec.NODEFAULT, dataclasses.MISSING)
    if field.default not in missing:
        return f"`{field.default!r}`"
    return "" if field.default_factory in missing else f"`{field.default_factory()!r}`"


def _prose(docstring: str | None) -> str:
    """Return a docstring as Markdown: arguments as a list, literal blocks fenced."""
    text = inspect.cleandoc(docstring or "")
    body, _, arguments = text.partition("\nArgs:\n")
    body = re.sub(r"``([^`]+)``", r"`\1`", body)
    listed = re.sub(r"``([^`]+)``", r"`\1`", inspect.cleandoc("\n" + arguments))
    items = [_item(line) for line in listed.splitlines()]
    return "\n".join([body, "", *items, ""])


def _item(line: str) -> str:
    found = re.match(r"(\w+): (.*)", line)
    return f"- `{found[1]}`: {found[2]}" if found else f"  {line.strip()}"
