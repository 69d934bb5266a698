"""`rota schedules create`: make a schedule, or change it from now on."""

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
from rota.core.time.schedule import CatchUp
from rota.operations.schedule_spec import make_spec

_LIMITS = "Limits"
_JOBS = "Its jobs"


def add_to(group: typer.Typer) -> None:
    command(group, "create")(create)


def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Unique in the namespace.")],
    task: Annotated[str, typer.Option(metavar="NAME", help="The task to run.")],
    cron: CronOption = None,
    every: EveryOption = None,
    calendar: CalendarOption = None,
    rrule: RRuleOption = None,
    tz: TzOption = None,
    gap: GapOption = None,
    fold: FoldOption = None,
    payload: Annotated[
        str,
        typer.Option(help="The arguments as a JSON object; @FILE, or - for the input."),
    ] = "{}",
    overlap: Annotated[
        str | None,
        typer.Option(metavar="skip|queue|allow|kill", help="When the last run isn't over."),
    ] = None,
    catch_up: Annotated[
        CatchUp | None,
        typer.Option(
            metavar="none|latest|all[:WINDOW]", parser=parse_catch_up,
            help="After an outage or a pause: latest:1h runs the newest of the last hour.",
        ),
    ] = None,
    starts: Annotated[
        When | None,
        typer.Option(metavar="TIME", parser=parse_when, rich_help_panel=_LIMITS,
                     help="2027-01-31T09:00+01:00, 2027-01-31 (UTC), now or +3h."),
    ] = None,
    ends: Annotated[
        When | None,
        typer.Option(metavar="TIME", parser=parse_when, rich_help_panel=_LIMITS,
                     help="In the same ways; not included."),
    ] = None,
    spread: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=_LIMITS,
                     help="Always later by a fixed part of this, which its name decides."),
    ] = None,
    jitter: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=_LIMITS,
                     help="Later by another part of this each time."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="CALENDAR", rich_help_panel=_LIMITS,
                     help="Not on its days. Repeatable."),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option(metavar="CALENDAR", rich_help_panel=_LIMITS,
                     help="Only on its days. Repeatable."),
    ] = None,
    queue: Annotated[str | None, typer.Option(rich_help_panel=_JOBS)] = None,
    priority: Annotated[
        int | None, typer.Option(rich_help_panel=_JOBS, help="Higher goes first.")
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=_JOBS,
                     help="How long an attempt may take."),
    ] = None,
    heartbeat_timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", rich_help_panel=_JOBS,
                     help="How long an attempt may give no sign of life."),
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(min=1, rich_help_panel=_JOBS, help="How often a job may be tried in all."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(rich_help_panel=_JOBS, help="A name to find it by. Repeatable."),
    ] = None,
    about: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    app: Annotated[
        str | None,
        typer.Option(metavar="MODULE:APP", help="Check the arguments against the task in there."),
    ] = None,
) -> None:  # fmt: skip
    """Create a schedule, or change it from now on. Options that aren't given have their default."""
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
    if session.screen.as_json:
        session.screen.json(
            {"schedule": name, "change": change, "next_due": status.next_due, "warnings": warnings}
        )
        return
    coming = relative(status.next_due, database_time(session)) if status.next_due else "never"
    session.screen.say(f"{change} {name}: {status.in_words}; next {coming}")
    for told in warnings:
        session.screen.note(f"Warning: {told}")


def _moment(session: Session, when: When | None) -> Any:
    """The database is only asked when it has to be."""
    if when is None or when.moment is not None:
        return when and when.moment
    return when.at(database_time(session))


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
