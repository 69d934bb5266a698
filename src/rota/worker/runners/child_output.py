"""Sends the output of a handler in a child process to its node.

Lines go out at once, so that they outlive a crash of the process, but only while the node keeps up:
otherwise they wait here, within the attempt's limits, for the next line or for the end. Printing never
waits for the node.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from rota.lib.capture import Limits, Line, Recorder, only_source
from rota.worker.runners.frames import Output

if TYPE_CHECKING:
    from rota.worker.runners.child import Child

_FRAME_LINES = 200
_FRAME_BYTES = 32 * 1024


class OutputStream:
    """The output of the work that runs: this process runs one at a time, with all its threads."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._pid = os.getpid()
        self._lock = threading.RLock()  # see Recorder
        self._sending = False
        self._recorder: Recorder | None = None
        self._unsent: list[Line] = []
        self.limits = Limits(0, 1.0)
        self.seq = 0  # 0: no handler's code runs
        only_source(self)

    def said(self, stream: str, text: str) -> None:
        # Not the output of a thread between two works, nor of a process that a handler forked.
        if self.seq and self.limits.bytes and os.getpid() == self._pid:
            with self._child.undisturbed(), self._lock:
                if self._recorder is None:
                    self._recorder = Recorder(self.limits, self._unsent.append)
                self._recorder.write(stream, text)
                if not self._sending:
                    self._send_what_fits()

    def _send_what_fits(self) -> None:
        self._sending = True
        try:
            while self._unsent:
                portion = self._portion()
                if not self._child.send_if_there_is_room(portion):
                    return
                del self._unsent[: len(portion.lines)]
        finally:
            self._sending = False

    def _portion(self) -> Output:
        """Return a frame of the first lines."""
        size, lines = 0, self._unsent[:_FRAME_LINES]
        for count, line in enumerate(lines, 1):
            size += len(line.text)
            if size > _FRAME_BYTES:
                return Output(self.seq, lines[:count])
        return Output(self.seq, lines)

    def close(self) -> None:
        """Send the rest, before the outcome of the handler that has returned."""
        if self._recorder is not None:
            self._recorder.close()
            with self._lock:
                while self._unsent:
                    portion = self._portion()
                    self._child.send(portion)
                    del self._unsent[: len(portion.lines)]
                self._recorder = None
        self.seq = 0
