"""Options of rules, shared by the commands that take one."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

import typer

from rota.core.time.schedule import All, CatchUp, Latest, NoCatchUp
from rota.errors import RotaError

_RULE = "Rule (one of)"
_ZONE = "Time zone"

CronOption = Annotated[
    str | None,
    typer.Option(
        "--cron", metavar="EXPRESSION", help="Cron expression: '30 2 * * *'.", rich_help_panel=_RULE
    ),
]
EveryOption = Annotated[
    str | None,
    typer.Option(
        "--every", metavar="DURATION", help="Interval: 15m, 1h30m.", rich_help_panel=_RULE
    ),
]
CalendarOption = Annotated[
    str | None,
    typer.Option(
        "--calendar", metavar="PHRASE", rich_help_panel=_RULE,
        help="Calendar rule: 'last business day of the month at 18:00'.",
    ),
]  # fmt: skip
RRuleOption = Annotated[
    str | None,
    typer.Option(
        "--rrule", metavar="RULE", help="Recurrence rule of RFC 5545.", rich_help_panel=_RULE
    ),
]
TzOption = Annotated[
    str | None,
    typer.Option(
        "--tz",
        metavar="ZONE",
        help="Time zone, such as Europe/Paris. (default: UTC)",
        rich_help_panel=_ZONE,
    ),
]
GapOption = Annotated[
    str | None,
    typer.Option(
        "--gap", metavar="next|skip|shift", rich_help_panel=_ZONE,
        help="What to do with a local time that a clock change skips.",
    ),
]  # fmt: skip
FoldOption = Annotated[
    str | None,
    typer.Option(
        "--fold", metavar="first|second|both", rich_help_panel=_ZONE,
        help="Which to use of a local time that a clock change repeats.",
    ),
]  # fmt: skip


def parse_catch_up(text: str) -> CatchUp:
    """Parse 'none', 'latest' or 'all', the latter two with a window: 'latest:1h'."""
    kind, _, window = text.strip().partition(":")
    makers: dict[str, Any] = {"latest": Latest, "all": All}
    if kind == "none" and not window:
        return NoCatchUp
    if kind not in makers:
        near = difflib.get_close_matches(kind, ["none", *makers], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise typer.BadParameter(f"{text!r} is none of none, latest[:1h], all[:1h]{hint}")
    try:
        made: CatchUp = makers[kind](window or None)
    except RotaError as error:
        raise typer.BadParameter(str(error)) from None
    return made
