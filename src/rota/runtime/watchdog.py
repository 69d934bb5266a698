"""Notices that the event loop doesn't answer, logs what blocks it, and can end a blocking job.

Protocol. From the heartbeat's thread a ping is put on the loop; while it isn't answered the loop is
blocked by whatever runs on its thread. After a second that is reported once, with the stack. When
the job at fault is over its timeout, the loop's thread is sent a signal whose handler, running on that
very thread between two bytecodes, raises in the job's own frames, and only if it finds them there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from rota.errors import JobStopped

log = logging.getLogger("rota.watchdog")

_REPORT_AFTER = 1.0
SIGNAL = signal.SIGUSR2

# Given the task that runs now: the code of its job's function, if that job is over its timeout.
Overdue = Callable[["asyncio.Task[Any] | None"], "CodeType | None"]


class Watchdog:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._can_signal = threading.current_thread() is threading.main_thread()
        self._asked = 0.0
        self._answered = True
        self._reported = False
        if self._can_signal:
            signal.signal(SIGNAL, _stop_overdue_job)

    def check(self) -> None:
        """Check the loop. Called several times a second from another thread."""
        now = time.monotonic()
        if self._answered:
            if self._reported:
                log.warning("the event loop answers again after %.1f s", now - self._asked)
            self._asked, self._answered, self._reported = now, False, False
            self._loop.call_soon_threadsafe(self._answer)
        elif now - self._asked >= _REPORT_AFTER:
            if not self._reported:
                self._reported = True
                self._report(now - self._asked)
            if self._can_signal and _overdue is not None:
                signal.pthread_kill(self._thread, SIGNAL)

    def silence(self) -> float:
        """Return for how long the loop has not answered."""
        return 0.0 if self._answered else time.monotonic() - self._asked

    def _answer(self) -> None:
        self._answered = True

    def _report(self, seconds: float) -> None:
        frame = sys._current_frames().get(self._thread)
        stack = "".join(traceback.format_stack(frame)[-6:]) if frame else "(no stack)"
        task = None
        with contextlib.suppress(RuntimeError):
            task = asyncio.current_task(self._loop)
        log.error(
            "the event loop has been blocked for %.1f s by %s: no other coroutine of this node can "
            "run. Make it a plain function (it then runs in a process of its own), or await.\n%s",
            seconds, task.get_name() if task else "something that is not a job", stack,
        )  # fmt: skip


_overdue: Overdue | None = None


def watch_overdue(overdue: Overdue | None) -> None:
    global _overdue  # noqa: PLW0603 - signal handlers are a process's, not an object's
    _overdue = overdue


def _stop_overdue_job(_number: int, frame: FrameType | None) -> None:
    if _overdue is None:
        return
    try:
        code = _overdue(asyncio.current_task())
    except RuntimeError:
        return
    # Only if the job's own function is what was interrupted, or what called it: raised elsewhere it
    # would break the loop itself.
    while code is not None and frame is not None:
        if frame.f_code is code:
            raise JobStopped("over its timeout, blocking the event loop")
        frame = frame.f_back
