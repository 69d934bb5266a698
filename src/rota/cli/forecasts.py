"""`rota schedules forecast`: the coming days' occurrences against durations and worker slots."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import Annotated, Literal

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from rota.cli.forecast_grid import Chart, Grid, make_grid
from rota.cli.moments import database_time
from rota.cli.output import plain, table
from rota.cli.session import Session, command
from rota.cli.times import parse_duration
from rota.core.durations import format_duration
from rota.core.time.forecast import Forecast, Load, PileUp, forecast
from rota.core.time.recurrence import Recurrence
from rota.core.time.zones import zone
from rota.errors import ConfigError
from rota.operations.schedule_reads import Measured

_HOUR = 3600.0
_BARS = "·▁▂▃▄▅▆▇█"
_STYLES = ("dim", "green", "green", "green", "green", "yellow", "yellow", "red", "red")
_MOST = 10


class Usual(msgspec.Struct, frozen=True):
    """The duration that is assumed for a task's runs, and its source."""

    seconds: float
    source: Literal["measured", "given", "assumed"]


def parse_given(text: str) -> tuple[str, float]:
    task, equals, length = text.rpartition("=")
    if not equals or not task:
        raise typer.BadParameter(f"{text!r} is not TASK=DURATION, e.g. report=20m")
    return task, parse_duration(length)


def add_to(group: typer.Typer) -> None:
    command(group, "forecast")(show_forecast)


def show_forecast(
    session: Session,
    days: Annotated[int, typer.Option(min=1, max=92, help="Number of days to forecast.")] = 7,
    slots: Annotated[
        int | None,
        typer.Option(min=1, help="Number of worker slots. (default: those of the live workers)"),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--duration", metavar="TASK=DURATION",
            help="Duration of a task instead of the measured one: report=20m. Repeatable.",
        ),
    ] = None,
    assume: Annotated[
        str, typer.Option(metavar="DURATION", help="Duration of tasks that were never measured.")
    ] = "1s",
    tz: Annotated[
        str, typer.Option(metavar="ZONE", help="Time zone of the hours that are shown.")
    ] = "UTC",
) -> None:  # fmt: skip
    """Forecast the load of the coming days: occurrences against durations and worker slots."""
    chosen = dict(parse_given(text) for text in given or ())
    show_in = zone(tz)
    free = slots or session.run(_live_slots(session))
    measured = session.run(session.app.schedules.measure())
    usual = _usual(measured, chosen, parse_duration(assume))
    start = database_time(session).replace(minute=0, second=0, microsecond=0)
    end = start + timedelta(days=days)
    found = forecast(_loads(measured, usual), start, end, free, _HOUR)
    chart = Chart(found, make_grid(found, free, show_in), free, tz)
    if session.screen.structured:
        session.screen.document(_document(found, start, end, free, usual))
    elif not measured.watched:
        session.screen.note("No schedules: nothing to forecast.")
    else:
        _draw(session, chart, usual)


async def _live_slots(session: Session) -> int:
    nodes = await session.app.nodes.list()
    free = sum(node.slots for node in nodes if node.state == "live" and "worker" in node.roles)
    if not free:
        raise ConfigError("no worker is alive, so their slots are unknown: give --slots N")
    return free


def _usual(measured: Measured, given: dict[str, float], assumed: float) -> dict[str, Usual]:
    tasks = {status.task for status, _ in measured.watched}
    if unknown := sorted(set(given) - tasks):
        known = ", ".join(sorted(tasks)) or "none"
        raise typer.BadParameter(f"no schedule runs task {unknown[0]!r}; they run: {known}",
                                 param_hint="--duration")  # fmt: skip
    usual = {task: Usual(assumed, "assumed") for task in sorted(tasks)}
    usual |= {task: Usual(known.p50, "measured") for task, known in measured.durations.items()}
    return usual | {task: Usual(seconds, "given") for task, seconds in given.items()}


def _loads(measured: Measured, usual: dict[str, Usual]) -> list[Load]:
    """Return the loads of the schedules that fire. A paused one counts from its automatic resume on."""
    return [
        Load(_from(watched.recurrence, status.paused_until), usual[status.task].seconds)
        for status, watched in measured.watched
        if status.paused_at is None or status.paused_until is not None
    ]


def _from(recurrence: Recurrence, begin: datetime | None) -> Recurrence:
    """Return the recurrence without what is before `begin`."""
    if begin is None:
        return recurrence
    limits = recurrence.limits
    later = msgspec.structs.replace(limits, starts=max(begin, limits.starts or begin))
    policies = (recurrence.gap, recurrence.fold)
    return Recurrence(recurrence.name, recurrence.rule, recurrence.tz, policies, later)


def _document(
    found: Forecast, start: datetime, end: datetime, slots: int, usual: dict[str, Usual]
) -> dict[str, object]:
    told: dict[str, object] = msgspec.to_builtins(found)
    return {"from": start, "to": end, "slots": slots, "durations": usual, **told}


def _draw(session: Session, chart: Chart, usual: dict[str, Usual]) -> None:
    screen, found = session.screen, chart.found
    screen.say(chart.summary())
    screen.say("")
    screen.show(_heat(chart.grid))
    legend = f"hours in {chart.tz}; a full bar is every slot busy all hour, ! is waiting for a slot"
    screen.say(legend, style="dim")
    if found.pile_ups:
        screen.say("\npile-ups, the longest waits first", style="bold")
        screen.show(_pile_ups(found.pile_ups, chart))
    _tell_durations(session, usual)


def _heat(grid: Grid) -> Text:
    """A line per day, narrow enough for 80 columns."""
    hours = "".join(f"{hour:02}".ljust(6) for hour in range(0, 24, 3))
    heat = Text(" " * 16 + hours.rstrip(), style="dim")
    for day in grid.days:
        heat.append(f"\n{day.date:%a %Y-%m-%d}  ", style="not dim")
        for cell in day.cells:
            if cell is None:
                heat.append("  ")
                continue
            level = min(8, ceil(cell.share * 8)) or (1 if cell.due else 0)
            heat.append(_BARS[level], style=f"not dim {_STYLES[level]}" if level else "dim")
            heat.append("!" if cell.waited else " ", style="not dim bold red")
        heat.append(f" {day.due:,} runs", style="dim")
    return heat


def _pile_ups(found: Sequence[PileUp], chart: Chart) -> Table:
    rows = table("from", "for", "runs that wait", "longest wait",
                 right=["for", "runs that wait", "longest wait"])  # fmt: skip
    worst = sorted(found, key=lambda one: -one.waited)
    for one in worst[:_MOST]:
        lasts = format_duration((one.end - one.start).total_seconds())
        at = one.start.astimezone(zone(chart.tz))
        rows.add_row(f"{at:%a %Y-%m-%d %H:%M}", lasts, f"{one.runs:,}", format_duration(one.waited))
    if len(worst) > _MOST:
        rows.add_row(f"and {len(worst) - _MOST:,} more")
    return rows


def _tell_durations(session: Session, usual: dict[str, Usual]) -> None:
    if assumed := [task for task, known in usual.items() if known.source == "assumed"]:
        names = plain(", ".join(assumed[:_MOST])) + (", ..." if len(assumed) > _MOST else "")
        each = format_duration(usual[assumed[0]].seconds)
        session.screen.note(
            f"Never measured, assumed to take {each}: {names}. Set it with --duration TASK=20m"
        )
