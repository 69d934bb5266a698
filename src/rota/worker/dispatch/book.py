"""Gathers what handlers print, and how far they are, for relays."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rota.config import Settings
from rota.lib.capture import MARK, Limits, Line, Recorder
from rota.runtime.work import Work

_MOST_LINES = 50_000  # kept while no relay answers
_ITEMS = 100  # in one call
_LINES = 1_000
_BYTES = 500_000
_STREAMS = {"critical": "error", MARK: "warning"}  # others are known to relays


class Book:
    """A `LogBook`: lines in their order, from any thread."""

    def __init__(self, settings: Settings, wake: Callable[[], None]) -> None:
        self._limits = Limits(settings.log_bytes, settings.log_lines_per_second)
        self._pending: deque[tuple[Work, Line]] = deque(maxlen=_MOST_LINES)
        self._lock = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._wake = wake

    def open(self, work: Work) -> Recorder:
        with self._lock:
            if work.recorder is None:
                work.recorder = Recorder(self._limits, lambda line: self._add(work, line))
            return work.recorder

    def take(self, work: Work, lines: Sequence[Line]) -> None:
        for line in lines:
            self._add(work, line)

    def _add(self, work: Work, line: Line) -> None:
        self._pending.append((work, line))
        if len(self._pending) == 1:
            self._loop.call_soon_threadsafe(self._wake)

    def __len__(self) -> int:
        return len(self._pending)

    def items(self) -> list[dict[str, Any]]:
        """Remove and return lines for one call: runs of one attempt and stream."""
        items: list[dict[str, Any]] = []
        size = 0
        last: tuple[Work, str] | None = None
        while self._pending and size < _BYTES:
            work, line = self._pending[0]
            stream = _STREAMS.get(line.stream, line.stream)
            item = items[-1] if items else None
            follows = (
                item is not None and last == (work, stream) and len(item["lines"]) < _LINES
                and line.seq == item["first"] + len(item["lines"])
            )  # fmt: skip
            if not follows:
                if len(items) == _ITEMS:
                    break
                item = {"job": work.id, "token": work.token, "first": line.seq, "lines": [],
                        "stream": stream}  # fmt: skip
                items.append(item)
            assert item is not None
            item["lines"].append(line.text)
            self._pending.popleft()
            size += len(line.text) + 32
            last = (work, stream)
        return items
