"""`rota schedules forecast`: the coming days' occurrences against durations and worker slots."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from math import ceil
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from rota.cli.options import duration, option
from rota.cli.output import count, table
from rota.cli.schedules import schedules_group
from rota.cli.session import Session, command
from rota.cli.times import parse_duration
from rota.core.durations import format_duration
from rota.core.time.forecast import Bucket, Forecast, PileUp
from rota.core.time.status import UsualDuration
from rota.core.time.zones import zone
from rota.errors import ConfigError

_HOUR = 3600.0
_BARS = "·▁▂▃▄▅▆▇█"
_STYLES = ("dim", "green", "green", "green", "green", "yellow", "yellow", "red", "red")
_MOST = 10


def parse_given(text: str) -> tuple[str, float]:
    task, equals, length = text.rpartition("=")
    if not equals or not task:
        raise typer.BadParameter(f"{text!r} is not TASK=DURATION, e.g. report=20m")
    return task, parse_duration(length)


@command(schedules_group, "forecast")
def show_forecast(
    session: Session,
    days: Annotated[int, option("Number of days to forecast.", min=1, max=92)] = 7,
    slots: Annotated[
        int | None, option("Number of worker slots. (default: those of the live workers)", min=1)
    ] = None,
    given: Annotated[
        list[str] | None,
        option("Duration of a task instead of the measured one: report=20m. Repeatable.",
               "--duration", metavar="TASK=DURATION"),
    ] = None,
    assume: Annotated[float, duration("Duration of tasks that were never measured.")] = 1.0,
    tz: Annotated[str, option("Time zone of the hours that are shown.", metavar="ZONE")] = "UTC",
) -> None:  # fmt: skip
    """Forecast the load of the coming days: occurrences against durations and worker slots."""
    chosen = dict(parse_given(text) for text in given or ())
    show_in, screen = zone(tz), session.screen
    try:
        load = session.run(
            session.app.schedules.forecast(days, slots=slots, durations=chosen, assumed=assume)
        )
    except ConfigError as error:
        if "durations" in error.fields:
            raise typer.BadParameter(str(error), param_hint="--duration") from None
        raise
    found, free, usual = load.forecast, load.slots, load.durations
    if screen.structured:
        head = {"from": load.start, "to": load.end, "slots": free, "durations": usual}
        screen.document({**head, **msgspec.to_builtins(found)})
        return
    if not load.schedules:
        screen.note("No schedules: nothing to forecast.")
        return
    screen.say(f"{_summary(found, free, show_in)}\n")
    screen.show(_heat(found, free, show_in))
    legend = f"hours in {tz}; a full bar is every slot busy all hour, ! is waiting for a slot"
    screen.say(legend, style="dim")
    if found.pile_ups:
        screen.say("\npile-ups, the longest waits first", style="bold")
        screen.show(_pile_ups(found.pile_ups, show_in))
    _note_assumed(session, usual)


def _summary(found: Forecast, slots: int, tz: ZoneInfo) -> str:
    if not found.peak:
        return "nothing is due"
    text = (
        f"{found.runs:,} runs on {count(slots, 'slot')}, {found.use:.1%} busy on average; the busiest "
        f"hour is {found.peak.start.astimezone(tz):%a %Y-%m-%d %H:%M} "
        f"({found.peak.busy / (slots * _HOUR):.0%})"
    )
    if not found.pile_ups:
        return f"{text}; nothing waits"
    piles = count(len(found.pile_ups), "pile-up")
    return f"{text}; {piles}, the longest wait {format_duration(found.max_wait)}"


def _heat(found: Forecast, slots: int, tz: ZoneInfo) -> Text:
    """Draw a line per day, narrow enough for 80 columns. An hour that comes twice is one cell."""
    days: dict[date, dict[int, list[Bucket]]] = {}
    for bucket in found.buckets:
        local = bucket.start.astimezone(tz)
        days.setdefault(local.date(), {}).setdefault(local.hour, []).append(bucket)
    hours = "".join(f"{hour:02}".ljust(6) for hour in range(0, 24, 3))
    heat = Text(" " * 16 + hours.rstrip(), style="dim")
    for day, buckets in sorted(days.items()):
        heat.append(f"\n{day:%a %Y-%m-%d}  ", style="not dim")
        for hour in range(24):
            _append_hour(heat, buckets.get(hour, ()), slots)
        due = sum(bucket.due for each in buckets.values() for bucket in each)
        heat.append(f" {due:,} runs", style="dim")
    return heat


def _append_hour(heat: Text, buckets: Sequence[Bucket], slots: int) -> None:
    if not buckets:  # before the start, after the end, or skipped by a clock change
        heat.append("  ")
        return
    share = max(bucket.busy for bucket in buckets) / (slots * _HOUR)
    level = min(8, ceil(share * 8)) or (1 if any(bucket.due for bucket in buckets) else 0)
    heat.append(_BARS[level], style=f"not dim {_STYLES[level]}" if level else "dim")
    waits = any(bucket.waited for bucket in buckets)
    heat.append("!" if waits else " ", style="not dim bold red")


def _pile_ups(found: Sequence[PileUp], tz: ZoneInfo) -> Table:
    worst = sorted(found, key=lambda one: -one.waited)
    rows = [
        (
            f"{one.start.astimezone(tz):%a %Y-%m-%d %H:%M}",
            format_duration((one.end - one.start).total_seconds()), f"{one.runs:,}",
            format_duration(one.waited),
        )
        for one in worst[:_MOST]
    ]  # fmt: skip
    if len(worst) > _MOST:
        rows.append((f"and {len(worst) - _MOST:,} more", "", "", ""))
    numbers = ("for", "runs that wait", "longest wait")
    return table(("from", *numbers), rows, right=numbers)


def _note_assumed(session: Session, usual: dict[str, UsualDuration]) -> None:
    if assumed := [task for task, known in usual.items() if known.source == "assumed"]:
        names = ", ".join(assumed[:_MOST]) + (", ..." if len(assumed) > _MOST else "")
        each = format_duration(usual[assumed[0]].seconds)
        session.screen.note(
            f"Never measured, assumed to take {each}: {names}. Set it with --duration TASK=20m"
        )
