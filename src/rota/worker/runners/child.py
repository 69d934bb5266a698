"""The program of a child process: ``python -m rota.worker.runners.child WORK CONTROL LIFELINE PARENT``.

The main thread reads works from the work socket, runs them one after another and sends how each
ended before it begins the next; end of file there makes the child exit. A second thread obeys the
control socket, so that a busy child can still be reached.

How a stop reaches the right work, and no other:

- A work is *begun* and *ended* under `_gate`. The control thread judges a `Stop` under the same
  gate: not begun, it is dropped and reported `Unstarted`; ended, nothing happens; otherwise
  `stop_asked` names it, and SIGTERM goes to the process group, so that no other work's
  grandchildren can be hit.
- The main thread's SIGTERM handler raises JobStopped only while `_current`, which is set exactly
  as long as the handler's code runs, is the work that `stop_asked` names; and once per work, so
  that its clean-up is not interrupted. A signal that comes late finds another number and does
  nothing.
- The group's signal can be taken by another thread, or arrive in the instant before a blocking
  call begins, which then doesn't see it. So the control thread repeats it, for the main thread
  alone, until JobStopped was raised or the work has ended.

How it dies with its parent: see `lifeline`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import io
import itertools
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from types import FrameType
from typing import Any

from rota import errors
from rota.context import ErrorHook, JobInfo, SyncContext
from rota.core.resources import MEMORY, said_one, shape_of_lane
from rota.errors import JobStopped, OutOfMemory
from rota.lib import capture, tracing
from rota.lib.memory import MemoryLimit, data_bytes
from rota.lifecycle import State, begin_in_child, end_in_child
from rota.model import Guarantee, Outcome, OutcomeKind
from rota.store.sync_effects import SyncEffects
from rota.worker.runners import frames, results
from rota.worker.runners.child_output import OutputStream
from rota.worker.runners.frames import Answer, FrameReader, Report, Run, Setup, pack
from rota.worker.runners.lifeline import die_with_parent, ignore, kill_own_group, set_free
from rota.worker.runners.members import run_chunk_sync

_READ_BYTES = 256 * 1024
_REPEAT_STOP_SECONDS = 0.05
_BEAT_SHARE = 0.1  # of heartbeat_timeout: signs of life are not passed on more often


class Child:
    """The works of one process. `serve` is its main thread, `obey` its other."""

    def __init__(self, work: socket.socket, control: socket.socket, parent: int) -> None:
        self._work = work
        self._control = control
        self._parent = parent
        self._pid = os.getpid()
        self._tasks: dict[str, Any] = {}
        self._hooks: Sequence[ErrorHook] = ()
        self.state = State()
        self._lifespans = contextlib.ExitStack()
        self._effects = SyncEffects()
        self._max_result_bytes = 0
        self.frame_limit = 0
        self._memory: MemoryLimit | None = None
        self._mib: int | None = None  # the limit of the work that runs

        self._main_thread = threading.get_ident()
        self._send_lock = threading.Lock()
        self.calls = itertools.count(1)
        self.waiting: dict[int, SimpleQueue[Answer]] = {}

        self._gate = threading.Lock()
        self._begun = 0
        self._ended = 0
        self._recalled: set[int] = set()

        self._current = 0  # 0: the main thread is not inside a handler
        self.stop_asked = 0
        self._stop_raised = 0
        self._sending = False
        self._output = OutputStream(self)

    # The main thread

    def serve(self) -> None:
        reader: FrameReader[frames.WorkOrder] = FrameReader(frames.WorkOrder)
        with self._lifespans:
            while data := self._work.recv(_READ_BYTES):
                for order in reader.feed(data):
                    if isinstance(order, Run):
                        self._execute(order)
                    elif not self._set_up(order):
                        return

    def _set_up(self, setup: Setup) -> bool:
        os.environ.pop("PYTHONPATH", None)
        if setup.python_path is not None:
            os.environ["PYTHONPATH"] = setup.python_path
        sys.path[:] = setup.sys_path
        self._max_result_bytes = setup.max_result_bytes
        self.frame_limit = setup.frame_limit
        self._output.limits = setup.log_limits
        if setup.memory != "none":
            self._memory = MemoryLimit(None if setup.memory == "rlimit" else setup.memory)
        try:
            app = setup.reference.load()
            if prepare := getattr(app, "prepare", None):
                prepare()
            self._tasks, self._hooks = app.tasks, getattr(app, "error_hooks", ())
            self.state = getattr(app, "state", self.state)
            begun = begin_in_child(getattr(app, "child_lifespans", ()), self.state)
            self._lifespans.callback(end_in_child, begun)
        except BaseException as error:  # noqa: BLE001 - an import may raise SystemExit as well
            failure = results.failure_outcome(error).failure
            self.send(frames.ImportFailed(failure.traceback if failure else ""))
            return False
        self.send(frames.Ready())
        return True

    def _execute(self, run: Run) -> None:
        if not self._begin(run.seq):
            return
        began = time.monotonic()
        outcome = self._attempt_within(run) if run.lane else self._attempt(run)
        succeeded = outcome.kind is OutcomeKind.SUCCEEDED
        stopped = not succeeded and self.stop_asked == run.seq
        with self._gate:
            self._ended = run.seq
        self._output.close()
        ended = frames.Ended(run.seq, time.monotonic() - began, outcome.result)
        if not succeeded or outcome.failure is not None:
            ended.outcome, ended.stopped = outcome, stopped
        self.send(ended)

    def _begin(self, seq: int) -> bool:
        with self._gate:
            self._begun = seq
            if seq not in self._recalled:
                return True
            self._recalled.discard(seq)
            self._ended = seq
            return False

    def _attempt_within(self, run: Run) -> Outcome:
        """Call the handler with no more memory than its job has asked for."""
        mib = shape_of_lane(run.lane).amounts.get(MEMORY)
        if mib is None or self._memory is None:
            return self._attempt(run)
        self._mib = mib
        try:
            self._memory.begin(mib)
            return self._attempt(run)
        finally:
            self._memory.end()
            self._mib = None

    def _attempt(self, run: Run) -> Outcome:
        """Call the handler.

        A stop is raised at most once, at any instruction between the two settings of `_current`:
        the outer clause is for the one that comes while the inner clause is being entered.
        """
        try:
            try:
                self._current = self._output.seq = run.seq
                value = self._call_task(run)
                self._current = 0
            except BaseException as error:  # noqa: BLE001 - SystemExit ends the job, not the child
                self._current = 0
                if self._mib is not None and isinstance(error, MemoryError):
                    error = self._out_of_memory(error)
                if self._hooks and not isinstance(error, JobStopped):
                    results.call_hooks(self._hooks, JobInfo.of(run), error)
                return results.failure_outcome(error)
        except JobStopped as stop:
            self._current = 0
            return results.failure_outcome(stop)
        return results.encode_result(value, self._max_result_bytes)

    def _out_of_memory(self, error: MemoryError) -> OutOfMemory:
        assert self._mib is not None
        assert self._memory is not None
        used = data_bytes()
        self._memory.end()  # or there were none left to say so
        return OutOfMemory(
            f"it asked for {said_one(MEMORY, self._mib)} of memory, which its process has used up "
            f"({said_one(MEMORY, used >> 20)} when it asked for more)"
        ).with_traceback(error.__traceback__)

    def _call_task(self, run: Run) -> object:
        task = self._tasks.get(run.task)
        if task is None:
            raise errors.UnknownTask(f"task {run.task!r} is not registered in the child's app")
        transactional = run.guarantee is Guarantee.EXACTLY_ONCE
        context = None
        if task.takes_context or transactional or run.chunk:
            context = SyncContext(JobInfo.of(run), _Channel(self, run))
        with tracing.inside(run.headers):
            if run.chunk:
                limit = self._max_result_bytes
                return run_chunk_sync(task, run.payload, context, limit, self._hooks)
            if context is None or not transactional:
                return task.call(run.payload, context)
            limit = self._max_result_bytes
            return results.call_in_transaction(self._effects, task, run.payload, context, limit)

    def on_sigterm(self, _signum: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._pid:  # a process that a handler forked, an instant ago
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)
        if os.getppid() != self._parent:
            kill_own_group()  # see `lifeline`
        self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        seq = self._current
        # Not inside a send: half a frame would spoil the stream. The sender asks again.
        if seq and seq == self.stop_asked and seq != self._stop_raised and not self._sending:
            self._stop_raised = seq
            raise JobStopped("the job was asked to stop")

    # Sending, from any thread of a handler

    def send_if_there_is_room(self, report: Report) -> bool:
        """Send unless that would wait for the node. Return whether it was sent."""
        if not self._send_lock.acquire(blocking=False):
            return False
        try:
            # On Linux it can be written while less than a quarter of its buffer is used.
            if not select.select([], [self._work], [], 0)[1]:
                return False
            self._work.sendall(pack([report]))
        finally:
            self._send_lock.release()
        return True

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Defer stops: one raised inside would leave a lock held, or half a frame sent."""
        if threading.get_ident() != self._main_thread:
            yield
            return
        before, self._sending = self._sending, True
        try:
            yield
        finally:
            self._sending = before
        self._stop_if_asked()

    def send(self, report: Report) -> None:
        frame = pack([report])
        with self.undisturbed(), self._send_lock:
            self._work.sendall(frame)

    # The control thread

    def obey(self) -> None:
        reader: FrameReader[frames.ControlOrder] = FrameReader(frames.ControlOrder)
        try:
            while data := self._receive():
                for order in reader.feed(data):
                    self._obey(order)
        finally:
            kill_own_group()

    def _receive(self) -> bytes:
        while True:
            self._control.settimeout(_REPEAT_STOP_SECONDS if self._is_stop_open() else None)
            try:
                return self._control.recv(_READ_BYTES)
            except TimeoutError:
                signal.pthread_kill(self._main_thread, signal.SIGTERM)

    def _is_stop_open(self) -> bool:
        return self._ended < self.stop_asked != self._stop_raised

    def _obey(self, order: frames.ControlOrder) -> None:
        if isinstance(order, frames.Stop):
            self._ask_to_stop(order.seq)
        elif isinstance(order, frames.Recall):
            with self._gate:
                self._give_back([seq for seq in order.seqs if seq > self._begun])
        elif waiting := self.waiting.get(order.call):
            waiting.put(order)

    def _ask_to_stop(self, seq: int) -> None:
        with self._gate:
            if seq > self._begun:
                self._give_back([seq])
            elif seq > self._ended:
                self.stop_asked = seq
                os.killpg(os.getpgrp(), signal.SIGTERM)

    def _give_back(self, seqs: list[int]) -> None:
        # Sent inside the gate: it reaches the parent before the report of any later work.
        self._recalled.update(seqs)
        self.send(frames.Unstarted(seqs))


