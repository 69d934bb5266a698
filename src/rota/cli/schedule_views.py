"""Schedules and rows of their ledger, as people see them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from rich.table import Table
from rich.text import Text

from rota.cli.jumps import Previewed
from rota.cli.output import Screen, plain, pretty, state, table
from rota.cli.preview import preview_table
from rota.cli.times import relative
from rota.core.durations import format_duration
from rota.core.time.interval import duration_text
from rota.core.time.schedule import Calendar, Cron, Every, RRule, Rule, ScheduleSpec
from rota.model import State
from rota.operations.ledger import OccurrenceStatus, ScheduleStatus
from rota.store.schedules import FIRED

_PATIENCE = 10.0  # seconds after which a scheduler should have looked at what is due


class LedgerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the ledger. `lag` is seconds from when the job was due to its start."""

    schedule: str
    due_at: datetime
    state: str
    reason: str | None
    caught_up: bool
    lag: float | None
    job_id: UUID | None
    job_state: str | None
    version: int


def ledger_rows(rows: Iterable[Any]) -> list[LedgerRow]:
    return [
        LedgerRow(
            schedule=row["name"],
            due_at=row["due_at"],
            state="fired" if row["state"] == FIRED else "skipped",
            reason=row["reason"],
            caught_up=row["caught_up"],
            lag=(row["started_at"] - row["run_at"]).total_seconds() if row["started_at"] else None,
            job_id=row["job_id"],
            job_state=None if row["job_state"] is None else State(row["job_state"]).label,
            version=row["version"],
        )
        for row in rows
    ]


def show_schedules(
    screen: Screen, found: Sequence[ScheduleStatus], last: Mapping[str, LedgerRow], now: datetime
) -> None:
    if not found:
        screen.note(
            "No schedules. Make one: rota schedules create NAME --task T --cron '0 9 * * *'"
        )
        return
    rows = table("name", "rule", "next", "last", "paused", "task", whole=["next"])
    broken = [status for status in found if status.problem]
    for status in found:
        rows.add_row(
            plain(status.name), plain(status.in_words), _next(status, now),
            _last(last.get(status.name)), _paused(status, now), plain(status.task),
        )  # fmt: skip
    screen.show(rows)
    for status in found:
        if status.is_orphan:
            screen.say(
                f"{plain(status.name)} is an orphan: no application declares it in code any more. "
                f"Delete it, or declare it again",
                style="yellow",
            )
    for status in broken:
        screen.say(f"{plain(status.name)} doesn't fire: {plain(status.problem or '')}", style="red")


def _next(status: ScheduleStatus, now: datetime) -> str:
    """While it is paused, nothing is next."""
    if status.problem:
        return "broken"
    if status.paused_at or status.next_due is None:
        return "-"
    # Its time has come, or it was resumed: a scheduler that lives sees to it within a moment.
    return "no scheduler?" if _overdue(status.next_due, now) else relative(status.next_due, now)


def _overdue(moment: datetime, now: datetime) -> bool:
    return (now - moment).total_seconds() > _PATIENCE


def _last(row: LedgerRow | None) -> Text:
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
    return Text.assemble(state("paused"), f", goes on {relative(status.paused_until, now)}")


def show_schedule(
    screen: Screen, status: ScheduleStatus, coming: Sequence[Previewed],
    last: Sequence[LedgerRow], now: datetime,
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
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    rows: dict[str, Any] = {
        "task": status.task,
        **(_said(status.spec) if status.spec else {}),
        "fired": f"{status.fired:,} times",
        "version": f"{status.version}, from {_source(status)}, {relative(status.updated_at, now)}",
        "created": relative(status.created_at, now),
    }
    for name, value in rows.items():
        if value is not None:
            facts.add_row(name, plain(str(value)))
    return facts


def _source(status: ScheduleStatus) -> str:
    if status.source != "code":
        return status.source
    return f"code of {status.app}" if status.app else "code that no longer declares it"


def _said(spec: ScheduleSpec) -> dict[str, Any]:
    return {
        "rule": raw_rule(spec.rule),
        "zone": f"{spec.tz}, gap {spec.gap}, fold {spec.fold}",
        "overlap": _overlap(spec),
        "catch up": _catch_up(spec),
        "starts": spec.starts and _utc(spec.starts),
        "ends": spec.ends and _utc(spec.ends),
        "at most": spec.max_occurrences and f"{spec.max_occurrences:,} occurrences",
        "spread": duration_text(spec.spread) if spec.spread else None,
        "jitter": duration_text(spec.jitter) if spec.jitter else None,
        "exclude": ", ".join(spec.exclude) or None,
        "include": ", ".join(spec.include) or None,
        "options": ", ".join(f"{name} {value}" for name, value in spec.options.items()) or None,
        "tags": ", ".join(spec.tags) or None,
        "about": spec.description or None,
    }


def raw_rule(rule: Rule) -> str:
    match rule:
        case Cron(expression):
            return f"cron {expression}"
        case Every(seconds, anchor):
            return f"every {duration_text(seconds)}" + (f" from {_utc(anchor)}" if anchor else "")
        case Calendar(phrase):
            return f"calendar {phrase}"
        case RRule(text):
            return f"rrule {text}"


def _overlap(spec: ScheduleSpec) -> str:
    if spec.overlap == "queue":
        return f"queue, at most {spec.max_queued}, drops the {spec.drop}"
    return spec.overlap + (f", at most {spec.max_running} at a time" if spec.max_running else "")


def _catch_up(spec: ScheduleSpec) -> str:
    within = spec.catch_up.within
    return spec.catch_up.kind + (f" within {duration_text(within)}" if within else "")


def ledger_table(rows: Sequence[LedgerRow] | Sequence[OccurrenceStatus]) -> Table:
    seconds = any(row.due_at.second for row in rows)
    shown = table("due (UTC)", "state", "reason", "lag", "job", "job state", right=["lag"],
                  whole=["due (UTC)", "job"])  # fmt: skip
    for row in rows:
        reason = row.reason or ("caught up" if row.caught_up else "")
        shown.add_row(
            f"{row.due_at:%Y-%m-%d %H:%M:%S}" if seconds else f"{row.due_at:%Y-%m-%d %H:%M}",
            state(row.state), plain(reason), "-" if row.lag is None else format_duration(row.lag),
            str(row.job_id or "-"), state(row.job_state) if row.job_state else "-",
        )  # fmt: skip
    return shown


def _utc(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds")
