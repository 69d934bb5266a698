"""`rota pool`: starts and drains worker processes on this machine, as many as the load needs.

Protocol. A tick reads the load of the pool's queues, decides by `core/pools.py` how many slots there
should be, and starts or drains workers. From zero it is woken by a hint: when no worker is idle, a
submit notifies the whole namespace. A hint that is lost costs a second, the time between two ticks.

A worker that is to go is first drained: it starts no more jobs, and only when it has reported that none
is left is it told to end. So no job is interrupted to save a process. The emptiest goes first; one that
drains is taken back before another is started.

| who dies | what follows |
| --- | --- |
| a worker | the reaper gives its jobs to others; it is started again, after a pause that grows |
| the supervisor | each worker notices, by the end of its standard input, drains, and ends when nothing
runs. A new supervisor starts workers of its own: until the old ones have ended, there may be more than
`--max` |
| the database | the workers wait for it, as nodes do; nothing is started or drained meanwhile |

Two supervisors of the same queues would each start workers for the whole load: use one, or different
queues.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from time import monotonic
from typing import Any

import msgspec

from rota.app import App
from rota.core.pools import Bounds, Scaling, next_scaling, slots_needed, workers_for
from rota.errors import StoreUnavailable
from rota.model import NodeStatus
from rota.runtime.listener import channel_of
from rota.store.database import Connection, Database
from rota.store.driver_errors import translated_errors
from rota.store.pools import PoolStore

log = logging.getLogger("rota.pool")

SUPERVISED = "ROTA_SUPERVISED"  # set for workers: they end with their supervisor
_INTERVAL = 1.0
_FIRST_PAUSE = 1.0  # before a worker that has crashed is started again
_LONGEST_PAUSE = 60.0
_HEALTHY = 60.0  # seconds after which a worker counts as having started well


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The processes that a supervisor keeps running: how many, their slots, and what they serve."""

    reference: str
    least: int = 0
    most: int = 8
    slots: int = 8
    queues: Sequence[str] = ()
    capabilities: Sequence[str] = ()
    drain_target: float = 60.0

    @property
    def bounds(self) -> Bounds:
        return Bounds(least=self.least * self.slots, most=self.most * self.slots, step=self.slots)

    def command(self) -> list[str]:
        chosen = [word for queue in self.queues for word in ("--queue", queue)]
        chosen += [word for name in self.capabilities for word in ("--capability", name)]
        program = [sys.executable, "-c", "from rota.cli import main; main()"]
        return [
            *program, "start", self.reference, "--role", "worker", "--concurrency", str(self.slots),
            *chosen,
        ]  # fmt: skip


class Worker:
    """One worker process."""

    def __init__(self, process: asyncio.subprocess.Process, started: float) -> None:
        self.process = process
        self.started = started
        self.draining = False
        self.told_to_end = False
        self.node: NodeStatus | None = None  # as it registered

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def has_ended(self) -> bool:
        return self.process.returncode is not None

    @property
    def running(self) -> int:
        """Jobs that it runs, as it reported last. One that has not registered runs none."""
        return self.node.running if self.node else 0

    def end(self) -> None:
        """Tell it to end, once."""
        if not self.told_to_end and not self.has_ended:
            self.told_to_end = True
            self.process.send_signal(signal.SIGTERM)


