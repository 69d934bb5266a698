"""Rota on a Patroni cluster: work goes on, and one machine after another is broken.

Protocol. Two clients submit and write down what they were told, five schedules fire every second, a
scheduler and two workers run in processes of their own, all through the cluster's front. Each fault
begins when the cluster is whole and work is under way, and is taken back when another machine leads and
jobs start again. At the end clients and schedules stop, all jobs end, and the history is judged.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import asyncpg
import psutil

from proof import workload
from proof.failover import SCHEDULES, SETTINGS
from proof.ha.cluster import Cluster, Front, Node
from proof.ha.figures import Figures, read_figures
from proof.history import Fault, History, Recorder
from proof.judging import judge, make_operator
from proof.waiting import eventually

_WORKERS = ("worker-1", "worker-2")
_CLIENTS = ("client-1", "client-2")


class Trial:
    def __init__(self, folder: Path, *, synchronous: bool, front: Front, rate: float) -> None:
        self.folder, self._rate, self._front = folder, rate, front
        self.cluster = Cluster(folder, synchronous=synchronous, front=front)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._faults = Recorder(folder, "faults")
        self.started = 0.0

    # -- the work

    async def start(self) -> None:
        await self.cluster.start()
        settings = {**SETTINGS, "database_url": self.cluster.url}
        workload.app.settings = workload.app.settings.replace(**settings)
        await workload.app.migrate()
        connection = await self._connect()
        await connection.execute(workload.EFFECTS.format(schema=workload.app.settings.schema))
        await connection.close()
        self._operator = make_operator(workload.app, self.folder)
        await self._operator.adopt(SCHEDULES)
        self._spawn("scheduler", workload.node_command("scheduler"))
        for name in _WORKERS:
            self._spawn(name, workload.node_command("worker"))
        for name in _CLIENTS:
            self._spawn(name, workload.client_command(self._rate / len(_CLIENTS)))
        self.started = time.monotonic()

    def _spawn(self, name: str, command: list[str]) -> None:
        settings = {**SETTINGS, "database_url": self.cluster.url}
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, env=workload.environment(self.folder, name, **settings),
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    async def _connect(self) -> asyncpg.Connection:
        """Connect to the one that leads, past the front."""
        leader = await self.cluster.leader()
        return await asyncpg.connect(leader.url, timeout=10)

    async def work(self, seconds: float) -> None:
        """Let jobs start for so long, all the time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await self._started_after(time.monotonic())

    async def _started_after(self, moment: float) -> None:
        def started() -> bool:
            return any(
                beat.at > moment and beat.event == "start"
                for beat in History(self.folder).beats()[-200:]
            )

        await eventually(started, 120, "a start")
        await asyncio.sleep(0.2)

    async def stop(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        await workload.app.close()
        self.cluster.stop()

    # -- faults

    async def suffer(self, name: str) -> None:
        """Break the cluster in one way, and mend it when it has helped itself."""
        old = await self.cluster.leader()
        began = time.monotonic()
        heal = await FAULTS[name](self.cluster, old)
        await self._led_anew(old, moved=name != "postgres killed")
        led = time.monotonic()
        await self._accepted_after(led)
        await self._started_after(led)
        await heal()
        await self.cluster.whole()
        self._faults.write(Fault(began, time.monotonic(), name, old.name, f"{led - began:.2f}"))

    async def _led_anew(self, old: Node, *, moved: bool) -> None:
        async def led() -> bool:
            return any([await n.leads() for n in self.cluster.nodes if not moved or n is not old])

        await eventually(led, 120, "a new leader")

    async def _accepted_after(self, moment: float) -> None:
        def accepted() -> bool:
            told = History(self.folder).submissions()[-500:]
            return any(line.at > moment and line.answer == "acknowledged" for line in told)

        await eventually(accepted, 120, "an accepted submit")

    # -- the end

    async def settle(self) -> None:
        """End clients and schedules, and wait until all jobs have ended."""
        for name in _CLIENTS:
            self._processes[name].terminate()
        for name in _CLIENTS:
            code = await asyncio.to_thread(self._processes[name].wait, 60)
            assert code == 0, f"{name} ended with {code}"
        await self._operator.pause_all()
        connection, schema = await self._connect(), workload.app.settings.schema
        left = " + ".join(
            f"(select count(*) from {schema}.{table})" for table in ("future", "present", "batch")
        )

        async def at_rest() -> bool:
            return bool(await connection.fetchval(f"select {left} = 0"))

        await eventually(at_rest, 120, "the end of all jobs")
        await connection.close()
        for name in ("scheduler", *_WORKERS):
            assert self._processes[name].poll() is None, f"{name} ended by itself"

    async def judge(self) -> list[str]:
        """Return the promises that were broken, in sentences."""
        leader = await self.cluster.leader()
        faults = History(self.folder).faults()
        return await judge(
            leader.url, workload.app.settings.schema, self.folder, SCHEDULES, started=self.started,
            healed=max((fault.until for fault in faults), default=self.started),
            lease=SETTINGS["heartbeat"] * SETTINGS["missed_heartbeats"], max_crashes=3,
            note="a Patroni cluster",
        )  # fmt: skip


Heal = Callable[[], Awaitable[None]]


async def _machine_lost(cluster: Cluster, old: Node) -> Heal:
    old.machine.signal_all(signal.SIGKILL)
    old.reap()

    async def heal() -> None:
        old.start()

    return heal


async def _postgres_killed(cluster: Cluster, old: Node) -> Heal:
    """Kill the server alone: its Patroni starts it again where it is."""
    [postmaster] = [
        psutil.Process(pid) for pid in old.machine.pids() if _is_postmaster(psutil.Process(pid))
    ]
    for process in (postmaster, *postmaster.children(recursive=True)):
        process.kill()
    return _nothing


def _is_postmaster(process: psutil.Process) -> bool:
    parent = process.parent()
    return process.name() == "postgres" and (parent is None or parent.name() != "postgres")


async def _frozen(cluster: Cluster, old: Node) -> Heal:
    """Stop every process of the machine, and let it wake up when another leads."""
    old.machine.signal_all(signal.SIGSTOP)

    async def heal() -> None:
        old.machine.signal_all(signal.SIGCONT)

    return heal


async def _cut_off(cluster: Cluster, old: Node) -> Heal:
    """Cut it off from everybody: the other machines, clients, the front."""
    others = [node.address for node in cluster.nodes if node is not old]
    old.machine.cut_from([*others, old.machine.gateway])
    return _joining(old)


async def _cut_from_peers(cluster: Cluster, old: Node) -> Heal:
    """Cut it off from the other machines alone: clients still reach it, and it doesn't know better."""
    old.machine.cut_from([node.address for node in cluster.nodes if node is not old])
    return _joining(old)


def _joining(old: Node) -> Heal:
    async def heal() -> None:
        old.machine.join()

    return heal


async def _switched_over(cluster: Cluster, old: Node) -> Heal:
    status, text = await old.ask("/switchover", {"leader": old.name})
    assert status == 200, text
    return _nothing


async def _nothing() -> None:
    """Heal nothing: the cluster has mended itself."""


FAULTS: dict[str, Callable[[Cluster, Node], Awaitable[Heal]]] = {
    "switched over": _switched_over,
    "postgres killed": _postgres_killed,
    "machine lost": _machine_lost,
    "machine frozen": _frozen,
    "cut off": _cut_off,
    "cut off from its peers": _cut_from_peers,
}


async def run(
    folder: Path, faults: Sequence[str], *, synchronous: bool, front: Front = "haproxy",
    rate: float = 60, seconds: float = 10,
) -> tuple[Figures, list[str]]:  # fmt: skip
    """Return what was measured, and the promises that were broken."""
    trial = Trial(folder, synchronous=synchronous, front=front, rate=rate)
    before = workload.app.settings
    try:
        await trial.start()
        await trial.work(seconds)
        for name in faults:
            await trial.suffer(name)
            await trial.work(seconds)
        ended = time.monotonic()
        await trial.settle()
        broken = await trial.judge()
        return read_figures(folder, trial.started, ended), broken
    finally:
        await trial.stop()
        workload.app.settings = before
