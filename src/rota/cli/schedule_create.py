"""`rota schedules create`: create a schedule, or change it from now on."""

from __future__ import annotations

import difflib
import logging
from typing import Annotated, Any

import typer

from rota.cli import options
from rota.cli.options import argument, duration, given, moment, option
from rota.cli.preview import CalendarRule, Every, Fold, Gap, RRule, Tz
from rota.cli.schedules import schedules_group
from rota.cli.session import Session, command
from rota.cli.submit import read_payload
from rota.cli.times import When, relative
from rota.core.time.schedule import All, CatchUp, Latest, NoCatchUp, make_spec
from rota.errors import RotaError

_LIMITS = "Limits"


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


@command(schedules_group, "create")
def create(
    session: Session,
    name: Annotated[str, argument("NAME", "Name of the schedule, unique in the namespace.")],
    task: Annotated[
        str | None, option("Name of the task to run.", metavar="NAME", panel="What to run (one of)")
    ] = None,
    workflow: Annotated[
        str | None,
        option("Name of the workflow to start.", metavar="NAME", panel="What to run (one of)"),
    ] = None,
    cron: Annotated[
        str | None,
        option("Cron expression: '30 2 * * *'.", metavar="EXPRESSION", panel="Rule (one of)"),
    ] = None,
    every: Every = None,
    calendar: CalendarRule = None,
    rrule: RRule = None,
    tz: Tz = None,
    gap: Gap = None,
    fold: Fold = None,
    payload: Annotated[str, option(options.PAYLOAD)] = "{}",
    overlap: Annotated[
        str | None,
        option("Policy for an occurrence that is due while the previous run is still running.",
               metavar="skip|queue|allow|kill"),
    ] = None,
    catch_up: Annotated[
        CatchUp | None,
        option("Missed occurrences to run after an outage or a pause; latest:1h: the newest of an hour.",
               metavar="none|latest|all[:WINDOW]", parser=parse_catch_up),
    ] = None,
    starts: Annotated[When | None, moment(f"Start: {options.TIMES}", panel=_LIMITS)] = None,
    ends: Annotated[When | None, moment("End, not included.", panel=_LIMITS)] = None,
    spread: Annotated[
        float | None,
        duration("Maximum delay, the same for all runs; it depends on the schedule's name.",
                 panel=_LIMITS),
    ] = None,
    jitter: Annotated[
        float | None, duration("Maximum random delay of each run.", panel=_LIMITS)
    ] = None,
    exclude: Annotated[
        list[str] | None,
        option("Calendar of days without runs. Repeatable.", metavar="CALENDAR",
               panel=_LIMITS),
    ] = None,
    include: Annotated[
        list[str] | None,
        option("Calendar of the only days with runs. Repeatable.", metavar="CALENDAR",
               panel=_LIMITS),
    ] = None,
    queue: Annotated[str | None, option("Queue of its jobs.")] = None,
    priority: options.Priority = None,
    timeout: options.Timeout = None,
    heartbeat_timeout: options.HeartbeatTimeout = None,
    max_attempts: options.MaxAttempts = None,
    tag: options.Tags = None,
    about: Annotated[str | None, option("Description.")] = None,
    app: options.AppOption = None,
) -> None:  # fmt: skip
    """Create a schedule, or replace it from now on. Omitted options get their defaults."""
    job_options = given(
        queue=queue, priority=priority, timeout=timeout, heartbeat_timeout=heartbeat_timeout,
        max_attempts=max_attempts,
    )  # fmt: skip
    rota = session.app_with(task, app)
    if (task is None) == (workflow is None):
        raise typer.BadParameter("give either --task or --workflow")
    settings = given(
        cron=cron, every=every, calendar=calendar, rrule=rrule, tz=tz, gap=gap, fold=fold,
        payload=read_payload(payload) or None, overlap=overlap, catch_up=catch_up, spread=spread,
        jitter=jitter, starts=session.at(starts), ends=session.at(ends), exclude=exclude,
        include=include, tags=tag, description=about, options=job_options,
    )  # fmt: skip
    spec = make_spec(name, task or "", workflow=workflow, **settings)
    logging.getLogger("rota.schedules").setLevel(logging.ERROR)  # its warnings are shown below
    saved = session.run(rota.schedules.put(spec, source="cli"))
    status, warnings = saved.status, saved.status.warnings
    coming = relative(status.next_due, session.now) if status.next_due else "never"
    session.screen.answer(
        {"schedule": name, "change": saved.change, "next_due": status.next_due,
         "warnings": warnings},
        f"{saved.change} {name}: {status.in_words}; next {coming}",
    )  # fmt: skip
    for warning in warnings:
        session.screen.note(f"Warning: {warning}")