class Supervisor:
    """Keeps the workers of a plan. `await run()` until a signal."""

    def __init__(self, app: App, plan: Plan) -> None:
        self._app = app
        self.plan = plan
        self.workers: list[Worker] = []
        self.scaling = Scaling()
        self.started = 0  # workers, so far
        self._pause = _FIRST_PAUSE
        self._start_from = 0.0  # monotonic: not before
        self._woken = asyncio.Event()
        self._stopping = asyncio.Event()
        self._listener: Connection | None = None

    # -- deciding

    async def tick(self) -> None:
        """Look at the load and at the workers, and start, drain or end some."""
        database = await self._database()
        await self._know_nodes()
        self._bury()
        plan = self.plan
        loads = await PoolStore(database).load(
            self._app.settings.namespace, plan.queues, plan.capabilities, plan.drain_target
        )
        needed = slots_needed(loads, plan.drain_target)
        self.scaling = next_scaling(self.scaling, monotonic(), needed, plan.bounds)
        await self._adjust(database, workers_for(self.scaling.target, plan.slots))

    async def _adjust(self, database: Database, wanted: int) -> None:
        while (missing := wanted - len(self._serving())) > 0:
            if back := [one for one in self.workers if one.draining and not one.told_to_end]:
                await self._take_back(database, max(back, key=lambda one: one.running))
            elif monotonic() >= self._start_from:
                await self._start()
            else:
                log.debug("%d workers are missing; one has just crashed", missing)
                break
        surplus = len(self._serving()) - wanted
        # One that has not registered can't be drained: it is looked at again.
        known = [one for one in self._serving() if one.node is not None]
        for worker in sorted(known, key=lambda one: one.running)[: max(surplus, 0)]:
            await self._drain(database, worker)
        for worker in self.workers:
            # Both are of one heartbeat: it had nothing left, and was not going to start anything.
            node = worker.node
            if worker.draining and node and node.state == "draining" and node.running == 0:
                worker.end()

    def _serving(self) -> list[Worker]:
        return [one for one in self.workers if not one.draining and not one.has_ended]

    # -- workers

    async def _start(self) -> None:
        # The other end of its standard input is ours: it is closed when we die, whatever kills us.
        process = await asyncio.create_subprocess_exec(
            *self.plan.command(), stdin=asyncio.subprocess.PIPE, start_new_session=True,
            env={**os.environ, SUPERVISED: "1"},
        )  # fmt: skip
        self.workers.append(Worker(process, monotonic()))
        self.started += 1
        log.info("started worker %d (%d serve)", process.pid, len(self._serving()))

    async def _drain(self, database: Database, worker: Worker) -> None:
        assert worker.node is not None
        await self._wish(database, worker.node, "drain")
        worker.draining = True
        log.info("draining worker %d, which runs %d jobs", worker.pid, worker.running)

    async def _take_back(self, database: Database, worker: Worker) -> None:
        if worker.node is not None:
            await self._wish(database, worker.node, None)
        worker.draining = False
        log.info("worker %d stays after all", worker.pid)

    async def _wish(self, database: Database, node: NodeStatus, wish: str | None) -> None:
        # Without a record in the audit log: nobody has decided it but the load.
        await database.fetch("set_node_wish", node.namespace, node.id, wish)

    async def _know_nodes(self) -> None:
        host = socket.gethostname()
        nodes = {node.pid: node for node in await self._app.nodes.list() if node.host == host}
        for worker in self.workers:
            worker.node = nodes.get(worker.pid)

    def _bury(self) -> None:
        """Remove workers that have ended. After one that was not told to, wait before the next start."""
        for worker in [one for one in self.workers if one.has_ended]:
            self.workers.remove(worker)
            if worker.told_to_end:
                log.info("worker %d has ended", worker.pid)
                continue
            if monotonic() - worker.started > _HEALTHY:
                self._pause = _FIRST_PAUSE
            self._start_from = monotonic() + self._pause
            log.warning(
                "worker %d has ended by itself, with %s; the next is started in %.0f s at the earliest",
                worker.pid, worker.process.returncode, self._pause,
            )  # fmt: skip
            self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    # -- running

    async def run(self) -> None:
        """Keep the workers until SIGTERM or SIGINT, then let them end as they do by a signal."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._request_stop)
        try:
            while not self._stopping.is_set():
                self._woken.clear()
                try:
                    await self._listen()
                    await self.tick()
                except StoreUnavailable as error:
                    log.warning("the database is away, the workers stay: %s", error)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), _INTERVAL)
        finally:
            await self.stop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _request_stop(self) -> None:
        if self._stopping.is_set():
            for worker in self.workers:  # the second time: at once
                if not worker.has_ended:
                    worker.process.send_signal(signal.SIGTERM)
        self._stopping.set()
        self._woken.set()

    async def stop(self) -> None:
        """End all workers: what runs ends within their grace period, as in `rota start`."""
        for worker in self.workers:
            worker.end()
        await asyncio.gather(*(worker.process.wait() for worker in self.workers))
        if self._listener is not None:
            with contextlib.suppress(Exception):
                await self._listener.close(timeout=5)
        await self._app.close()

    async def _listen(self) -> None:
        """LISTEN to what submits tell when no worker is idle, if that isn't done yet."""
        if self._listener is not None and not self._listener.is_closed():
            return
        database = await self._database()
        if database.behind_pooler:
            return
        self._listener = await database.dedicated()
        with translated_errors():
            channel = channel_of(database.schema, self._app.settings.namespace)
            await self._listener.add_listener(channel, self._hinted)

    def _hinted(self, *_: Any) -> None:
        if not self._serving():
            self._woken.set()

    async def _database(self) -> Database:
        return (await self._app.store()).database