class _Channel:
    """Passes the calls of one work's handler to the node, from any of its threads."""

    def __init__(self, child: Child, run: Run) -> None:
        self._child = child
        self._seq = run.seq
        self._heartbeat_timeout = run.heartbeat_timeout
        self._beat_again_at = 0.0  # monotonic

    @property
    def state(self) -> State:
        return self._child.state

    @property
    def cancelled(self) -> bool:
        return self._child.stop_asked == self._seq

    def heartbeat(self) -> None:
        allowed, child = self._heartbeat_timeout, self._child
        if allowed is not None and (now := time.monotonic()) >= self._beat_again_at:
            self._beat_again_at = now + allowed * _BEAT_SHARE
            with child.undisturbed():  # a node that doesn't keep up reading has enough of them
                child.send_if_there_is_room(frames.Alive(self._seq))

    def begin_member(self) -> None:
        self._child.send(frames.Alive(self._seq, member=True))

    def progress(self, body: bytes) -> None:
        self._check_size("progress", body)
        self._child.send(frames.Alive(self._seq, body))

    def call(self, name: str, body: bytes) -> bytes:
        """Return the node's answer. Raises LeaseLost, or the exception of the node."""
        self._check_size(name, body)
        child, answers = self._child, SimpleQueue[Answer]()
        number = next(child.calls)
        child.waiting[number] = answers
        try:
            child.send(frames.Call(self._seq, number, name, body))
            answer = answers.get()
        finally:
            child.waiting.pop(number, None)
        if answer.error is not None:
            raise results.named_error(answer.error, answer.body.decode())
        return answer.body

    def _check_size(self, name: str, body: bytes) -> None:
        if len(body) > self._child.frame_limit - frames.FRAME_SLACK:
            raise ValueError(f"{name}: {len(body)} bytes are too many to send to the node")


def main() -> None:
    work_fd, control_fd, lifeline, parent = map(int, sys.argv[1:])
    del sys.argv[1:]
    for fd in (work_fd, control_fd, lifeline):
        os.set_inheritable(fd, False)
    die_with_parent(lifeline, parent)
    if sys.stderr is not None:
        faulthandler.enable()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what is buffered dies with the process
    work, control = socket.socket(fileno=work_fd), socket.socket(fileno=control_fd)
    child = Child(work, control, parent)
    capture.install()
    signal.signal(signal.SIGINT, ignore)
    signal.signal(signal.SIGTERM, child.on_sigterm)
    os.register_at_fork(after_in_child=lambda: set_free((work, control)))
    threading.Thread(target=child.obey, name="rota-control", daemon=True).start()
    with contextlib.suppress(ConnectionError):  # the parent is gone, and its signal on the way
        child.serve()


if __name__ == "__main__":
    # By its real name, so that the app and this process share one module and its classes.
    importlib.import_module("rota.worker.runners.child").main()
