"""Tables of schedules and of their past and coming occurrences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec
from rich.table import Table
from rich.text import Text

from rota.cli.clock_changes import Previewed
from rota.cli.output import Screen, facts, plain, pretty, state, table
from rota.cli.times import relative
from rota.core.durations import format_duration
from rota.core.time.schedule import ScheduleSpec
from rota.core.time.status import OccurrenceStatus, ScheduleStatus
from rota.files.changes import fields_of, rule_fields

_PATIENCE = 10.0  # seconds within which a live scheduler plans what is due


def show_schedules(
    screen: Screen,
    found: Sequence[ScheduleStatus],
    last: Mapping[str, OccurrenceStatus],
    now: datetime,
    *,
    header: bool = True,
) -> None:
    rows = (
        (status.name, status.in_words, _next(status, now), _last(last.get(status.name)),
         _paused(status, now), status.runs)
        for status in found
    )  # fmt: skip
    columns = ("name", "rule", "next", "last", "paused", "task")
    shown = table(columns, rows, whole=["next"])
    shown.show_header = header
    screen.show(shown)
    for status in found:
        if status.is_orphan:
            screen.say(
                f"{status.name} is an orphan: no application declares it in code any more. Delete it, "
                "or declare it again",
                style="yellow",
            )
    for status in found:
        if status.problem:
            screen.say(f"{status.name} doesn't fire: {status.problem}", style="red")


def _next(status: ScheduleStatus, now: datetime) -> str:
    """Format the next occurrence; a paused schedule has none."""
    if status.problem:
        return "broken"
    if status.paused_at or status.next_due is None:
        return "-"
    # A live scheduler plans an occurrence that is due, or was resumed, within a moment.
    overdue = (now - status.next_due).total_seconds() > _PATIENCE
    return "no scheduler?" if overdue else relative(status.next_due, now)


def _last(row: OccurrenceStatus | None) -> Text:
    if row is None:
        return Text("-")
    if row.state == "skipped":
        return Text(f"skipped ({row.reason})", style="dim")
    return state(row.job_state or "fired")


def _paused(status: ScheduleStatus, now: datetime) -> str | Text:
    if not status.paused_at:
        return ""
    if status.paused_until is None:
        return state("paused")
    return Text.assemble(state("paused"), f", resumes {relative(status.paused_until, now)}")


def show_schedule(
    screen: Screen, status: ScheduleStatus, coming: Sequence[Previewed],
    last: Sequence[OccurrenceStatus], now: datetime,
) -> None:  # fmt: skip
    screen.say(Text.assemble((plain(status.name), "bold"), f" {plain(status.in_words)}"))
    if status.paused_at:
        screen.say(
            Text.assemble("It is ", _paused(status, now), f", since {_utc(status.paused_at)}")
        )
    if status.problem:
        screen.say(f"It doesn't fire: {plain(status.problem)}", style="red")
    screen.say("")
    screen.show(_facts(status, now))
    if status.spec and status.spec.payload:
        screen.say("\npayload", style="bold")
        screen.show(pretty(status.spec.payload))
    screen.say("\nnext", style="bold")
    never = "unknown" if status.problem else "it never fires again"
    screen.show(preview_table(coming)) if coming else screen.say(never)
    screen.say("\nlast", style="bold")
    screen.show(ledger_table(last)) if last else screen.say("nothing yet")


def _facts(status: ScheduleStatus, now: datetime) -> Table:
    return facts(
        {
            "task": status.runs,
            **(_fields(status.spec) if status.spec else {}),
            "fired": f"{status.fired:,} times",
            "version": f"{status.version}, from {_source(status)}, {relative(status.updated_at, now)}",
            "created": relative(status.created_at, now),
        }
    )


def _source(status: ScheduleStatus) -> str:
    if status.source != "code":
        return status.source
    return f"code of {status.app}" if status.app else "code that no longer declares it"


def _fields(spec: ScheduleSpec) -> dict[str, str]:
    """Return the settings as written in a file, and the policies even where they are the defaults."""
    policies = {"tz": spec.tz, "gap": spec.gap, "fold": spec.fold, "overlap": spec.overlap,
                "catch_up": spec.catch_up.kind}  # fmt: skip
    fields = {**rule_fields(spec.rule), **policies, **fields_of(spec)}
    fields.pop("payload", None)  # shown by itself
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in fields.items()
    }


def ledger_table(rows: Sequence[OccurrenceStatus]) -> Table:
    seconds = any(row.due_at.second for row in rows)
    cells = (
        (
            _minute(row.due_at, seconds), state(row.state),
            row.reason or ("caught up" if row.caught_up else ""),
            "-" if row.lag is None else format_duration(row.lag),
            str(row.job_id or "-"), state(row.job_state) if row.job_state else "-",
        )
        for row in rows
    )  # fmt: skip
    columns = ("due (UTC)", "state", "reason", "lag", "job", "job state")
    return table(columns, cells, right=["lag"], whole=["due (UTC)", "job"])


def preview_table(rows: Sequence[Previewed]) -> Table:
    seconds = any(row.asked.second for row in rows)
    columns = ["local", "UTC", "due", "remark"]
    cells: list[list[str | Text]] = [
        [
            _local_time(row.local, seconds), _minute(row.utc, seconds),
            "-" if row.due_at is None else f"{row.due_at:%H:%M:%S.%f}"[:-3],
            Text(plain(row.remark or ""), style="yellow" if row.runs else "red"),
        ]
        for row in rows
    ]  # fmt: skip
    if all(row.due_at == row.utc for row in rows):
        del columns[2]
        for line in cells:
            del line[2]
    return table(columns, cells, whole=["local", "UTC", "due"])


def _local_time(moment: datetime | None, seconds: bool) -> str:
    """Format a local time with its offset, which tells repeated local times apart."""
    if moment is None:
        return "-"
    offset = f"{moment:%z}"
    clock = f"{moment:%H:%M:%S}" if seconds else f"{moment:%H:%M}"
    return f"{moment:%a %Y-%m-%d} {clock} {offset[:3]}:{offset[3:5]}"


def _minute(moment: datetime | None, seconds: bool) -> str:
    if moment is None:
        return "-"
    return f"{moment:%Y-%m-%d %H:%M:%S}" if seconds else f"{moment:%Y-%m-%d %H:%M}"


def _utc(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds")
