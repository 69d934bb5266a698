"""`rota schedules preview`: the next occurrences of a rule, and how clock changes affect them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from rota.cli.jumps import Previewed, previewed
from rota.cli.moments import When, database_time, parse_when
from rota.cli.output import Screen, plain, table
from rota.cli.schedule_options import (
    CalendarOption,
    EveryOption,
    FoldOption,
    GapOption,
    RRuleOption,
    TzOption,
)
from rota.cli.session import Session, command
from rota.core.time.recurrence import Recurrence
from rota.core.time.schedule import Cron, ScheduleSpec, compile_schedule, make_spec
from rota.core.time.words import describe

_NAMELESS = "preview"


def add_to(group: typer.Typer) -> None:
    command(group, "preview")(preview)


def preview(
    session: Session,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="CRON|NAME", help="A cron expression, or the name of a stored schedule."
        ),
    ] = None,
    every: EveryOption = None,
    calendar: CalendarOption = None,
    rrule: RRuleOption = None,
    tz: TzOption = None,
    gap: GapOption = None,
    fold: FoldOption = None,
    after: Annotated[
        When | None,
        typer.Option(
            "--after", metavar="TIME", parser=parse_when,
            help="Start from this time instead of now. A full time needs no database.",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option(min=1, max=1000, help="Number of occurrences to show.")
    ] = 10,
    name: Annotated[
        str, typer.Option(help="Name of the future schedule: H and spread depend on it.")
    ] = _NAMELESS,
) -> None:  # fmt: skip
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
    # A rule and a moment are all it takes: then nothing is opened.
    start = after.moment if after and after.moment else None
    if start is None:
        start = (after or When()).at(database_time(session))
    rows = previewed(recurrence, start, count)
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


def preview_table(rows: Sequence[Previewed]) -> Any:
    moved = any(row.due_at != row.utc for row in rows)
    seconds = any(row.asked.second for row in rows)
    columns = ["local", "UTC", *(["due"] if moved else []), "remark"]
    shown = table(*columns, whole=["local", "UTC", "due"])
    for row in rows:
        cells: list[Any] = [local_time(row.local, seconds), utc_time(row.utc, seconds)]
        if moved:
            cells.append("-" if row.due_at is None else f"{row.due_at:%H:%M:%S.%f}"[:-3])
        remark = Text(plain(row.remark or ""), style="yellow" if row.runs else "red")
        shown.add_row(*cells, remark)
    return shown


def local_time(moment: datetime | None, seconds: bool = False) -> str:
    """Format a local time with its offset, which tells repeated local times apart."""
    if moment is None:
        return "-"
    offset = f"{moment:%z}"
    clock = f"{moment:%H:%M:%S}" if seconds else f"{moment:%H:%M}"
    return f"{moment:%a %Y-%m-%d} {clock} {offset[:3]}:{offset[3:5]}"


def utc_time(moment: datetime | None, seconds: bool = False) -> str:
    if moment is None:
        return "-"
    return f"{moment:%Y-%m-%d %H:%M:%S}" if seconds else f"{moment:%Y-%m-%d %H:%M}"
