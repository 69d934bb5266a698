"""`rota schedules occurrences|audit|backfill`: past occurrences, and running missed ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import typer

from rota.cli.moments import From, To, stretch
from rota.cli.options import DryRun, LongLimit, Yes
from rota.cli.output import plain, table
from rota.cli.schedule_views import ledger_table
from rota.cli.schedules import Name
from rota.cli.session import Session, command
from rota.errors import InvalidArguments
from rota.operations.ledger import Audit

_TICK = timedelta(microseconds=1)
_MOST = 20  # moments listed per schedule; --json has them all


def parse_ledger_state(text: str) -> str:
    if text not in ("fired", "skipped"):
        raise typer.BadParameter(f"{text!r} is neither fired nor skipped")
    return text


def add_to(group: typer.Typer) -> None:
    command(group, "occurrences")(occurrences)
    command(group, "audit")(audit)
    command(group, "backfill")(backfill)


def occurrences(
    session: Session,
    name: Name,
    first: From = None,
    end: To = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="fired|skipped",
            parser=parse_ledger_state,
            help="Only show occurrences in this state.",
        ),
    ] = None,
    limit: LongLimit = 1000,
) -> None:
    """List the occurrences of a schedule in a period (the last day), with their outcomes."""
    begin, close = stretch(session, first, end, ("-1d", "+1h"))
    found = session.run(session.app.schedules.occurrences(name, begin, close, limit, state=state))
    if not session.screen.listing(found, f"Nothing was due from {begin} to {close}."):
        return
    session.screen.show(ledger_table(found))
    if len(found) == limit:
        after = (found[-1].due_at + _TICK).isoformat()
        session.screen.note(f"There may be more: add --from {after}")


def audit(
    session: Session,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names of schedules. (default: all)")
    ] = None,
    first: From = None,
    end: To = None,
) -> None:
    """Compare recorded occurrences with the rules (the last week); exit with 1 if they differ."""
    begin, close = stretch(session, first, end, ("-7d", "+1h"))

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
    rows = table("name", "expected", "missing", "extra", right=["expected", "missing", "extra"])
    for each in audits:
        counts = (each.expected, len(each.missing), len(each.extra))
        rows.add_row(plain(each.name), *(f"{count:,}" for count in counts))
    session.screen.show(rows)
    for each in audits:
        for gap in each.unsettled:
            told = f"{each.name} can't be compared from {gap.begin} to {gap.end}: {gap.reason}"
            session.screen.say(plain(told), style="yellow")
        for word, moments in (("missing", each.missing), ("extra", each.extra)):
            for moment in moments[:_MOST]:
                session.screen.say(f"{word} {each.name} {moment.isoformat()}", style="red")
            if len(moments) > _MOST:
                session.screen.say(f"and {len(moments) - _MOST:,} more {word} of {each.name}")


def backfill(
    session: Session,
    name: Name,
    first: From = None,
    end: To = None,
    max_parallel: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of these jobs at a time.")
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Run the missed occurrences of a past period: those that were never recorded."""
    if first is None:
        raise typer.BadParameter("required: the start of the period", param_hint="--from")
    session.check_can_ask(yes or dry_run)
    span = stretch(session, first, end, ("now", "now"))
    given: dict[str, Any] = {} if max_parallel is None else {"max_parallel": max_parallel}
    run = session.app.schedules.backfill
    try:
        count = session.run(run(name, *span, dry_run=True, **given)).count
    except InvalidArguments as error:
        if "first" in error.fields:
            raise typer.BadParameter(str(error), param_hint="--from") from None
        raise
    if count and not dry_run:
        jobs = "1 occurrence" if count == 1 else f"{count:,} occurrences"
        session.confirm(f"Run {jobs} of {name}, from {span[0]} to {span[1]}?", yes)
        count = session.run(run(name, *span, **given)).count
    _tell_backfill(session, name, count, dry_run)


def _tell_backfill(session: Session, name: str, count: int, dry_run: bool) -> None:
    if session.screen.structured:
        session.screen.document({"schedule": name, "count": count, "dry_run": dry_run})
    elif not count:
        session.screen.note("Nothing to run: every occurrence of that period is recorded.")
    else:
        session.screen.say(f"{'would run' if dry_run else 'backfilled'} {count:,} of {name}")
