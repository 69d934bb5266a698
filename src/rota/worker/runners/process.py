"""Runs plain functions in a pool of warm child processes.

Each of `size` places is kept by one asyncio task, which starts a child, waits until it is gone,
settles what was inside it and starts the next. Everything else happens in callbacks:

- `run` puts a work into the backlog; `_dispatch` gives the backlog out in order. An idle child
  gets one work. Further works go into a busy child, after those it has, only when all of them
  are known to be short (see `backlog`); if the running one turns out to be long after all, `_check`
  recalls those after it.
- `_receive` takes the reports of a child. Results come in the order of its works, so that the first
  work inside a child is the one that may have started, and those after it surely have not: when the
  child dies, the first one's outcome says how, and the rest go back to the backlog.
- `_check` watches timeouts and the deadlines of works that were asked to stop; it runs while there
  is anything inside a child.
- Each `Call` of a handler becomes one asyncio task and one `Answer`.

A work is in exactly one place: in the backlog, or in the `flights` of one child (`work.handle` is
then its Flight). `done` is called when it leaves, and not when it is withdrawn.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import ClassVar

from rota.config import Settings
from rota.core.resources import MEMORY, parse_node, said_one, shape_of_lane
from rota.errors import ConfigError, LeaseLost, OutOfMemory
from rota.lib.capture import Limits
from rota.lib.cgroups import Group, open_groups
from rota.lib.memory import resident_bytes
from rota.model import Failure, Outcome, OutcomeKind
from rota.runtime.work import StopReason, Work
from rota.worker.runners import frames
from rota.worker.runners.backlog import AHEAD_WORKS, Backlog
from rota.worker.runners.base import NodeParts, Runner
from rota.worker.runners.frames import Answer, Call, Ended, FrameError, Report, Run
from rota.worker.runners.reference import AppReference
from rota.worker.runners.results import outcome_of_stop, stopped_outcome
from rota.worker.runners.spawn import ChildProcess, Flight

log = logging.getLogger("rota.runners.process")

_CLOSE_SECONDS = 1.0
_FIRST_BACKOFF = 0.1
_LONGEST_BACKOFF = 10.0


class ProcessRunner(Runner):
    """A pool of child processes."""

    check_seconds: ClassVar[float] = 0.025

    def __init__(
        self, reference: AppReference, size: int, node: NodeParts, *,
        close_seconds: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(size, node)
        # Children that have something to close get more time for it.
        self._close_seconds = _CLOSE_SECONDS if close_seconds is None else close_seconds
        self._reference = reference
        self._settings = node.settings
        self._backlog = Backlog()
        self._answering: set[asyncio.Task[None]] = set()
        self._children: list[ChildProcess] = []
        self._places: list[asyncio.Task[None]] = []
        self._closing = asyncio.Event()
        self._all_ready: asyncio.Future[None] = self._loop.create_future()
        self._dispatch_due = False
        self._most_jobs = node.settings.child_max_jobs
        self._most_bytes = child_max_bytes(node.settings)
        limits = node.settings.memory_limits
        self._groups = open_groups() if limits in ("auto", "cgroup") else None
        if limits == "cgroup" and self._groups is None:
            raise ConfigError(
                "memory_limits is cgroup, and this process has no cgroup (version 2) of its own to "
                "divide: delegate one to it (systemd: Delegate=yes), or set memory_limits to auto"
            )
        self._limits = "none" if limits == "none" or sys.platform == "win32" else "rlimit"

    async def start(self) -> None:
        """Start all children and wait until each has imported the app.

        Raises ConfigError with the child's own traceback if one can't.
        """
        self._places = [self._loop.create_task(self._keep_place()) for _ in range(self.size)]
        try:
            await self._all_ready
        except BaseException:
            await self.stop()
            raise

    def run(self, work: Work) -> None:
        self._backlog.add(work)
        self._dispatch_soon()

    def stop_work(self, work: Work, reason: StopReason) -> None:
        """Stop a work. One in the backlog is reported at once, one inside a child when it has ended."""
        if self._backlog.withdraw(work):
            work.stopping = reason
            self._report(work, stopped_outcome(reason, "stopped before it began"))
        elif isinstance(flight := work.handle, Flight) and work.stopping is None:
            work.stopping = reason
            self._give_grace(flight)
            flight.child.send_control(frames.Stop(flight.seq))

    def _give_grace(self, flight: Flight | None) -> None:
        """Set when to kill it, counted from when it could stop: the request, or a later start."""
        if flight is not None and flight.work.stopping is not None:
            flight.kill_at = time.monotonic() + self._settings.kill_grace

    async def stop(self) -> None:
        self._closing.set()
        for child in self._children:
            child.close()
        if self._places:
            await asyncio.wait(self._places, timeout=self._close_seconds)
        for child in self._children:
            child.kill()
        await asyncio.gather(*self._places)
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)
        await super().stop()
        for work in self._backlog.withdraw_all():
            self._report(work, stopped_outcome("shutdown"))

    # Giving work to children

    def _dispatch_soon(self) -> None:
        if not self._dispatch_due and not self._closing.is_set():
            self._dispatch_due = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatch_due = False
        children = [child for child in self._children if child.takes_work()]
        # First one for each idle child, and only then more for any of them.
        batches = {child: self._backlog.give_first(child) for child in children}
        share = len(self._backlog) // max(1, len(children)) + 1
        for child, batch in batches.items():
            self._send(child, batch + self._backlog.give_ahead(child, share))

    def _refill(self, child: ChildProcess) -> None:
        """Give a child more work after its results: the other children are as full as they were."""
        if self._backlog and child.takes_work() and not self._closing.is_set():
            batch = self._backlog.give_first(child)
            self._send(child, batch + self._backlog.give_ahead(child, AHEAD_WORKS))

    def _send(self, child: ChildProcess, batch: list[Run]) -> None:
        if batch:
            child.send_work(batch)
            self._check_later()

    # Receiving from children

    def _receive(self, child: ChildProcess, reports: Iterator[Report]) -> None:
        for report in reports:
            if isinstance(report, Ended):
                self._on_ended(child, report)
            elif isinstance(report, frames.Unstarted):
                self._take_back(child, report.seqs)
            elif isinstance(report, frames.ImportFailed):
                child.import_error = report.traceback
            elif isinstance(report, frames.Ready):
                child.is_ready = True
                ready = sum(child.is_ready for child in self._children)
                if ready == self.size and not self._all_ready.done():
                    self._all_ready.set_result(None)
                self._dispatch_soon()
            else:
                self._on_report(child, report)
        self._refill(child)

    def _on_report(self, child: ChildProcess, report: Call | frames.Alive | frames.Output) -> None:
        flight = child.flights.get(report.seq)
        work = flight.work if flight else None  # None: a thread of it outlived its handler
        if isinstance(report, Call):
            task = self._loop.create_task(self._answer(child, work, report))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
        if work is None:
            return
        if isinstance(report, frames.Output):
            if self._node.book is not None:
                self._node.book.take(work, report.lines)
            return
        work.note_life()
        if isinstance(report, frames.Alive) and report.member:
            work.member_began = time.monotonic()
        if isinstance(report, frames.Alive) and report.progress is not None:
            self._node.desk.report_progress(work, report.progress)

    async def _answer(self, child: ChildProcess, work: Work | None, call: Call) -> None:
        try:
            if work is None:
                raise LeaseLost("the job has already ended")
            answer = Answer(call.call, await self._node.desk.answer(work, call.name, call.body))
        except Exception as error:  # noqa: BLE001 - whatever it is, the handler gets it
            message = str(error).encode("utf-8", "backslashreplace")
            answer = Answer(call.call, message, type(error).__name__)
        child.send_control(answer)

    def _on_ended(self, child: ChildProcess, ended: Ended) -> None:
        first = child.first()
        if first is None or first.seq != ended.seq:
            raise FrameError(f"a result for work {ended.seq}, which it doesn't run")
        work = child.remove(first)
        self._backlog.pace.note(work.task, ended.seconds)
        self._give_grace(child.first())
        if self._is_worn(child, ended):
            self._retire(child)
        if ended.outcome is None:
            self._report(work, Outcome(OutcomeKind.SUCCEEDED, ended.result))
        elif ended.stopped and work.stopping:
            self._report(work, outcome_of_stop(work, ended.outcome.failure))
        else:
            self._report(work, ended.outcome)

    def _is_worn(self, child: ChildProcess, ended: Ended) -> bool:
        """Return whether a child is to be replaced after the work that has ended now."""
        child.ended += 1
        if self._most_jobs is not None and child.ended >= self._most_jobs:
            return True
        failure = ended.outcome.failure if ended.outcome is not None else None
        if failure is not None and failure.type == OUT_OF_MEMORY:
            return True  # what it has left may not be enough for another
        return self._most_bytes is not None and resident_bytes(child.pid) > self._most_bytes

    def _retire(self, child: ChildProcess) -> None:
        """Let a child end before its next work. What waits inside it comes back, for others."""
        if not child.is_retiring:
            child.is_retiring = True
            waiting = [flight.seq for flight in child.flights.values()]
            if waiting:
                child.send_control(frames.Recall(waiting))
            child.close()

    def _take_back(self, child: ChildProcess, seqs: list[int]) -> None:
        """Put works that the child will not begin back to the head of the backlog."""
        flights = [child.flights[seq] for seq in seqs if seq in child.flights]
        works = [child.remove(flight) for flight in flights]
        self._backlog.put_back(work for work in works if work.stopping is None)
        for work in works:
            if work.stopping is not None:
                self._report(work, stopped_outcome(work.stopping, "stopped before it began"))
        self._dispatch_soon()

    def _report(self, work: Work, outcome: Outcome) -> None:
        try:
            self._done(work, outcome)
        except Exception:
            log.exception("the outcome of job %s could not be reported", work.id)

    # Watching

    def _check(self, now: float) -> None:
        for child in self._children:
            first = child.first()
            if first is None or child.gone.is_set():
                continue
            self._check_later()
            if child.has_exited():  # a process that it forked may keep its stream open
                child.leave()
            else:
                self._watch(child, first, now)

    def _watch(self, child: ChildProcess, first: Flight, now: float) -> None:
        work = first.work
        if first.kill_at is not None:
            if now >= first.kill_at and child.killed_for is None:
                log.warning(
                    "job %s did not stop in time: child process %d is killed", work.id, child.pid
                )
                child.killed_for = work
                child.kill()
        elif (reason := work.due_stop(now)) is not None:
            self.stop_work(work, reason)
        is_long = now - work.started > self.check_seconds
        if is_long and len(child.flights) > 1 and child.recalled_after != first.seq:
            child.recalled_after = first.seq
            child.send_control(frames.Recall([seq for seq in child.flights if seq != first.seq]))

    # Replacing children

    async def _keep_place(self) -> None:
        fruitless = 0
        while not self._closing.is_set():
            problem = await self._live_one_life()
            if problem is None:
                fruitless = 0
                continue
            fruitless += 1
            if not self._all_ready.done():
                self._all_ready.set_exception(ConfigError(problem))
            elif not self._closing.is_set():
                log.error("%s", problem)
            backoff = min(_FIRST_BACKOFF * 2**fruitless, _LONGEST_BACKOFF)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), backoff)

    async def _live_one_life(self) -> str | None:
        """Run a child to its end. Return what is wrong if it died before it did any work."""
        group = self._groups.make() if self._groups is not None else None
        try:
            child = ChildProcess(self._setup(group), self._receive, group)
        except OSError as error:
            return f"no child process could be started: {error}"
        self._children.append(child)
        await child.gone.wait()
        await child.reap()
        self._children.remove(child)
        self._settle(child)
        if group is not None:
            group.remove()
        if child.last_seq:
            return None
        if child.is_ready:
            return f"an idle child process {_end_of(child)}"
        reason = child.import_error or f"it {_end_of(child)} while importing"
        return f"a child process could not import the app {self._reference}:\n{reason}"

    def _setup(self, group: Group | None) -> frames.Setup:
        largest = max(self._settings.max_result_bytes, self._settings.max_payload_bytes)
        return frames.Setup(
            reference=self._reference,
            sys_path=sys.path,
            python_path=os.environ.get("PYTHONPATH"),
            max_result_bytes=self._settings.max_result_bytes,
            frame_limit=2 * largest + frames.FRAME_SLACK,  # a record of members has several results
            log_limits=Limits(self._settings.log_bytes, self._settings.log_lines_per_second),
            memory=self._limits if group is None else str(group.folder),
        )

    def _settle(self, child: ChildProcess) -> None:
        """Report the works inside a dead child: the first may have started, the others have not."""
        first = child.first()
        if first is None:
            return
        self._take_back(child, [seq for seq in child.flights if seq != first.seq])
        work = child.remove(first)
        if work.stopping is not None:
            note = f" and did not stop: its process {_end_of(child)}"
            self._report(work, outcome_of_stop(work, None, note))
        elif child.killed_for is not None or self._closing.is_set():
            self._report(work, Outcome(OutcomeKind.RETURNED))
        elif (over := _over_memory(child, work)) is not None:
            log.warning("job %s (%s): %s", work.id, work.task, over.message)
            self._report(work, Outcome(OutcomeKind.RAISED, failure=over))
        else:
            failure = Failure("ProcessDied", f"its child process {_end_of(child)}")
            log.warning("job %s (%s): %s", work.id, work.task, failure.message)
            self._report(work, Outcome(OutcomeKind.CRASHED, failure=failure))


OUT_OF_MEMORY = f"{OutOfMemory.__module__}.{OutOfMemory.__qualname__}"


def _over_memory(child: ChildProcess, work: Work) -> Failure | None:
    """Return the failure of a work whose process the system has killed for its memory."""
    mib = shape_of_lane(work.lane).amounts.get(MEMORY)
    if mib is None or child.group is None or not child.group.was_over():
        return None
    peak = child.group.peak()
    used = f" (at most {said_one(MEMORY, peak >> 20)} were in use)" if peak is not None else ""
    return Failure(
        OUT_OF_MEMORY,
        f"it asked for {said_one(MEMORY, mib)} of memory, and its processes used more{used}: they were "
        "killed by the system",
        lineage=tuple(
            f"{each.__module__}.{each.__qualname__}" for each in OutOfMemory.__mro__[:-1]
        ),
    )


def child_max_bytes(settings: Settings) -> int | None:
    """Return the size from which on children are replaced, in bytes. Raises ConfigError."""
    if settings.child_max_memory is None:
        return None
    return parse_node({MEMORY: settings.child_max_memory})[MEMORY] << 20


def _end_of(child: ChildProcess) -> str:
    status = child.process.returncode or 0
    if child.violation is not None:
        return f"was killed because it sent {child.violation}"
    if status >= 0:
        return f"exited with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = " (possibly out of memory)" if name == "SIGKILL" and child.killed_for is None else ""
    return f"was killed by {name}{hint}"
