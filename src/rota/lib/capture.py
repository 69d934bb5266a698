"""Capture of the output and log records of handlers.

Protocol. A runner sets the attempt that runs in a context (`current`), or in a process that runs one at
a time (`only_source`). After `install`, standard output, standard error and log records are written to
their usual places first (the node's own logs, and what its user configured), and then copied to the
attempt, if there is one. A log record is copied once, however many handlers print it; Rota's own records
belong to no attempt.

The attempt's `Recorder` makes lines of the output, numbers them, and keeps their size and rate within
limits. Lines beyond the limits are held back in a ring: of too many lines the first and the last are
kept, and a mark between them gives the number of those left out. Held lines are emitted when the rate
allows it again, and at the end of the attempt. An attempt without output has no recorder.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from time import monotonic
from typing import Any, Protocol, TextIO

import msgspec

LONGEST_LINE = 16_384  # characters


def storable(text: str) -> str:
    """Replace NUL and lone surrogates, which PostgreSQL refuses."""
    if text.isascii():
        return text.replace("\0", "\\x00") if "\0" in text else text
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def message_of(error: BaseException) -> str:
    """Return an exception's message as text that can be stored."""
    try:
        return storable(str(error))
    except BaseException as broken:  # noqa: BLE001 - a handler's own __str__ may raise anything
        return f"<its str() raised {type(broken).__name__}>"


def shortened(line: str, left_out: int = 0) -> str:
    """Cut a line that is too long, and add how much was left out."""
    left_out += max(len(line) - LONGEST_LINE, 0)
    return f"{line[:LONGEST_LINE]}… {left_out:,} characters left out" if left_out else line


class LineSplitter:
    """Splits one stream of one attempt. An unfinished line is kept, up to the longest length."""

    __slots__ = ("_begun", "_left_out")

    def __init__(self) -> None:
        self._begun = ""
        self._left_out = 0  # characters of the line that has begun

    def feed(self, text: str) -> list[str]:
        """Add text, and return the lines that are complete now."""
        if "\n" not in text:
            self._keep(text)
            return []
        first, *others = text.split("\n")
        rest = others.pop()
        lines = [self._end(first), *(shortened(_as_seen(line)) for line in others)]
        self._keep(rest)
        return lines

    def close(self) -> list[str]:
        """Return the line that never got its end."""
        return [self._end("")] if self._begun else []

    def _keep(self, text: str) -> None:
        room = LONGEST_LINE - len(self._begun)
        self._begun += text[:room]
        self._left_out += max(len(text) - room, 0)

    def _end(self, text: str) -> str:
        self._keep(text)
        line, left_out = self._begun, self._left_out
        self._begun, self._left_out = "", 0
        return shortened(_as_seen(line), left_out)


def _as_seen(line: str) -> str:
    """Return the last state of a line that was overwritten, as by a progress bar."""
    line = line.rstrip("\r")
    return storable(line.rpartition("\r")[2] if "\r" in line else line)


# -- the lines of one attempt

MARK = "mark"  # the stream of "… 3,412 lines left out"
_STREAMS = ("stdout", "stderr")
_TAIL_PART = 4  # a quarter of the size is kept for the last lines


class Limits(msgspec.Struct, frozen=True):
    """The limits of one attempt's output."""

    bytes: int
    lines_per_second: float


class Line(msgspec.Struct, array_like=True, frozen=True, gc=False):
    seq: int  # from 1 in each attempt
    at: float  # monotonic, which all processes of a machine share
    stream: str  # stdout, stderr, mark, or the level of a log record
    text: str


