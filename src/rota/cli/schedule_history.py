"""`rota schedules occurrences|audit|backfill|lint`: past occurrences, missed ones, and problems."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
import typer

from rota.cli.options import DryRun, From, LongLimit, To, Yes, argument, option
from rota.cli.output import count, table
from rota.cli.schedule_views import ledger_table
from rota.cli.schedules import Name, schedules_group
from rota.cli.session import Session, command
from rota.cli.times import When, parse_when
from rota.core.time.status import Audit
from rota.errors import InvalidArguments

_TICK = timedelta(microseconds=1)
_MOST = 20  # moments listed per schedule; --json has them all


def period(
    session: Session, first: When | None, end: When | None, default: tuple[str, str]
) -> tuple[datetime, datetime]:
    """Return the begin and end of a period, with defaults."""
    begin = (first or parse_when(default[0])).at(session.now)
    close = (end or parse_when(default[1])).at(session.now)
    if close <= begin:
        raise typer.BadParameter(f"{close} is not after {begin}", param_hint="--to")
    return begin, close


@command(schedules_group, "occurrences")
def occurrences(
    session: Session,
    name: Name,
    first: From = None,
    end: To = None,
    state: Annotated[
        Literal["fired", "skipped"] | None, option("Only show occurrences in this state.")
    ] = None,
    limit: LongLimit = 1000,
) -> None:
    """List the occurrences of a schedule in a period (the last day), with their outcomes."""
    begin, close = period(session, first, end, ("-1d", "+1h"))
    found = session.run(session.app.schedules.occurrences(name, begin, close, limit, state=state))
    if session.screen.structured:
        session.screen.document(found)
    elif not found:
        session.screen.note(f"Nothing was due from {begin} to {close}.")
    else:
        session.screen.show(ledger_table(found))
        if len(found) == limit:
            after = (found[-1].due_at + _TICK).isoformat()
            session.screen.note(f"There may be more: add --from {after}")


@command(schedules_group, "audit")
def audit(
    session: Session,
    names: Annotated[
        list[str] | None, argument("NAME", "Names of schedules. (default: all)")
    ] = None,
    first: From = None,
    end: To = None,
) -> None:
    """Compare recorded occurrences with the rules (the last week); exit with 1 if they differ."""
    begin, close = period(session, first, end, ("-7d", "+1h"))

    async def all_of_them() -> list[Audit]:
        schedules = session.app.schedules
        chosen = names or [status.name for status in await schedules.list()]
        return [await schedules.audit(name, begin, close) for name in chosen]

    audits = session.run(all_of_them())
    if session.screen.structured:
        session.screen.document(
            [{**msgspec.to_builtins(each), "clean": each.is_clean} for each in audits]
        )
    elif not audits:
        session.screen.note("No schedules.")
    else:
        _show_audits(session, audits)
    if not all(each.is_clean for each in audits):
        raise typer.Exit(1)


def _show_audits(session: Session, audits: Sequence[Audit]) -> None:
    numbers = ("expected", "missing", "extra")
    rows = (
        (each.name, f"{each.expected:,}", f"{len(each.missing):,}", f"{len(each.extra):,}")
        for each in audits
    )
    session.screen.show(table(("name", *numbers), rows, right=numbers))
    for each in audits:
        for gap in each.unsettled:
            reason = f"can't be compared from {gap.begin} to {gap.end}: {gap.reason}"
            session.screen.say(f"{each.name} {reason}", style="yellow")
        for word, moments in (("missing", each.missing), ("extra", each.extra)):
            for moment in moments[:_MOST]:
                session.screen.say(f"{word} {each.name} {moment.isoformat()}", style="red")
            if len(moments) > _MOST:
                session.screen.say(f"and {len(moments) - _MOST:,} more {word} of {each.name}")


@command(schedules_group, "backfill")
def backfill(
    session: Session,
    name: Name,
    first: From = None,
    end: To = None,
    max_parallel: Annotated[
        int | None, option("Maximum number of these jobs at a time.", min=1)
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Run the missed occurrences of a past period: those that were never recorded."""
    if first is None:
        raise typer.BadParameter("required: the start of the period", param_hint="--from")
    session.check_can_ask(yes or dry_run)
    span = period(session, first, end, ("now", "now"))
    given: dict[str, Any] = {} if max_parallel is None else {"max_parallel": max_parallel}
    run = session.app.schedules.backfill
    try:
        number = session.run(run(name, *span, dry_run=True, **given)).count
    except InvalidArguments as error:
        if "first" in error.fields:
            raise typer.BadParameter(str(error), param_hint="--from") from None
        raise
    if number and not dry_run:
        which = f"{count(number, 'occurrence')} of {name}, from {span[0]} to {span[1]}"
        session.confirm(f"Run {which}?", yes)
        number = session.run(run(name, *span, **given)).count
    if session.screen.structured:
        session.screen.document({"schedule": name, "count": number, "dry_run": dry_run})
    elif not number:
        session.screen.note("Nothing to run: every occurrence of that period is recorded.")
    else:
        session.screen.say(f"{'would run' if dry_run else 'backfilled'} {number:,} of {name}")


@command(schedules_group, "lint")
def lint_schedules(
    session: Session,
    herd: Annotated[
        int, option("Number of schedules in the same minute that is too many.", min=2)
    ] = 100,
    strict: Annotated[bool, option("Exit with 1 on any warning.")] = False,
) -> None:
    """Check schedules for problems, such as clock changes, overlaps and unregistered tasks.

    It reports rules that a clock change affects, too many schedules at one time, runs that take longer
    than their interval, rules that end soon, and tasks that are unknown or take other arguments.
    """
    schedules = session.app.schedules
    warnings = session.run(schedules.lint(herd))
    session.screen.listing(
        warnings, "No warnings about the schedules.", ("warning", "message"),
        ((warning.code, warning.message) for warning in warnings), whole=["warning"],
    )  # fmt: skip
    if strict and warnings:
        raise typer.Exit(1)
