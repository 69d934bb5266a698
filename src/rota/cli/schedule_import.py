"""`rota schedules import`: schedules from crontabs, Celery Beat, APScheduler, Kubernetes and systemd."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rota.cli.file_changes import confirm, is_something, read_source, report_changes, show_changes
from rota.cli.loading import load_object
from rota.cli.options import DryRun, Yes, argument, option
from rota.cli.output import Screen
from rota.cli.schedules import schedules_group
from rota.cli.session import Session, command
from rota.errors import ConfigError
from rota.files import changes as changing
from rota.files.changes import Present, difference
from rota.files.crontab import read_crontab
from rota.files.foreign import Foreign

Origin = Literal["crontab", "celery", "django-celery-beat", "apscheduler", "kubernetes", "systemd"]
_OF_PROGRAMS = ("crontab", "kubernetes", "systemd")
_NAMES = {
    "crontab": "crontab", "celery": "beat", "django-celery-beat": "beat",
    "apscheduler": "apscheduler", "kubernetes": "kubernetes", "systemd": "systemd",
}  # fmt: skip


@command(schedules_group, "import")
def import_schedules(
    session: Session,
    source: Annotated[
        str,
        argument("SOURCE", "Crontab file (- is standard input); MODULE:VARIABLE of a Celery app or "
                 "an APScheduler; URL of a database; file or folder of YAML or units."),
    ],
    origin: Annotated[
        Origin, option("What the source is.", "--from", metavar="KIND")
    ] = "crontab",
    user: Annotated[
        bool, option("Read a user's crontab, without a user column. This is the default.")
    ] = False,
    system: Annotated[
        bool, option("Read a crontab with a user column, like /etc/crontab.")
    ] = False,
    tz: Annotated[
        str | None,
        option("Time zone of times without one. (default: UTC)", metavar="ZONE"),
    ] = None,
    prefix: Annotated[
        str, option("Prefix of the names of a crontab's schedules.", metavar="NAME")
    ] = "crontab",
    app: Annotated[
        str | None,
        option("App whose tasks give names to arguments without one.", metavar="MODULE:APP"),
    ] = None,
    skip_bad: Annotated[bool, option("Skip what can't be imported.")] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:  # fmt: skip
    """Import schedules of another program: show them, ask, create them.

    Kinds: crontab, celery (the beat_schedule of an app), django-celery-beat (its tables), apscheduler
    (version 3), kubernetes (CronJobs in YAML), systemd (timers). Those of programs run on workers with
    --allow-commands. Importing again changes only what has changed.
    """
    if user and system:
        raise typer.BadParameter("give --user or --system, not both", param_hint="--system")
    functions = _functions(session, app)
    read = _read(session, origin, source, tz or "UTC", functions, system=system, prefix=prefix)
    if tz is None and any(spec.tz == "UTC" for spec in read.schedules.values()):
        session.screen.note("Times without a zone are read as UTC; --tz changes that.")
    found = difference(session.run(Present.of(session.app)), read.schedules)
    refused = bool(read.bad) and not skip_bad
    apply_it = not dry_run and not refused and is_something(found)
    show_changes(session.screen, found, read.places)
    _show_remarks(session.screen, read)
    if apply_it:
        confirm(session, yes, from_stdin=source == "-")
        name = _NAMES[origin]
        session.run(changing.apply(session.app, found, read.schedules, source=name))
    remarks = {"warnings": read.warnings, "bad": read.bad}
    report_changes(session.screen, found, apply_it, read.places, **remarks)
    if refused:
        session.screen.note("Nothing was imported: fix what is marked with x, or use --skip-bad.")
        raise typer.Exit(1)
    if apply_it and origin in _OF_PROGRAMS:
        session.screen.note(
            "These schedules run on workers that were started with --allow-commands."
        )


def _read(
    session: Session, origin: Origin, source: str, tz: str,
    functions: Mapping[str, Callable[..., Any]], *, system: bool, prefix: str,
) -> Foreign:  # fmt: skip
    if origin == "crontab":
        return _crontab(source, system, tz, prefix)
    if origin == "celery":
        return _celery(source, functions)
    if origin == "django-celery-beat":
        from rota.files.celery_beat import BEAT_TABLES, read_tables

        return read_tables(session.run(_rows(source, BEAT_TABLES)), functions)
    if origin == "apscheduler":
        from rota.files.apscheduler_jobs import read_jobs

        scheduler = load_object(source)
        if not callable(getattr(scheduler, "get_jobs", None)):
            raise ConfigError(
                f"{source} is of type {type(scheduler).__name__}, which is no scheduler"
            )
        return read_jobs(scheduler)
    if origin == "kubernetes":
        from rota.files.kubernetes import read_cron_jobs

        return read_cron_jobs(_files(source, ".yaml", ".yml"), tz)
    from rota.files.systemd_timers import read_timers

    return read_timers(_files(source, ".timer"), tz)


def _crontab(source: str, system: bool, tz: str, prefix: str) -> Foreign:
    text = read_source(source)
    try:
        entries = text.text()
    except ConfigError as error:
        raise ConfigError(f"{source} {error}") from None
    if "\0" in entries:
        raise ConfigError(f"{source} has NUL characters: it is not a crontab")
    read, found = read_crontab(entries, with_user=system, tz=tz, prefix=prefix), Foreign()
    found.schedules = read.schedules
    found.places = {name: f"line {line}" for name, line in read.lines.items()}
    for remark in read.warnings:
        found.warn(f"line {remark.line}", remark.message)
    for remark in read.bad:
        found.refuse(f"line {remark.line}", remark.message)
    return found


def _celery(source: str, functions: Mapping[str, Callable[..., Any]]) -> Foreign:
    from rota.files.celery_beat import read_beat

    app = load_object(source)
    if not hasattr(app, "conf"):
        raise ConfigError(f"{source} is of type {type(app).__name__}, which is no Celery app")
    if hasattr(app, "loader"):  # of Celery itself: so that its tasks and periodic tasks are known
        app.loader.import_default_modules()
        app.finalize()
    known = {
        name: task.run for name, task in getattr(app, "tasks", {}).items() if hasattr(task, "run")
    }
    return read_beat(
        app.conf.beat_schedule or {}, str(app.conf.timezone or "UTC"), {**known, **functions}
    )


async def _rows(url: str, query: str) -> list[Mapping[str, Any]]:
    import asyncpg

    try:
        connection = await asyncpg.connect(url)
    except (OSError, ValueError, asyncpg.PostgresError) as error:
        raise ConfigError(f"{url.rpartition('@')[2]} can't be reached: {error}") from None
    try:
        return [dict(row) for row in await connection.fetch(query)]
    except asyncpg.UndefinedTableError:
        raise ConfigError("that database has no tables of django-celery-beat") from None
    finally:
        await connection.close()


def _files(source: str, *suffixes: str) -> list[Path]:
    path = Path(source)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise ConfigError(f"there is no file or folder {source!r}")
    return sorted(each for each in path.rglob("*") if each.suffix in suffixes and each.is_file())


def _functions(session: Session, reference: str | None) -> dict[str, Callable[..., Any]]:
    if reference is None:
        return {}
    app = session.load(reference)
    return {name: _without_context(task) for name, task in app.tasks.items()}


def _without_context(task: Any) -> Callable[..., Any]:
    """Return something with the signature of a task's function, as its callers see it."""
    signature = inspect.signature(task.function)
    own = task.arguments.context_parameter
    shown = [p for name, p in signature.parameters.items() if name != own]

    def function() -> None: ...

    function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return function


def _show_remarks(screen: Screen, read: Foreign) -> None:
    if screen.structured:
        return
    for remark in read.warnings:
        screen.say(f"! {remark.place}: {remark.message}", style="yellow")
    for remark in read.bad:
        screen.say(f"x {remark.place}: {remark.message}", style="bold red")
