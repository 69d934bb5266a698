"""Stands in for standard output and standard error, and beside `logging`, for as long as jobs run here.

Everything goes where it went before, first of all: the node's own logs, and what its user configured.
Whether it also belongs to an attempt is decided by the context it was said in. A log record is taken
once, however many handlers print it; Rota's own records belong to no attempt.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, Protocol, TextIO


class Source(Protocol):
    """An attempt that may say something."""

    def said(self, stream: str, text: str) -> None: ...


# The attempt whose code runs in this context. Coroutines and threads of their own have their own.
current: ContextVar[Source | None] = ContextVar("rota_attempt", default=None)
_handling: ContextVar[bool] = ContextVar("rota_handling_a_record", default=False)

_LEVELS = ((50, "critical"), (40, "error"), (30, "warning"), (20, "info"))
_formatter = logging.Formatter()
_lock = threading.Lock()
_users = 0
_only: Source | None = None
_original_call_handlers = logging.Logger.callHandlers


def only_source(source: Source | None) -> None:
    """In a process that runs one attempt at a time: whose everything is, from whichever thread."""
    global _only  # noqa: PLW0603 - one per process, as its name says
    _only = source


def install() -> None:
    """Begin to listen. Counted: as many `uninstall`s end it."""
    global _users  # noqa: PLW0603 - standard output is the process's, too
    with _lock:
        _users += 1
        if _users == 1:
            for name in ("stdout", "stderr"):
                if (stream := getattr(sys, name)) is not None:
                    setattr(sys, name, Tee(stream, name))
            logging.Logger.callHandlers = _call_handlers  # type: ignore[method-assign, assignment]


def uninstall() -> None:
    global _users  # noqa: PLW0603
    with _lock:
        _users -= 1
        if _users:
            return
        for name in ("stdout", "stderr"):
            # Somebody may have put something else in its place meanwhile: that stays.
            if isinstance(stream := getattr(sys, name), Tee):
                setattr(sys, name, stream.stream)
        if logging.Logger.callHandlers is _call_handlers:
            logging.Logger.callHandlers = _original_call_handlers  # type: ignore[method-assign]


def _source() -> Source | None:
    return current.get() or _only


class Tee:
    """A text stream that also tells the attempt."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.stream = stream
        self._name = name

    def write(self, text: str) -> int:
        count = self.stream.write(text)
        source = _source()
        if source is not None and not _handling.get():
            with contextlib.suppress(Exception):  # whatever is wrong here, printing goes on
                source.said(self._name, text)
        return count

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def __iter__(self) -> Any:
        return iter(self.stream)


def _call_handlers(logger: logging.Logger, record: logging.LogRecord) -> None:
    """In place of `Logger.callHandlers`: behind every level and filter, before any handler.

    A handler of our own would be thrown out by the user's logging configuration, and would miss the
    loggers that don't propagate.
    """
    source = _source()
    if source is None or _handling.get():
        _original_call_handlers(logger, record)
        return
    if record.name != "rota" and not record.name.startswith("rota."):
        with contextlib.suppress(
            Exception
        ):  # a record that can't be formatted: its handlers say so
            source.said(_level(record.levelno), _text(record))
    token = _handling.set(True)
    try:
        _original_call_handlers(logger, record)
    finally:
        _handling.reset(token)


def _level(number: int) -> str:
    return next((name for least, name in _LEVELS if number >= least), "debug")


def _text(record: logging.LogRecord) -> str:
    parts = [f"{record.name}: {record.getMessage()}"]
    if record.exc_info and record.exc_info[0] is not None:
        parts.append(_formatter.formatException(record.exc_info))
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(parts)
