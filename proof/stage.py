"""Where the sweep's victims live: a schema of their own, clients, healthy nodes, and the end of it all.

Protocol. A stage is made, its victims come one after the other or several at a time, each to its
failpoint (read from the file that it writes there, see `rota.lib.failpoints`), and what remains of them
recovers. Then no new work is made, a healthy node brings everything to its end, and the history is
judged.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from proof import workload
from proof.history import EVERYONE, KILL, PAUSE, SHUTDOWN, Fault, Recorder, SchedulePromise
from proof.judging import judge, make_operator
from proof.waiting import eventually
from rota import App
from rota.config import Settings

SCHEDULES = [SchedulePromise(f"every-second-{n}", "exact_tick" if n % 2 else "tick", 1)
             for n in range(8)]  # fmt: skip
SCHEDULES.append(SchedulePromise("in-line", "waiting_tick", 1, overlap="queue"))
# Short leases, so that a dead node is noticed soon; few slots and much to do, so that every node gets
# something of everything; and whoever goes down with many victims isn't taken for the cause.
SETTINGS = {"heartbeat": 0.3, "missed_heartbeats": 3, "shard_lease": 0.9, "processes": 1,
            "concurrency": 4, "grace": 3.0, "kill_grace": 1.0, "max_crashes": 1000,
            "connect_timeout": 5.0}  # fmt: skip
_RATE = 60.0
_CUTS = 6  # lost lines of one victim
_PATIENCE = 180.0  # of a machine that has other work: a victim gets a small part of the jobs


class Process:
    """A member of the cluster, with or without a failpoint."""

    def __init__(self, folder: Path, name: str, command: list[str], settings: dict[str, Any],
                 failpoints: str = "") -> None:  # fmt: skip
        self.name = name
        self._asked = False
        self._reached = folder / f"reached-{name}"
        environment = workload.environment(folder, name, **settings)
        environment["ROTA_FAILPOINTS"] = failpoints
        environment["ROTA_FAILPOINTS_REACHED"] = str(self._reached)
        self._log = folder / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_up(self) -> bool:
        return " is up: " in self._log.read_text()

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def reached(self, point: str) -> int | None:
        """The process in which that failpoint acted: this one, or a child of it."""
        if self._reached.exists():
            for line in self._reached.read_text().splitlines():
                name, _action, pid = line.split()
                if name == point:
                    return int(pid)
        return None

    def terminate(self) -> None:
        """Once: a second time would mean "at once", or meet a process that has done listening."""
        if not self._asked and not self.has_ended():
            self._asked = True
            self._process.terminate()

    async def wait(self) -> int:
        return await asyncio.to_thread(self._process.wait, _PATIENCE)

    def kill(self) -> None:
        if not self.has_ended():
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self._process.wait()


class Stage:
    def __init__(self, url: str, folder: Path, at_a_time: int) -> None:
        self.folder = folder
        self._at_a_time = at_a_time
        self._schema = f"sweep_{folder.name.replace('-', '_')}_{time.monotonic_ns() % 10**9}"
        self._settings = {**SETTINGS, "database_url": url, "schema": self._schema}
        self._url = url
        self._app = App(database_url=url, schema=self._schema)
        self._processes: list[Process] = []
        self._broken: list[str] = []
        # Kept until the end: what a node holds and has forgotten is returned as soon as it leaves.
        self._survivors: list[tuple[Process, Any]] = []

    async def run(self, cases: Sequence[Any]) -> list[str]:
        started = time.monotonic()
        try:
            await self._prepare()
            await self._play(cases)
            await self._settle()
            return [*self._broken, *await self._judge(started)]
        except AssertionError as error:
            return [*self._broken, str(error)]
        finally:
            for process in self._processes:
                process.kill()
            await self._drop()

    async def _play(self, cases: Sequence[Any]) -> None:
        raise NotImplementedError

    # -- the set

    async def _prepare(self) -> None:
        self._database = await asyncpg.create_pool(self._url, min_size=1, max_size=4)
        await self._app.migrate()
        await self._database.execute(workload.EFFECTS.format(schema=self._schema))
        self._faults = Recorder(self.folder, "faults")
        # By the app that declares the tasks: it knows their guarantees.
        self._operator = make_operator(workload.app, self.folder)
        async with workload.app.using(self._own_settings()):
            await self._operator.adopt(SCHEDULES)
        self._client = self._start("client", workload.client_command(_RATE))

    def _own_settings(self) -> Settings:
        return workload.app.settings.replace(database_url=self._url, schema=self._schema)

    def _start(self, name: str, command: list[str], failpoints: str = "") -> Process:
        process = Process(self.folder, name, command, self._settings, failpoints)
        self._processes.append(process)
        return process

    async def _drop(self) -> None:
        await self._app.close()
        await self._database.execute(f"drop schema if exists {self._schema} cascade")
        await self._database.close()

    # -- a victim

    async def _suffer(self, victim: Process, case: Any) -> None:
        """Until it was reached; and what then becomes of the victim by itself."""
        if case.target.provoked == "stop":
            await eventually(victim.is_up, _PATIENCE, f"the start of {case}'s victim")
            victim.terminate()
        await eventually(
            lambda: victim.reached(case.name) or victim.has_ended(), _PATIENCE, f"reaching {case}"
        )
        pid = victim.reached(case.name)
        assert pid is not None, f"{case} was never reached: see {victim.name}.log"
        if case.action == "kill":
            await eventually(lambda: not _is_alive(pid), _PATIENCE, f"the death at {case}")
            if pid == victim.pid:
                self._note(KILL, victim.name, time.monotonic())
        elif case.action == "stop":
            since = time.monotonic()
            await eventually(lambda: _is_stopped(pid), _PATIENCE, f"the stop at {case}")
            await self._outlive(victim)
            psutil.Process(pid).send_signal(signal.SIGCONT)
            self._note(PAUSE, victim.name, since)

    def _note(self, kind: str, name: str, since: float) -> None:
        self._faults.write(Fault(since, time.monotonic(), kind, name))

    async def _outlive(self, victim: Process) -> None:
        """What it held is others': its lease is over, and it was declared dead if it ever was alive."""
        await asyncio.sleep(1.5 * SETTINGS["heartbeat"] * SETTINGS["missed_heartbeats"])

    async def _dismiss(self, victim: Process, case: Any) -> None:
        """What is left of it goes in peace."""
        since = time.monotonic()
        victim.terminate()
        code = await victim.wait()
        self._note(SHUTDOWN, victim.name, since)
        if code not in (0, -signal.SIGKILL):
            self._broken.append(f"{case}: its victim ended with {code}, see {victim.name}.log")

    # -- the end

    async def _settle(self) -> None:
        self._client.terminate()
        if (code := await self._client.wait()) != 0:
            self._broken.append(f"the client ended with {code}, see client.log")
        async with workload.app.using(self._own_settings()):
            await self._operator.pause_all()
        self._start("last", workload.node_command("scheduler", "worker"))
        left = " + ".join(
            f"(select count(*) from {self._schema}.{table})"
            for table in ("future", "present", "batch")
        )

        async def at_rest() -> bool:
            return await self._database.fetchval(f"select {left}") == 0

        try:
            await eventually(at_rest, 60, "the end of all jobs")
        except AssertionError:
            self._broken += await self._what_is_left()
            raise
        for victim, case in self._survivors:
            await self._dismiss(victim, case)
        self._healed = time.monotonic()

    async def _what_is_left(self) -> list[str]:
        rows = await self._database.fetch(
            f"select p.task, p.id, p.state, p.token, p.due_at, n.pid, n.state as node"
            f" from {self._schema}.job as p left join {self._schema}.node as n on n.id = p.node"
            f" where p.state < 5 limit 10"
        )
        return [f"left: {dict(row)}" for row in rows]

    async def _judge(self, started: float) -> list[str]:
        # At any moment one of the victims was at its failpoint.
        self._faults.write(Fault(started, self._healed, "sweep", EVERYONE))
        return await judge(
            self._url, self._schema, self.folder, SCHEDULES, started=started, healed=self._healed,
            lease=SETTINGS["heartbeat"] * SETTINGS["missed_heartbeats"],
            max_crashes=int(SETTINGS["max_crashes"]), note="a fault at every boundary",
        )  # fmt: skip


