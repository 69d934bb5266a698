"""The output of `rota dev`: a banner, then a line per ended attempt, as many as one can read."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import shutil
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

import rota
from rota.app import App
from rota.cli import logs
from rota.cli.output import STYLES, Screen, facts, first_line, plain
from rota.config import Settings, default_data_dir
from rota.core.durations import format_duration
from rota.core.lifecycle import End, TryAgain, Verdict
from rota.lib import service_manager
from rota.model import Failure, Outcome, OutcomeKind, State
from rota.node import ROLES, Node
from rota.operations.installation import Installation
from rota.runtime.work import Work
from rota.task import Task

_PERIOD = 1.0  # seconds
_READABLE = 12  # lines in a period; of failures so many more

_SAMPLES: dict[Any, Any] = {str: "...", int: 1, float: 1.5, bool: True, list: [], dict: {}}


class LoggedNode(Node):
    """A node that logs a request to stop and reports to systemd, for `rota start`."""

    async def start(self) -> None:
        await super().start()
        service_manager.notify("READY=1")
        if (seconds := service_manager.watchdog_seconds()) is not None:
            self._watchdog = asyncio.create_task(service_manager.keep_alive(seconds))
            self._undo.callback(self._watchdog.cancel)

    def request_stop(self) -> None:
        service_manager.notify("STOPPING=1")
        logging.getLogger("rota.node").info(
            "asked to stop; %d jobs are running", self.count_running()
        )
        super().request_stop()


class DevNode(Node):
    """A node that migrates its database, and writes to the terminal, for `rota dev`."""

    waits_for_database = False  # a person is watching: report an error at once

    def __init__(self, app: App, output: DevOutput) -> None:
        from rota.server.serving import Server  # here: other commands start without it

        self._http = Server(app, any_port=True)
        super().__init__(app, (*ROLES, "server"), server=self._http)
        self._output = output

    async def start(self) -> None:
        await self.app.migrate()
        await super().start()
        assert self.worker_role is not None
        self.worker_role.outcomes.observers.append(self._output.ended)
        link = await Installation(self.app.connector).sessions.create_link()
        if not self._stop_requested.is_set():
            self._output.up(self._http.url, link.url(self._http.url))

    def request_stop(self) -> None:
        self._output.stopping(self.count_running(), again=self._stop_requested.is_set())
        super().request_stop()


class DevOutput:
    """The output of a node in a terminal; with --json, one JSON object per line."""

    def __init__(self, screen: Screen, reference: str, app: App) -> None:
        self._screen = screen
        self._reference = reference
        self._app = app
        self._shown: Counter[bool] = Counter()  # in this period, by whether it was a success
        self._held: Counter[str] = Counter()
        self._log = logging.getLogger("rota.dev")

    def starting(self) -> None:
        handler = _TerminalHandler(
            self._screen.err if self._screen.structured else self._screen.out
        )
        logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
        logs.enable_loggers()  # the application may have configured logging, and disabled them
        for noisy in ("rota", "uvicorn"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        self._log.setLevel(logging.INFO)
        if not self._app.settings.database_url:
            self._screen.note("Starting the embedded PostgreSQL ...")

    def up(self, url: str, link: str) -> None:
        """Write the banner. `link` is a one-time login link for the dashboard."""
        where = describe_database(self._app.settings)
        tasks = list(self._app.tasks.values())
        if self._screen.structured:
            listed = [
                {"name": task.name, "queue": task.options_.queue,
                 "guarantee": task.options_.guarantee.label} for task in tasks
            ]  # fmt: skip
            self._screen.line(
                {"event": "up", "app": self._reference, "database": where, "tasks": listed,
                 "server": url, "login": link}
            )  # fmt: skip
        else:
            call = how_to_call(self._app.settings)
            self._screen.show(banner(self._reference, where, tasks, call))
            # On its own line, never folded, so that it can be clicked.
            self._screen.say(f"open   {link}\n")

    def stopping(self, running: int, *, again: bool) -> None:
        if self._screen.structured:
            self._screen.line({"event": "stopping", "running": running, "now": again})
        elif again:
            self._screen.note("Stopping at once.")
        else:
            waits = (
                f"; waiting for {running} running jobs (Ctrl-C again: at once)" if running else ""
            )
            self._screen.note(f"Stopping{waits}.")

    def ended(self, work: Work, outcome: Outcome, verdict: Verdict) -> None:
        """Observe the end of an attempt. Writing to the terminal, which can fail, is left for later."""
        loop = asyncio.get_running_loop()
        seconds = time.monotonic() - work.started if work.started else None
        if self._screen.structured:
            loop.call_soon(self._screen.line, _event(work, outcome, verdict, seconds))
            return
        good = outcome.kind is OutcomeKind.SUCCEEDED
        if not self._shown and not self._held:
            loop.call_later(_PERIOD, self._end_period)
        if self._shown[good] < _READABLE:
            self._shown[good] += 1
            loop.call_soon(self._say, _line(work, outcome, verdict, seconds))
        else:
            self._held[outcome.kind.label] += 1

    def _end_period(self) -> None:
        held, self._held = self._held, Counter()
        self._shown.clear()
        if held:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in held.most_common())
            self._say(Text(f"... and {held.total():,} more: {kinds}", style="dim"))

    def _say(self, line: Text) -> None:
        self._log.info("%s", line)


class _TerminalHandler(logging.Handler):
    """Writes log records to the terminal, each with its time."""

    _clock = logging.Formatter(datefmt="%H:%M:%S")

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = Text(self._clock.formatTime(record, self._clock.datefmt), style="dim")
            line = Text.assemble(line, "  ", self._message(record))
            self._console.print(line, soft_wrap=True)
        except Exception:  # noqa: BLE001 - logging's own way out
            self.handleError(record)

    def _message(self, record: logging.LogRecord) -> Text:
        if isinstance(record.args, tuple) and record.args and isinstance(record.args[0], Text):
            return record.args[0]
        style = "red" if record.levelno >= logging.ERROR else (
            "yellow" if record.levelno >= logging.WARNING else "")  # fmt: skip
        text = f"{record.name}: {record.getMessage()}"
        if record.exc_info:
            text += "\n" + self._clock.formatException(record.exc_info)
        return Text(plain(text), style=style)


def _failure(outcome: Outcome, verdict: Verdict) -> Failure | None:
    return verdict.failure if isinstance(verdict, End) else outcome.failure


def _line(work: Work, outcome: Outcome, verdict: Verdict, seconds: float | None) -> Text:
    kind = outcome.kind.label
    if isinstance(verdict, End) and verdict.state is State.FAILED:
        kind = "failed"
    line = Text(f"{work.task:<20} ")
    line.append(kind.replace("_", " "), style=STYLES[kind])
    line.append(f" in {format_duration(seconds)}" if seconds is not None else "")
    failure = _failure(outcome, verdict)
    if failure is not None and outcome.kind is not OutcomeKind.CANCELLED:
        line.append(f": {plain(first_line(f'{failure.type}: {failure.message}'))}", style="red")
    if isinstance(verdict, TryAgain):
        line.append(f", attempt {work.attempt} of {work.max_attempts}", style="yellow")
        line.append(f", again in {format_duration(verdict.delay)}", style="yellow")
    return line.append(f"  {work.id}", style="dim")


def _event(work: Work, outcome: Outcome, verdict: Verdict, seconds: float | None) -> dict[str, Any]:
    failure = _failure(outcome, verdict)
    return {
        "event": "ended",
        "id": work.id,
        "task": work.task,
        "attempt": work.attempt,
        "outcome": outcome.kind.label,
        "seconds": seconds,
        "error": {"type": failure.type, "message": failure.message} if failure else None,
        "retry_in": verdict.delay if isinstance(verdict, TryAgain) else None,
    }


def describe_database(settings: Settings) -> str:
    """Return the address of the database, without its password and other parameters."""
    if not settings.database_url:
        return f"embedded PostgreSQL in {settings.data_dir}"
    url = urlsplit(settings.database_url)
    access, _, hosts = url.netloc.rpartition("@")
    user = access.partition(":")[0]
    return f"{url.scheme}://{user + '@' if user else ''}{hosts}{url.path}"


def how_to_call(settings: Settings) -> str:
    """Return the `rota` command for another terminal in this folder, with the same database."""
    command = "rota"
    if shutil.which("rota") is None:
        with contextlib.suppress(ValueError):
            command = str(Path(sys.argv[0]).absolute().relative_to(Path.cwd()))
    if settings.database_url or settings.data_dir == default_data_dir():
        return command
    folder = settings.data_dir
    with contextlib.suppress(ValueError):
        folder = folder.relative_to(Path.cwd())
    return f"ROTA_DATA_DIR={folder} {command}"


def banner(reference: str, where: str, tasks: list[Task[..., Any]], call: str) -> Table:
    listed = Table.grid(padding=(0, 2, 0, 0))
    for task in tasks:
        options = task.options_
        listed.add_row(
            Text(task.name, style="bold"), f"queue {options.queue}", options.guarantee.label
        )
    return facts(
        {
            "rota": f"{rota.__version__} runs {reference}",
            "database": where,
            "tasks": listed if tasks else "none: add @app.task functions",
            "try": f"{call} jobs submit {tasks[0].name} '{sample(tasks[0])}'" if tasks else None,
            "": f"{call} jobs list",
            "stop": "Ctrl-C",
        }
    )


def sample(task: Task[..., Any]) -> str:
    """Return sample arguments of a task, as JSON."""
    required = {
        name: parameter
        for name, parameter in inspect.signature(task.function, eval_str=False).parameters.items()
        if name != task.arguments.context_parameter
        and parameter.default is inspect.Parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    }
    values = {name: _sample_value(parameter.annotation) for name, parameter in required.items()}
    return msgspec.json.format(msgspec.json.encode(values), indent=0).decode()


def _sample_value(annotation: Any) -> Any:
    for kind, value in _SAMPLES.items():
        if annotation in (kind, kind.__name__) or getattr(annotation, "__origin__", None) is kind:
            return value
    return "..."
