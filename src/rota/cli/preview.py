"""`rota schedules preview`: the next occurrences of a rule, and how clock changes affect them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from rota.cli.clock_changes import Previewed, previewed
from rota.cli.options import argument, duration, moment, option
from rota.cli.output import Screen, plain
from rota.cli.schedule_views import preview_table
from rota.cli.schedules import schedules_group
from rota.cli.session import Session, command
from rota.cli.times import When
from rota.core.time.recurrence import Recurrence
from rota.core.time.schedule import Cron, ScheduleSpec, compile_schedule, make_spec
from rota.core.time.words import describe

_NAMELESS = "preview"
_RULE = "Rule (one of)"
_ZONE = "Time zone"

Every = Annotated[float | None, duration("Interval: 15m, 1h30m.", "--every", panel=_RULE)]
CalendarRule = Annotated[
    str | None,
    option("Calendar rule: 'last business day of the month at 18:00'.", "--calendar",
           metavar="PHRASE", panel=_RULE),
]  # fmt: skip
RRule = Annotated[
    str | None,
    option("Recurrence rule of RFC 5545.", "--rrule", metavar="RULE", panel=_RULE),
]
Tz = Annotated[
    str | None,
    option("Time zone, such as Europe/Paris. (default: UTC)", metavar="ZONE", panel=_ZONE),
]
Gap = Annotated[
    str | None,
    option("Policy for local times that a clock change skips.", metavar="next|skip|shift",
           panel=_ZONE),
]  # fmt: skip
Fold = Annotated[
    str | None,
    option("Policy for local times that a clock change repeats.",
           metavar="first|second|both", panel=_ZONE),
]  # fmt: skip


@command(schedules_group, "preview")
def preview(
    session: Session,
    what: Annotated[
        str | None, argument("CRON|NAME", "A cron expression, or the name of a stored schedule.")
    ] = None,
    every: Every = None,
    calendar: CalendarRule = None,
    rrule: RRule = None,
    tz: Tz = None,
    gap: Gap = None,
    fold: Fold = None,
    after: Annotated[
        When | None,
        moment("Start from this time instead of now. A full time needs no database."),
    ] = None,
    count: Annotated[int, option("Number of occurrences to show.", min=1, max=1000)] = 10,
    name: Annotated[
        str, option("Name of the future schedule: H and spread depend on it.")
    ] = _NAMELESS,
) -> None:
    """Preview the next occurrences of a rule or schedule, with the effects of clock changes."""
    rules: dict[str, Any] = {"every": every, "calendar": calendar, "rrule": rrule}
    policies = {"tz": tz, "gap": gap, "fold": fold}
    given: dict[str, Any] = {key: value for key, value in policies.items() if value is not None}
    if what is not None and not is_cron(what):
        if any(rules.values()):
            raise typer.BadParameter("give either a schedule's name or a rule", param_hint="NAME")
        spec, recurrence = _stored(session, what, given)
    else:
        spec = make_spec(name, _NAMELESS, cron=what, **rules, **given)
        recurrence = compile_schedule(spec)
    # With a rule and a full time, the database isn't opened.
    rows = previewed(recurrence, session.at(after) or session.now, count)
    show_preview(session.screen, spec, rows)


def is_cron(text: str) -> bool:
    """Return whether text is a cron expression: names of schedules have no spaces."""
    return text.startswith("@") or len(text.split()) > 1


def _stored(session: Session, name: str, given: dict[str, Any]) -> tuple[ScheduleSpec, Recurrence]:
    spec = session.run(session.app.schedules.get(name)).readable
    spec = msgspec.structs.replace(spec, **given)
    return spec, session.run(session.app.schedules.compile_spec(spec))


def show_preview(screen: Screen, spec: ScheduleSpec, rows: Sequence[Previewed]) -> None:
    if screen.structured:
        screen.document(rows)
        return
    screen.say(Text.assemble((plain(describe(spec)), "bold"), f"  gap={spec.gap} fold={spec.fold}"))
    if spec.name == _NAMELESS and isinstance(spec.rule, Cron) and _has_spread(spec.rule):
        screen.note("H depends on the name of the schedule: give it with --name.")
    if not rows:
        screen.note("No occurrences after that time.")
        return
    screen.say("")
    screen.show(preview_table(rows))


def _has_spread(rule: Cron) -> bool:
    parts = rule.expression.upper().replace(",", " ").split()
    return any(part.startswith("H") for part in parts)
