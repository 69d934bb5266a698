"""Options and arguments: shorthands to define them, and those that several commands have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from rota.cli.times import When, parse_duration, parse_when


def argument(metavar: str, text: str, **settings: Any) -> Any:
    return typer.Argument(metavar=metavar, help=text, **settings)


def option(text: str, *names: str, panel: str | None = None, **settings: Any) -> Any:
    """Define an option by its help text. It is named after its parameter, unless names are given."""
    return typer.Option(*names, help=text, rich_help_panel=panel, **settings)


def duration(text: str, *names: str, panel: str | None = None) -> Any:
    return option(text, *names, panel=panel, metavar="DURATION", parser=parse_duration)


def moment(text: str, *names: str, panel: str | None = None) -> Any:
    return option(text, *names, panel=panel, metavar="TIME", parser=parse_when)


def parse_unique(text: str | None) -> float | str | None:
    """Read `waiting`, `unfinished` or a duration."""
    return text if text in (None, "waiting", "unfinished") else parse_duration(text)


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


_ATTEMPTS = "Attempts"
_MANY = "Maximum number of results."
TIMES = "2027-01-31T09:00+01:00, 2027-01-31 (UTC), now, -2d or +3h."

Yes = Annotated[bool, option("Skip the confirmation prompt.", "--yes", "-y")]
DryRun = Annotated[bool, option("Show what would change, and change nothing.")]
Limit = Annotated[int, option(_MANY, min=1, max=10_000)]
LongLimit = Annotated[int, option(_MANY, min=1, max=100_000)]
Since = Annotated[When | None, moment(f"Only show what happened at or after this time: {TIMES}")]
Until = Annotated[When | None, moment("Only show what happened before this time.")]
From = Annotated[When | None, moment(f"Start of the period: {TIMES}", "--from")]
To = Annotated[When | None, moment("End of the period, not included.", "--to")]
AllNamespaces = Annotated[
    bool, option("Include all namespaces, not only this one.", "--all-namespaces", "-A")
]
UserRole = Annotated[
    str, option("Role: viewer, operator, admin or your own; several as a,b.", "--role")
]
TokenRole = Annotated[
    str, option("Role: viewer, operator, admin, worker or your own; several as a,b.", "--role")
]
NamespaceName = Annotated[str, argument("NAMESPACE", "Name of the namespace.")]

# Of a job, for `rota jobs submit` and `rota schedules create`.
PAYLOAD = "Arguments as a JSON object; @FILE reads a file, - standard input."
AppOption = Annotated[
    str | None,
    option("App whose task the arguments are checked against.", "--app", metavar="MODULE:APP"),
]
Tags = Annotated[list[str] | None, option("Tag to find it by. Repeatable.", "--tag")]
Need = Annotated[
    list[str] | None, option("Capability that a worker must have. Repeatable.", "--need")
]
ResourceOption = Annotated[
    list[str] | None,
    option("What it takes of its node, such as memory=2GB or gpu=1. Repeatable.", "--resource",
           metavar="NAME=AMOUNT"),
]  # fmt: skip
Priority = Annotated[
    int | None,
    option("Priority: higher goes first; a point is worth a minute of waiting."),
]
_UNIQUE = "Unique jobs"
UniqueOption = Annotated[
    str | None,
    option("One job only: while it is waiting or unfinished, or in a time such as 1h.", "--unique",
           panel=_UNIQUE, metavar="waiting|unfinished|DURATION"),
]  # fmt: skip
UniqueKey = Annotated[
    str | None, option("Key that it is unique by; its arguments by default.", panel=_UNIQUE)
]
UniqueConflictOption = Annotated[
    Literal["return", "refuse", "replace"] | None,
    option("What to do if there is such a job: return it (the default), refuse, or replace its "
           "arguments while it waits.", "--unique-conflict", panel=_UNIQUE),
]  # fmt: skip
Debounce = Annotated[float | None, duration("Run it so long after the last submit.", panel=_UNIQUE)]
DebounceMax = Annotated[
    float | None, duration("Run it so long after the first submit at the latest.", panel=_UNIQUE)
]
Throttle = Annotated[
    float | None, duration("Store one job in this time; later submits return it.", panel=_UNIQUE)
]
ThrottleKeepOption = Annotated[
    Literal["first", "last"] | None,
    option("Which submit to keep; last also keeps the last one for the end of the time.",
           "--throttle-keep", panel=_UNIQUE),
]  # fmt: skip
MaxAttempts = Annotated[int | None, option("Maximum number of attempts.", min=1, panel=_ATTEMPTS)]
Timeout = Annotated[float | None, duration("Maximum duration of an attempt.", panel=_ATTEMPTS)]
HeartbeatTimeout = Annotated[
    float | None, duration("Maximum time of an attempt without a heartbeat.", panel=_ATTEMPTS)
]
