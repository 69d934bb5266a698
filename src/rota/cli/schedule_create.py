"""`rota schedules create`: create a schedule, or change it from now on."""

from __future__ import annotations

import logging
from typing import Annotated, Any

import typer

from rota.cli.moments import When, database_time, parse_when
from rota.cli.schedule_options import (
    CalendarOption,
    CronOption,
    EveryOption,
    FoldOption,
    GapOption,
    RRuleOption,
    TzOption,
    parse_catch_up,
)
from rota.cli.session import Session, command
from rota.cli.submit import read_payload
from rota.cli.times import parse_duration, relative
from rota.core.time.schedule import CatchUp, make_spec

_LIMITS = "Limits"
_JOBS = "Jobs"


def add_to(group: typer.Typer) -> None:
    command(group, "create")(create)


def create(
    session: Session,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the schedule, unique in the namespace.")
    ],
    task: Annotated[str, typer.Option(metavar="NAME", help="Name of the task to run.")],
    cron: CronOption = None,
    every: EveryOption = None,
    calendar: CalendarOption = None,
    rrule: RRuleOption = None,
    tz: TzOption = None,
    gap: GapOption = None,
    fold: FoldOption = None,
    payload: Annotated[
        str,
        typer.Option(help="Arguments as a JSON object; @FILE reads a file, - standard input."),
    ] = "{}",
    overlap: Annotated[
        str | None,
        typer.Option(metavar="skip|queue|allow|kill",
                     help="What to do when the previous run is still running."),
    ] = None,
    catch_up: Annotated[
        CatchUp | None,
        typer.Option(
            metavar="none|latest|all[:WINDOW]", parser=parse_catch_up,
            help="What to run after an outage or a pause; latest:1h: the newest of the last hour.",
        ),
    ] = None,
    starts: Annotated[
        When | None,
        typer.Option(metavar="TIME", parser=parse_when, rich_help_panel=_LIMITS,
                     help="First moment: 2027-01-31T09:00+01:00, 2027-01-31 (UTC), now or +3h."),
    ] = None,
    ends: Annotated[
        When | None,
        typer.Option(metavar="TIME", parser=parse_when, rich_help_panel=_LIMITS,
                     help="Last moment, not included."),
    ] = None,
    spread: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=_LIMITS,
                     help="Delay every run by a fixed part of this, which its name decides."),
    ] = None,
    jitter: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=_LIMITS,
                     help="Delay each run by a random part of this."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="CALENDAR", rich_help_panel=_LIMITS,
                     help="Calendar on whose days it doesn't run. Repeatable."),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(metavar="CALENDAR", rich_help_panel=_LIMITS,
                     help="Calendar on whose days alone it runs. Repeatable."),
    ] = None,
    queue: Annotated[str | None, typer.Option(rich_help_panel=_JOBS, help="Queue of its jobs.")] = None,
    priority: Annotated[
        int | None,
        typer.Option(rich_help_panel=_JOBS,
                     help="Priority: higher goes first; a point is worth a minute of waiting."),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=_JOBS,
                     help="Maximum duration of an attempt."),
    ] = None,
    heartbeat_timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=_JOBS,
                     help="Maximum time of an attempt without a sign of life."),
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(min=1, rich_help_panel=_JOBS, help="Maximum number of attempts."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(rich_help_panel=_JOBS, help="Tag to find it by. Repeatable."),
    ] = None,
    about: Annotated[str | None, typer.Option(help="Description.")] = None,
    app: Annotated[
        str | None,
        typer.Option(metavar="MODULE:APP", help="App whose task the arguments are checked against."),
    ] = None,
) -> None:  # fmt: skip
    """Create a schedule, or change it from now on. An omitted option has its default."""
    chosen: dict[str, Any] = {
        "queue": queue, "priority": priority,
        "timeout": None if timeout is None else parse_duration(timeout),
        "heartbeat_timeout": None if heartbeat_timeout is None else parse_duration(heartbeat_timeout),
        "max_attempts": max_attempts,
    }  # fmt: skip
    rota = session.load(app) if app else session.app
    if app:
        rota.require_task(task)
    settings: dict[str, Any] = {
        "cron": cron, "every": every, "calendar": calendar, "rrule": rrule,
        "tz": tz, "gap": gap, "fold": fold,
        "payload": read_payload(payload) or None,
        "overlap": overlap, "catch_up": catch_up, "spread": spread, "jitter": jitter,
        "starts": _moment(session, starts), "ends": _moment(session, ends),
        "exclude": exclude, "include": include, "tags": tag, "description": about,
        "options": _given(chosen),
    }  # fmt: skip
    spec = make_spec(name, task, **_given(settings))
    logging.getLogger("rota.schedules").setLevel(logging.ERROR)  # its warnings are shown below
    saved = session.run(rota.schedules.put(spec, source="cli"))
    change, status, warnings = saved.change, saved.status, saved.status.warnings
    if session.screen.structured:
        session.screen.document(
            {"schedule": name, "change": change, "next_due": status.next_due, "warnings": warnings}
        )
        return
    coming = relative(status.next_due, database_time(session)) if status.next_due else "never"
    session.screen.say(f"{change} {name}: {status.in_words}; next {coming}")
    for told in warnings:
        session.screen.note(f"Warning: {told}")


def _moment(session: Session, when: When | None) -> Any:
    """Return a moment; only a relative one needs the database's time."""
    if when is None or when.moment is not None:
        return when and when.moment
    return when.at(database_time(session))


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
