"""`rota schedules lint`: what will go badly, before it does."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.moments import database_time
from rota.cli.output import plain, table
from rota.cli.session import Session, command
from rota.core.time.lint import Warned, Watched, lint
from rota.operations.ledger import ScheduleStatus, watch_all
from rota.operations.schedule_checks import lint_tasks
from rota.store.schedules import ScheduleStore, TaskDuration


class Measured:
    """The stored schedules with their occurrences, and how long their tasks took."""

    def __init__(
        self,
        watched: list[tuple[ScheduleStatus, Watched]],
        durations: dict[str, TaskDuration],
        broken: list[Warned],
    ) -> None:
        self.watched = watched
        self.durations = durations
        self.broken = broken


def add_to(group: typer.Typer) -> None:
    command(group, "lint")(lint_schedules)


async def measure(session: Session) -> Measured:
    namespace = session.app.settings.namespace
    store = ScheduleStore((await session.app.store()).database)
    calendars = (await store.calendars()).get(namespace, {})
    durations = await store.task_durations(namespace)

    def usual(task: str) -> float | None:
        return durations[task].p50 if task in durations else None

    watched, broken = watch_all(await session.app.schedules.list(), calendars, usual)
    return Measured(watched, durations, broken)


def lint_schedules(
    session: Session,
    herd: Annotated[
        int, typer.Option(min=2, help="So many schedules in the same minute are too many.")
    ] = 100,
    strict: Annotated[bool, typer.Option("--strict", help="End with 1 on any warning.")] = False,
) -> None:
    """Warn of what will go badly: DST, too many at once, too often for its duration, an end soon, a
    task that nobody has registered, or arguments that it doesn't take."""
    measured = session.run(measure(session))
    now = database_time(session)
    warnings = measured.broken + lint([watched for _, watched in measured.watched], now, herd)
    specs = [watched.spec for _, watched in measured.watched]
    warnings += session.run(lint_tasks(session.app.rota, specs))
    if session.screen.as_json:
        session.screen.json(warnings)
    elif not warnings:
        count = len(measured.watched)
        session.screen.note(f"No warnings about {count:,} schedule{'' if count == 1 else 's'}.")
    else:
        rows = table("warning", "message", whole=["warning"])
        for warning in warnings:
            rows.add_row(warning.code, plain(warning.message))
        session.screen.show(rows)
    if strict and warnings:
        raise typer.Exit(1)
