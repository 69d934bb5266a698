"""Logging for `rota start`: one line per record on standard error, for people, as JSON, or as ECS.

Each record names its node, and the job and attempt if a handler wrote it. Secrets are removed from the
finished line. What handlers print goes to standard output unchanged.
"""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from rota.core.audit_formats import ECS_VERSION
from rota.lib.capture import current
from rota.lib.redaction import Redactor
from rota.runtime.work import Work

log = logging.getLogger("rota.node")

LogFormat = Literal["pretty", "json", "ecs"]
LogLevel = Literal["debug", "info", "warning", "error"]

_COLOURS = {"WARNING": "33", "ERROR": "31", "CRITICAL": "1;31", "DEBUG": "2"}


class LogFields:
    """The fields that are added to log records, and the secrets that are removed from them."""

    def __init__(self) -> None:
        self.node: Callable[[], UUID | None] = lambda: None
        self.redactor = Redactor()

    def current(self) -> dict[str, str | int]:
        """Return the fields of the record that is being written now."""
        found: dict[str, str | int] = {}
        if (node := self.node()) is not None:
            found["node"] = str(node)
        if isinstance(work := current.get(), Work):
            found.update(job=str(work.id), attempt=work.attempt, task=work.task)
        return found


class JsonFormatter(logging.Formatter):
    def __init__(self, fields: LogFields) -> None:
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        clean = self._fields.redactor.clean
        entry: dict[str, str | int] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": clean(record.getMessage()),
            **self._fields.current(),
        }
        if record.exc_info:
            entry["exception"] = clean(self.formatException(record.exc_info))
        return msgspec.json.encode(entry).decode()


class EcsFormatter(logging.Formatter):
    """The field names of the Elastic Common Schema, so that no pipeline has to rename them."""

    def __init__(self, fields: LogFields) -> None:
        super().__init__()
        self._fields = fields
        self._host = socket.gethostname()

    def format(self, record: logging.LogRecord) -> str:
        clean = self._fields.redactor.clean
        found = self._fields.current()
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry: dict[str, Any] = {
            "@timestamp": at.removesuffix("+00:00") + "Z",
            "log.level": record.levelname.lower(),
            "message": clean(record.getMessage()),
            "ecs.version": ECS_VERSION,
            "log.logger": record.name,
            "event.dataset": "rota.node",
            "service.name": "rota",
            "service.type": "rota",
            "host.name": self._host,
            "process.pid": record.process,
            "process.thread.name": record.threadName,
        }
        if (node := found.pop("node", None)) is not None:
            entry["service.node.name"] = node
        if found:
            entry["labels"] = {name: str(value) for name, value in found.items()}
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            entry["error.type"] = f"{type(error).__module__}.{type(error).__qualname__}"
            entry["error.message"] = clean(str(error))
            entry["error.stack_trace"] = clean(self.formatException(record.exc_info))
        return msgspec.json.encode(entry).decode()


class PrettyFormatter(logging.Formatter):
    def __init__(self, fields: LogFields, coloured: bool) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
        self._fields = fields
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        line = self._fields.redactor.clean(super().format(record))
        fields = self._fields.current()
        fields.pop("node", None)  # the same in every line: noise for people
        if fields:
            first, newline, rest = line.partition("\n")
            shown = " ".join(f"{name}={value}" for name, value in fields.items())
            line = f"{first} [{shown}]{newline}{rest}"
        colour = _COLOURS.get(record.levelname) if self._coloured else None
        return f"\033[{colour}m{line}\033[0m" if colour else line


def configure(level: LogLevel | None, form: LogFormat) -> LogFields:
    fields = LogFields()
    handler = logging.StreamHandler(sys.stderr)
    formatters: dict[LogFormat, Callable[[], logging.Formatter]] = {
        "json": lambda: JsonFormatter(fields),
        "ecs": lambda: EcsFormatter(fields),
        "pretty": lambda: PrettyFormatter(fields, coloured=sys.stderr.isatty()),
    }
    handler.setFormatter(formatters[form]())
    logging.basicConfig(level=(level or "info").upper(), handlers=[handler], force=True)
    return fields


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
        _warn_of_dropped_records(level)


def enable_loggers() -> None:
    """Enable Rota's loggers: `logging.config` disables those that exist when it is called."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.partition(".")[0] == "rota" and isinstance(logger, logging.Logger):
            logger.disabled = False


def _warn_of_dropped_records(level: LogLevel) -> None:
    handlers = [*logging.getLogger("rota").handlers, *logging.root.handlers]
    lowest = min((handler.level for handler in handlers), default=logging.NOTSET)
    if lowest > logging.getLevelNamesMapping()[level.upper()]:
        log.warning(
            "--log-level %s has no effect: the log handlers of your application drop everything below "
            "%s. Lower the level of a handler",
            level,
            logging.getLevelName(lowest),
        )
