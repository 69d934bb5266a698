"""`rota schedules occurrences|audit|backfill`: what fired, what didn't and why; and filling in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import msgspec
import typer

from rota.cli.dead import Yes
from rota.cli.moments import From, To, stretch
from rota.cli.output import plain, table
from rota.cli.schedule_views import ledger_table
from rota.cli.schedules import Name
from rota.cli.session import Session, command
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
        typer.Option("--state", metavar="fired|skipped", parser=parse_ledger_state),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000)] = 1000,
) -> None:
    """The ledger: every occurrence of a stretch of time (the last day), and what became of it."""
    begin, close = stretch(session, first, end, ("-1d", "+1h"))
    found = session.run(session.app.schedules.occurrences(name, begin, close, limit, state=state))
    if session.screen.as_json:
        session.screen.json(found)
        return
    if not found:
        session.screen.note(f"Nothing was due from {begin} to {close}.")
        return
    session.screen.show(ledger_table(found))
    if len(found) == limit:
        after = (found[-1].due_at + _TICK).isoformat()
        session.screen.note(f"There may be more: add --from {after}")


def audit(
    session: Session,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Which; all of them without.")
    ] = None,
    first: From = None,
    end: To = None,
) -> None:
    """Compare the ledger with what the rules say (the last week). Ends with 1 if they differ."""
    begin, close = stretch(session, first, end, ("-7d", "+1h"))

    async def all_of_them() -> list[Audit]:
        schedules = session.app.schedules
        chosen = names or [status.name for status in await schedules.list()]
        return [await schedules.audit(name, begin, close) for name in chosen]

    audits = session.run(all_of_them())
    if session.screen.as_json:
        session.screen.json(
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
        int | None, typer.Option(min=1, help="How many of them may run at a time.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    yes: Yes = False,
) -> None:
    """Run the occurrences of a past stretch of time that never were: those without a ledger row."""
    if first is None:
        raise typer.BadParameter("say from when on", param_hint="--from")
    if session.screen.as_json and not (yes or dry_run):
        raise typer.BadParameter("with --json nobody is asked: add it", param_hint="--yes")
    span = stretch(session, first, end, ("now", "now"))
    given: dict[str, Any] = {} if max_parallel is None else {"max_parallel": max_parallel}
    run = session.app.schedules.backfill
    count = session.run(run(name, *span, dry_run=True, **given))
    if count and not dry_run:
        if not yes:
            jobs = "1 occurrence" if count == 1 else f"{count:,} occurrences"
            question = f"Run {jobs} of {name}, from {span[0]} to {span[1]}?"
            typer.confirm(question, abort=True, err=True)
        count = session.run(run(name, *span, **given))
    _tell_backfill(session, name, count, dry_run)


def _tell_backfill(session: Session, name: str, count: int, dry_run: bool) -> None:
    if session.screen.as_json:
        session.screen.json({"schedule": name, "count": count, "dry_run": dry_run})
    elif not count:
        session.screen.note("Nothing to fill in: each occurrence of that time has its row.")
    else:
        session.screen.say(f"{'would run' if dry_run else 'backfilled'} {count:,} of {name}")
