"""The processes of the cluster, as a supervisor sees them: started again whenever they end.

Protocol. A member is kept running by a task of its own, except while somebody holds it down. Each start
is an incarnation with a name of its own, ``w2.3``; that is the name in journals and in Rota's list of
nodes. A frozen member is thawed before anything else is asked of it, and at the end all are gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

from proof.nemesis.clocks import WallClock
from proof.nemesis.network import Namespace
from proof.nemesis.proxy import Proxy

_ROOT = Path(__file__).parent.parent.parent
_RESTART_SECONDS = 0.5

Progress = Callable[[], int]
_PERIODS = 5  # of patience


class Member:
    def __init__(
        self, name: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str],
        proxy: Proxy, namespace: Namespace | None = None, clock: WallClock | None = None,
    ) -> None:  # fmt: skip
        self.on_surprise: Callable[[str, int], None] = lambda label, code: None
        self.name = name
        self.role = arguments[-1]
        self.proxy = proxy
        self.namespace = namespace
        self.clock = clock
        self.incarnation = 0
        self.surprises: list[int] = []  # exit codes that nobody had asked for
        self._arguments = arguments
        self._folder = folder
        self._environment = dict(environment)
        self._process: asyncio.subprocess.Process | None = None
        self._holders = 0
        self._may_run = asyncio.Event()
        self._may_run.set()
        self._frozen: list[psutil.Process] = []
        self._heartbeat: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def label(self) -> str:
        return f"{self.name}.{self.incarnation}"

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.returncode is None and not self._frozen

    # -- living

    def start(self) -> None:
        self._heartbeat = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while not self._closing:
            await self._may_run.wait()
            if self._closing:
                return
            process = self._process = await self._spawn()
            code = await process.wait()
            if not self._closing and not self._holders:
                self.surprises.append(code)
                self.on_surprise(self.label, code)
                await asyncio.sleep(_RESTART_SECONDS)

    async def _spawn(self) -> asyncio.subprocess.Process:
        self.incarnation += 1
        prefix = self.namespace.prefix if self.namespace else []
        environment = {
            **os.environ, **self._environment, **(self.clock.environment if self.clock else {}),
            "NEMESIS_NODE": self.label, "ROTA_NODE_NAME": self.label,
            "ROTA_DATABASE_URL": self.proxy.url, "PYTHONPATH": f"{_ROOT}:{_ROOT / 'src'}",
        }  # fmt: skip
        # Only the process itself gets the wrong clock, not the program that enters the namespace.
        preload = [f"LD_PRELOAD={environment.pop('LD_PRELOAD')}"] if self.clock else []
        command = [*prefix, "/usr/bin/env", *preload, sys.executable, "-m",
                   "proof.nemesis.processes", *self._arguments]  # fmt: skip
        with (self._folder / f"node-{self.name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *command, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip

    # -- dying

    @contextlib.asynccontextmanager
    async def held_down(self, number: signal.Signals) -> AsyncIterator[bool]:
        """Ended by this signal, and not started again before the end. Whether it obeyed."""
        self._holders += 1
        self._may_run.clear()
        try:
            yield await self._end(number)
        finally:
            self._holders -= 1
            if not self._holders:
                self._may_run.set()

    async def _end(
        self, number: signal.Signals, patience: float = 20.0, progress: Progress | None = None
    ) -> bool:
        """Whether it ended by itself after the signal, and had not to be killed."""
        process = self._process
        if process is None or process.returncode is not None:
            return True
        self._send(number)
        for _ in range(_PERIODS if progress is not None else 1):
            before = progress() if progress is not None else 0
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), patience)
                return True
            if progress is not None and progress() == before:
                break
        self._send(signal.SIGKILL)
        await process.wait()
        return False

    def tell(self, number: signal.Signals) -> None:
        """A signal that doesn't end it."""
        if self.is_up:
            self._send(number)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self._process is not None:
                self._process.send_signal(number)

    # -- freezing

    def processes(self) -> list[psutil.Process]:
        """The node, then its children."""
        if self._process is None or self._process.returncode is not None:
            return []
        with contextlib.suppress(psutil.Error):
            node = psutil.Process(self._process.pid)
            return [node, *node.children(recursive=True)]
        return []

    @contextlib.contextmanager
    def frozen(self, choose: Callable[[list[psutil.Process]], Iterable[psutil.Process]]):  # type: ignore[no-untyped-def]
        stopped = []
        for process in choose(self.processes()):
            with contextlib.suppress(psutil.Error):
                process.suspend()
                stopped.append(process)
        self._frozen += stopped
        try:
            yield stopped
        finally:
            self._thaw(stopped)

    def _thaw(self, processes: list[psutil.Process]) -> None:
        for process in list(processes):
            with contextlib.suppress(psutil.Error):
                process.resume()
            with contextlib.suppress(ValueError):
                self._frozen.remove(process)

    # -- the end

    async def stop(self, patience: float = 30.0, progress: Progress | None = None) -> bool:
        """Gracefully; whether that was enough. Whose number of `progress` still changes is slow, and
        not stuck: it is given more time, but not for ever."""
        self._closing = True
        self._may_run.set()
        self._thaw(self._frozen)
        graceful = await self._end(signal.SIGTERM, patience, progress)
        await self._gone()
        return graceful

    async def kill(self) -> None:
        """With everything it started. Doing it twice does no harm."""
        self._closing = True
        self._may_run.set()
        self._thaw(self._frozen)
        for process in reversed(self.processes()):
            with contextlib.suppress(psutil.Error):
                process.kill()
        await self._gone()

    async def _gone(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            await asyncio.gather(self._heartbeat, return_exceptions=True)
        # Cancelled in the middle of a start, it may have left a process behind.
        process = self._process
        if process is not None and process.returncode is None:
            self._send(signal.SIGKILL)
            await process.wait()