class Crowd(Stage):
    """Several victims at a time, beside a healthy node."""

    async def _play(self, cases: Sequence[Any]) -> None:
        self._start("healthy", workload.node_command("scheduler", "worker"))
        room = asyncio.Semaphore(self._at_a_time)

        async def one(number: int, own: Sequence[Any]) -> None:
            async with room:
                await self._one(f"victim-{number}", own)

        victims = enumerate(shared_out(cases))
        done = await asyncio.gather(
            *(one(number, own) for number, own in victims), return_exceptions=True
        )
        self._broken += [str(error) for error in done if isinstance(error, AssertionError)]
        for error in done:
            if isinstance(error, BaseException) and not isinstance(error, AssertionError):
                raise error

    async def _one(self, name: str, cases: Sequence[Any]) -> None:
        case = cases[0]
        if case.target.who == "client":
            command = workload.client_command(_RATE)
        else:
            command = workload.node_command("scheduler", "worker")
        failpoints = ", ".join(each.failpoints for each in cases)
        victim = self._start(name, command, failpoints)
        if case.target.provoked == "join":
            await eventually(victim.is_up, _PATIENCE, f"the start of {case}'s victim")
            await asyncio.sleep(SETTINGS["shard_lease"])  # until it has its share
            friend = self._start(f"{name}-friend", workload.node_command("scheduler"))
            await self._suffer(victim, case)
            friend.kill()
        else:
            for each in cases:
                await self._suffer(victim, each)
        # A client would go on submitting, and a node whose claims are all lost would go on losing them.
        if case.target.who == "client" or case.target.also:
            await self._dismiss(victim, case)
        else:
            self._survivors.append((victim, case))


def shared_out(cases: Sequence[Any]) -> list[Sequence[Any]]:
    """A victim for each; but a node that is only cut off can be so in several places."""
    gentle = [
        case
        for case in cases
        if case.action == "error"
        and case.target.who == "node"
        and not case.target.also
        and not case.target.provoked
    ]
    rest = [[case] for case in cases if case not in gentle]
    return [*rest, *(gentle[n : n + _CUTS] for n in range(0, len(gentle), _CUTS))]


class Alone(Stage):
    """One scheduler after the other, each with work that nobody did before it."""

    async def _play(self, cases: Sequence[Any]) -> None:
        self._start("healthy", workload.node_command("worker"))
        for number, case in enumerate(cases):
            lost = self._start(
                f"lost-{number}", workload.node_command("worker"), "claim:after=kill@3"
            )
            await eventually(lost.has_ended, _PATIENCE, "the death of a worker")
            victim = self._start(
                f"victim-{number}", workload.node_command("scheduler"), case.failpoints
            )
            try:
                await self._suffer(victim, case)
                await self._dismiss(victim, case)
            except AssertionError as error:
                self._broken.append(str(error))
                victim.kill()


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED
