"""The lines of one attempt: numbered, and within limits of size and rate.

What goes beyond is held back in a ring: of too many lines the first and the last are kept, since how it
began and how it ended tell most, and a mark between them says how many were left out. Held lines go out
when the rate allows it again, and at the end of the attempt.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

import msgspec

from rota.lib.capture.lines import LineSplitter, shortened, storable

MARK = "mark"  # the stream of "… 3,412 lines left out"
_STREAMS = ("stdout", "stderr")
_TAIL_PART = 4  # a quarter of the size is kept for the last lines


class Limits(msgspec.Struct, frozen=True):
    """Of one attempt."""

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
        """A piece of standard output or error, or a whole message of a log level."""
        with self._lock:
            splitter = self._splitters.get(stream)
            if splitter is not None:
                lines = splitter.feed(text)
            else:
                lines = [shortened(storable(line)) for line in text.splitlines() or [""]]
            for line in lines:
                self._offer(stream, line)

    def close(self) -> None:
        """The attempt has ended: what was begun or held back goes out now."""
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
    """About what it takes to store: its bytes, and something for being a row."""
    return len(text) + 32 if text.isascii() else len(text.encode()) + 32
