"""Starts one child process, exchanges frames with it, and reaps it.

It is *gone* when its work stream has ended, when it was found to have exited, or when it sent
something that is not a frame. Then, and only then, `reap` is called: it waits for the exit, kills
what is left of the process group, reads what the child had still sent, and frees everything. The
group is killed before its leader is reaped: until then its id can't be given to others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from rota.lib.cgroups import Group
from rota.runtime.work import Work
from rota.worker.runners import frames
from rota.worker.runners.frames import FrameError, FrameReader, Report, Setup, pack

log = logging.getLogger("rota.runners.process")

_READ_BYTES = 256 * 1024
_EXIT_POLL_SECONDS = 0.005
# How long a child whose stream has ended may take to exit by itself, with a status of its own.
_EXIT_SECONDS = 1.0


class Flight(msgspec.Struct, eq=False):
    """One work inside one child."""

    work: Work
    child: ChildProcess
    seq: int
    estimate: float
    kill_at: float | None = None  # monotonic; set when it was asked to stop


Receive = Callable[["ChildProcess", Iterator[Report]], None]


class ChildProcess:
    """A process, its two streams, and the works inside it: the first one runs, the rest wait."""

    def __init__(self, setup: Setup, receive: Receive, group: Group | None = None) -> None:
        self._receive = receive
        self.group = group
        self.ended = 0  # works that have ended in it
        self.is_retiring = False  # it gets no more work, and ends
        self._reader: FrameReader[Report] = FrameReader(Report, setup.frame_limit)
        self._outboxes: dict[socket.socket, Outbox] = {}
        self._spawn()
        self._outboxes = {stream: Outbox(stream) for stream in (self._work, self._control)}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._work, self._on_readable)
        self.gone = asyncio.Event()
        self.is_ready = False
        self.import_error: str | None = None
        self.violation: str | None = None  # what it sent that is not a frame
        self.killed_for: Work | None = None
        self.flights: dict[int, Flight] = {}
        self.load = 0.0  # seconds of work inside, as estimated
        self.last_seq = 0
        self.recalled_after = 0  # the seq of the work after which the others were recalled
        self.send_work([setup])

    def _spawn(self) -> None:
        self._work, child_work = socket.socketpair()
        self._control, child_control = socket.socketpair()
        child_lifeline, self._lifeline = os.pipe()
        fds = (child_work.fileno(), child_control.fileno(), child_lifeline)
        command = [sys.executable, "-P", "-m", "rota.worker.runners.child", *map(str, fds)]
        try:
            # On this thread: the system tells a child of the death of the thread that made it.
            self.process = subprocess.Popen(  # noqa: S603 - our own module
                [*command, str(os.getpid())],
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,
            )
        except OSError:
            self._close_streams()
            raise
        else:
            self._join_group()
        finally:
            child_work.close()
            child_control.close()
            os.close(child_lifeline)
        self._work.setblocking(False)
        self._control.setblocking(False)

    def _join_group(self) -> None:
        if self.group is not None:
            try:
                self.group.add(self.process.pid)
            except OSError as error:
                log.warning(
                    "child process %d could not be put into its cgroup: %s", self.pid, error
                )

    @property
    def pid(self) -> int:
        return self.process.pid

    def takes_work(self) -> bool:
        return self.is_ready and not self.is_retiring and not self.gone.is_set()

    def first(self) -> Flight | None:
        """Return the work that runs."""
        return next(iter(self.flights.values()), None)

    def add(self, work: Work, estimate: float) -> Flight:
        self.last_seq += 1
        self.load += estimate
        flight = Flight(work, self, self.last_seq, estimate)
        self.flights[flight.seq] = work.handle = flight
        if len(self.flights) == 1:
            work.started = time.monotonic()
        return flight

    def remove(self, flight: Flight) -> Work:
        """Remove a work. If it was the first, the next one runs from now on."""
        was_first = self.first() is flight
        del self.flights[flight.seq]
        flight.work.handle = None
        following = self.first()
        if following is None:
            self.load = 0.0
            return flight.work
        self.load -= flight.estimate
        if was_first:
            following.work.started = time.monotonic()
        return flight.work

    # Sending

    def send_work(self, orders: Sequence[frames.WorkOrder]) -> None:
        self._outboxes[self._work].write(pack(orders))

    def send_control(self, order: frames.ControlOrder) -> None:
        self._outboxes[self._control].write(pack([order]))

    def is_congested(self) -> bool:
        return bool(self._outboxes[self._work].rest)

    def close(self) -> None:
        """Ask it to exit after what it has. One that still imports has nothing to lose."""
        if not self.is_ready:
            self.kill()
        with contextlib.suppress(OSError):
            self._work.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """Send SIGKILL to it and to everything that its handlers started."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    # Receiving

    def _on_readable(self) -> None:
        try:
            data = self._work.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self.leave()

    def _take(self, data: bytes) -> None:
        try:
            self._receive(self, self._reader.feed(data))
        except FrameError as error:
            self.violation = str(error)
            log.error("child process %d sent %s: it is killed and replaced", self.pid, error)
            self.kill()
            self.leave()

    def leave(self) -> None:
        self._loop.remove_reader(self._work)
        self.gone.set()

    def has_exited(self) -> bool:
        """Check without reaping, where the system can (see above)."""
        if self.process.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self.process.poll() is not None
        try:
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.process.pid, how) is not None
        except ChildProcessError:
            return True

    async def reap(self) -> None:
        patience = time.monotonic() + _EXIT_SECONDS
        while not self.has_exited():
            if time.monotonic() > patience:
                self.kill()
            await asyncio.sleep(_EXIT_POLL_SECONDS)
        self.kill()
        self._read_rest()
        self.process.wait()  # it has exited, so that this doesn't block
        self._close_streams()

    def _read_rest(self) -> None:
        with contextlib.suppress(OSError):
            while self.violation is None and (data := self._work.recv(_READ_BYTES)):
                self._take(data)

    def _close_streams(self) -> None:
        for outbox in self._outboxes.values():
            outbox.close()
        self._work.close()
        self._control.close()
        os.close(self._lifeline)


class Outbox:
    """Writes to a stream without waiting: what doesn't fit now goes when there is room."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self.rest = bytearray()
        self._closed = False

    def write(self, data: bytes) -> None:
        if self._closed:
            return
        if self.rest:
            self.rest += data
            return
        sent = self._send(data)
        if sent < len(data):
            self.rest += data[sent:]
            self._loop.add_writer(self._stream, self._write_rest)

    def _write_rest(self) -> None:
        del self.rest[: self._send(self.rest)]
        if not self.rest:
            self._loop.remove_writer(self._stream)

    def _send(self, data: bytes | bytearray) -> int:
        try:
            return self._stream.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            return len(data)  # nobody reads it any more, which the reading side finds out

    def close(self) -> None:
        self._closed = True
        if self.rest:
            self._loop.remove_writer(self._stream)