class Recorder:
    """May be used from any thread. `emit` is called with lines in their order, under the lock."""

    def __init__(self, limits: Limits, emit: Callable[[Line], None]) -> None:
        self._emit = emit
        # A lock that its holder may take again: a finaliser may print wherever it happens to run.
        self._lock = threading.RLock()
        self._splitters = {stream: LineSplitter() for stream in _STREAMS}
        self._seq = 0
        self._room = limits.bytes - limits.bytes // _TAIL_PART
        self._tail_room = limits.bytes // _TAIL_PART
        self._rate = limits.lines_per_second
        self._allowance = self._rate * 2
        self._refilled = monotonic()
        self._held: deque[tuple[float, str, str]] = deque()
        self._held_size = 0
        self._left_out = 0

    def write(self, stream: str, text: str) -> None:
        """Add a piece of standard output or error, or a whole message of a log level."""
        with self._lock:
            splitter = self._splitters.get(stream)
            if splitter is not None:
                lines = splitter.feed(text)
            else:
                lines = [shortened(storable(line)) for line in text.splitlines() or [""]]
            for line in lines:
                self._offer(stream, line)

    def close(self) -> None:
        """End the attempt: emit unfinished lines and those that were held back."""
        with self._lock:
            for stream, splitter in self._splitters.items():
                for line in splitter.close():
                    self._offer(stream, line)
            self._release_held(monotonic(), always=True)

    def _offer(self, stream: str, text: str) -> None:
        now = monotonic()
        if self._held:
            self._release_held(now)
        if not self._held and self._may_send(text, now):
            self._send(now, stream, text)
        else:
            self._hold(now, stream, text)

    def _may_send(self, text: str, now: float) -> bool:
        if now > self._refilled:
            earned = (now - self._refilled) * self._rate
            self._allowance = min(self._allowance + earned, self._rate * 2)
            self._refilled = now
        return self._allowance >= 1 and self._room >= _size(text)

    def _send(self, at: float, stream: str, text: str) -> None:
        self._allowance -= 1
        self._room -= _size(text)
        self._seq += 1
        self._emit(Line(self._seq, at, stream, text))

    def _hold(self, at: float, stream: str, text: str) -> None:
        self._held.append((at, stream, text))
        self._held_size += _size(text)
        while self._held_size > self._tail_room and self._held:
            self._held_size -= _size(self._held.popleft()[2])
            self._left_out += 1

    def _release_held(self, now: float, *, always: bool = False) -> None:
        while self._held and (always or self._may_send(self._held[0][2], now)):
            self._mark_left_out(now)
            at, stream, text = self._held.popleft()
            self._held_size -= _size(text)
            self._send(at, stream, text)
        if always:
            self._mark_left_out(now)

    def _mark_left_out(self, now: float) -> None:
        if self._left_out:
            lines = "line" if self._left_out == 1 else "lines"
            text = f"… {self._left_out:,} {lines} left out"
            self._left_out = 0
            self._send(now, MARK, text)


def _size(text: str) -> int:
    """Return about how many bytes a line takes in the table."""
    return len(text) + 32 if text.isascii() else len(text.encode()) + 32


# -- streams and log records


class Source(Protocol):
    """An attempt whose output is kept."""

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
    """Set the attempt of a process that runs one at a time: all its output, of any thread."""
    global _only  # noqa: PLW0603 - one per process, as its name says
    _only = source


def install() -> None:
    """Begin to copy output. Calls are counted: as many calls of `uninstall` end it."""
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


class Tee:
    """A text stream that copies to the current attempt."""

    def __init__(self, stream: TextIO, name: str) -> None:
        self.stream = stream
        self._name = name

    def write(self, text: str) -> int:
        count = self.stream.write(text)
        source = current.get() or _only
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
    """Replace `Logger.callHandlers`, which is called after levels and filters, before any handler.

    A handler of our own would be removed by the user's logging configuration, and would miss the
    loggers that don't propagate.
    """
    source = current.get() or _only
    if source is None or _handling.get():
        _original_call_handlers(logger, record)
        return
    if record.name != "rota" and not record.name.startswith("rota."):
        with contextlib.suppress(Exception):  # its handlers report a record that can't be formatted
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
