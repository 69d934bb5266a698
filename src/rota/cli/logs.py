"""Logging for `rota start`: one line per record on standard error, for people or as JSON.

Each record says on which node it was written, and in which attempt of which job if a handler wrote it.
Secrets are taken out of the finished line. What handlers print is not ours to change: it goes to
standard output as it is.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.lib.capture import current
from rota.lib.redaction import Redactor, secrets_of
from rota.runtime.work import Work

log = logging.getLogger("rota.node")

LogFormat = Literal["pretty", "json", "text"]  # text: what pretty was called before
LogLevel = Literal["debug", "info", "warning", "error"]

_COLOURS = {"WARNING": "33", "ERROR": "31", "CRITICAL": "1;31", "DEBUG": "2"}


class Surroundings:
    """The fields that all log records of this process share, as far as they are known."""

    def __init__(self) -> None:
        self.node: Callable[[], UUID | None] = lambda: None
        self.redactor = Redactor()

    def fields(self) -> dict[str, str | int]:
        """Of the record that is being written now."""
        found: dict[str, str | int] = {}
        if (node := self.node()) is not None:
            found["node"] = str(node)
        if isinstance(work := current.get(), Work):
            found.update(job=str(work.id), attempt=work.attempt, task=work.task)
        return found


class JsonFormatter(logging.Formatter):
    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__()
        self._surroundings = surroundings

    def format(self, record: logging.LogRecord) -> str:
        clean = self._surroundings.redactor.clean
        entry: dict[str, str | int] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": clean(record.getMessage()),
            **self._surroundings.fields(),
        }
        if record.exc_info:
            entry["exception"] = clean(self.formatException(record.exc_info))
        return msgspec.json.encode(entry).decode()


class PrettyFormatter(logging.Formatter):
    def __init__(self, surroundings: Surroundings, coloured: bool) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
        self._surroundings = surroundings
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        line = self._surroundings.redactor.clean(super().format(record))
        fields = self._surroundings.fields()
        fields.pop("node", None)  # the same in every line: for people it is in the way
        if fields:
            first, newline, rest = line.partition("\n")
            told = " ".join(f"{name}={value}" for name, value in fields.items())
            line = f"{first} [{told}]{newline}{rest}"
        colour = _COLOURS.get(record.levelname) if self._coloured else None
        return f"\033[{colour}m{line}\033[0m" if colour else line


def configure(level: LogLevel | None, form: LogFormat) -> Surroundings:
    surroundings = Surroundings()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter(surroundings)
        if form == "json"
        else PrettyFormatter(surroundings, coloured=sys.stderr.isatty())
    )
    logging.basicConfig(level=(level or "info").upper(), handlers=[handler], force=True)
    return surroundings


def apply_level(level: LogLevel | None) -> None:
    """Apply `--log-level` to Rota's loggers, now that the application's module is imported.

    The module may have configured logging itself: its handlers and the levels of its own loggers stay.
    Without `--log-level`, so does the level that it gave to the logger `rota`.
    """
    enable_loggers()
    ours = logging.getLogger("rota")
    if level is None and ours.level == logging.NOTSET:
        ours.setLevel(logging.INFO)
    elif level is not None:
        ours.setLevel(level.upper())
        _warn_of_deaf_handlers(level)


def enable_loggers() -> None:
    """Enable Rota's loggers: `logging.config` disables those that exist when it is called."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "rota" and isinstance(logger, logging.Logger):
            logger.disabled = False


def _warn_of_deaf_handlers(level: LogLevel) -> None:
    handlers = [*logging.getLogger("rota").handlers, *logging.root.handlers]
    lowest = min((handler.level for handler in handlers), default=logging.NOTSET)
    if lowest > logging.getLevelNamesMapping()[level.upper()]:
        log.warning(
            "--log-level %s has no effect: the log handlers of your application drop everything below "
            "%s. Lower the level of a handler",
            level,
            logging.getLevelName(lowest),
        )


def learn(surroundings: Surroundings, settings: Settings) -> None:
    """The secrets that must not appear."""
    surroundings.redactor.learn(secrets_of(settings))
