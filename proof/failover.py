"""`make failover`: the primary dies, its synchronous standby takes over, and nothing promised is lost.

Each round: work is under way (clients submit and write down what they were told, five schedules fire
every second, a scheduler and two workers in processes of their own, all with a URL that names both
servers); all processes of the primary are killed at once; the standby is promoted; work must go on by
itself. Then the dead server is made anew as a standby of the living one, and the next round begins.

What is checked at the end: no acknowledged job was lost, nothing happened twice that must not, every
second of every schedule is in the ledger exactly once. What is measured: how long after the promotion
the first occurrence was fired, and the first job started.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from proof import workload
from proof.history import Fault, History, Recorder, SchedulePromise
from proof.judging import judge, make_operator
from proof.replicas import Replica
from proof.waiting import eventually

SCHEDULES = [SchedulePromise(f"every-second-{n}", "exact_tick" if n % 2 else "tick", 1)
             for n in range(5)]  # fmt: skip
LIMIT = 5.0  # seconds from the promotion to the first fire, and to the first start
SETTINGS = {"heartbeat": 1.0, "missed_heartbeats": 3, "connect_timeout": 3.0, "processes": 1,
            "grace": 5.0}  # fmt: skip


class Round(msgspec.Struct, frozen=True):
    """Seconds after the promotion, which itself took `away` after the kill."""

    away: float
    first_fire: float
    first_start: float
    first_submit: float


class Failover:
    def __init__(self, folder: Path, rate: float) -> None:
        self.folder = folder
        self._rate = rate
        self._replicas = [Replica(folder, name) for name in ("one", "two")]
        hosts = ",".join(replica.host for replica in self._replicas)
        self.url = f"postgresql://postgres@{hosts}/postgres"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._faults = Recorder(folder, "faults")

    @property
    def _primary(self) -> Replica:
        return self._replicas[0]

    # -- the cluster

    async def start(self) -> None:
        primary, standby = self._replicas
        await primary.make()
        await standby.follow(primary)
        workload.app.settings = workload.app.settings.replace(database_url=self.url, **SETTINGS)
        await workload.app.migrate()
        await self._execute(workload.EFFECTS.format(schema=workload.app.settings.schema))
        self._operator = make_operator(workload.app, self.folder)
        await self._operator.adopt(SCHEDULES)
        for name, command in {
            "scheduler": workload.node_command("scheduler"),
            "worker-1": workload.node_command("worker"),
            "worker-2": workload.node_command("worker"),
            "client-1": workload.client_command(self._rate / 2),
            "client-2": workload.client_command(self._rate / 2),
        }.items():
            self._spawn(name, command)

    def _spawn(self, name: str, command: list[str]) -> None:
        settings = {**SETTINGS, "database_url": self.url}
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, env=workload.environment(self.folder, name, **settings),
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    async def _execute(self, sql: str) -> None:
        connection = await self._primary.connect()
        await connection.execute(sql)
        await connection.close()

    async def stop(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        await workload.app.close()
        for replica in self._replicas:
            await replica.stop()

    # -- a round

    async def fail_over(self, away: float) -> Round:
        primary, standby = self._replicas
        killed = time.monotonic()
        primary.kill()
        await asyncio.sleep(away)  # what a cluster manager needs to be sure that it's dead
        await standby.promote()
        promoted, connection = time.monotonic(), await standby.connect()
        self._faults.write(Fault(killed, promoted, "failover", primary.name))
        self._replicas.reverse()
        try:
            moment = await connection.fetchval("select clock_timestamp()")
            first_fire = await self._first_fire(connection, moment, promoted)
        finally:
            await connection.close()
        beats = [beat for beat in self._history().beats() if beat.event == "start"]
        told = [line for line in self._history().submissions() if line.answer == "acknowledged"]
        return Round(
            away=promoted - killed,
            first_fire=first_fire,
            first_start=min(beat.at for beat in beats if beat.at > promoted) - promoted,
            first_submit=min(line.at for line in told if line.at > promoted) - promoted,
        )

    async def _first_fire(self, connection: Any, moment: Any, promoted: float) -> float:
        schema, query = workload.app.settings.schema, "extract(epoch from min(decided_at) - $1)"
        after: list[float] = []

        async def fired() -> bool:
            found = await connection.fetchval(
                f"select {query}::float8 from {schema}.occurrence where decided_at > $1", moment
            )
            after[:] = [found] if found is not None else []
            return bool(after) and self._worked_since(promoted)

        await eventually(fired, 60, "a fire and a start after the promotion")
        return after[0]

    def _worked_since(self, moment: float) -> bool:
        """Both kinds of work are under way again: for several seconds' worth of schedules."""
        beats = [beat for beat in self._history().beats() if beat.at > moment]
        told = [line for line in self._history().submissions() if line.at > moment]
        scheduled = {beat.job for beat in beats if beat.event == "start" and beat.schedule}
        return len(scheduled) >= 10 and any(line.answer == "acknowledged" for line in told)

    async def work(self, jobs: int) -> None:
        """Until so many more have started."""
        before = len(self._starts())
        await eventually(lambda: len(self._starts()) >= before + jobs, 60, f"{jobs} starts")

    def _starts(self) -> list[Any]:
        return [beat for beat in self._history().beats() if beat.event == "start"]

    async def rebuild(self) -> None:
        """The dead one follows the living one."""
        await self._replicas[1].follow(self._primary)

    def _history(self) -> History:
        return History(self.folder)

    # -- the end

    async def settle(self) -> None:
        """No new work; then the cluster comes to rest with every process alive."""
        for name in ("client-1", "client-2"):
            self._processes[name].terminate()
        for name in ("client-1", "client-2"):
            code = await asyncio.to_thread(self._processes[name].wait, 60)
            assert code == 0, f"{name} ended with {code}"
        await self._operator.pause_all()
        connection, schema = await self._primary.connect(), workload.app.settings.schema

        async def at_rest() -> bool:
            left: int = await connection.fetchval(
                f"select (select count(*) from {schema}.future)"
                f" + (select count(*) from {schema}.present)"
                f" + (select count(*) from {schema}.batch)"
            )
            return left == 0

        await eventually(at_rest, 90, "the end of all jobs")
        await connection.close()
        for name in ("scheduler", "worker-1", "worker-2"):
            assert self._processes[name].poll() is None, f"{name} ended by itself"

    async def check(self, started: float) -> list[str]:
        return await judge(
            self._primary.url, workload.app.settings.schema, self.folder, SCHEDULES,
            started=started, healed=max(fault.until for fault in self._history().faults()),
            lease=SETTINGS["heartbeat"] * SETTINGS["missed_heartbeats"], max_crashes=3,
            note="failover of the database",
        )  # fmt: skip


AWAY = (0.0, 2.0, 6.0, 15.0)  # seconds between the kill and the promotion, in turns


async def run(
    folder: Path, rounds: int, rate: float, jobs: int, away: Sequence[float] = AWAY
) -> tuple[list[Round], list[str]]:
    """The figures of each round, and what was broken."""
    failover, started = Failover(folder, rate), time.monotonic()
    figures: list[Round] = []
    try:
        await failover.start()
        for number in range(rounds):
            if number:
                await failover.rebuild()
            await failover.work(jobs)
            figures.append(await failover.fail_over(away[number % len(away)]))
        await failover.settle()
        return figures, await failover.check(started)
    finally:
        await failover.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill the primary, promote the standby, go on.")
    parser.add_argument("--rounds", type=int, default=len(AWAY))
    parser.add_argument("--rate", type=float, default=100.0, help="jobs a second")
    parser.add_argument("--jobs", type=int, default=500, help="that start before each kill")
    parser.add_argument("--keep", action="store_true", help="leave the history where it is")
    options = parser.parse_args()
    # Asked to end, it leaves no server and no node behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="rota-failover-"))
    folder.chmod(0o711)  # root's server runs as another user, who must be able to pass
    figures, broken = asyncio.run(run(folder, options.rounds, options.rate, options.jobs))
    for number, each in enumerate(figures, 1):
        print(f"round {number}: promoted {each.away:.2f} s after the kill; after that, first fire "
              f"{each.first_fire:.2f} s, first start {each.first_start:.2f} s, first submit "
              f"{each.first_submit:.2f} s")  # fmt: skip
    told = [line for line in History(folder).submissions() if line.answer == "acknowledged"]
    rows = History(folder).rows("occurrence")
    verdict = "none lost, none doubled" if not broken else f"{len(broken)} promises BROKEN"
    print(f"{len(told)} jobs were acknowledged, {len(rows)} occurrences fired: {verdict}")
    slow = [each for each in figures if max(each.first_fire, each.first_start) > LIMIT]
    for sentence in broken[:50]:
        print("BROKEN:", sentence)
    if slow:
        print(f"SLOW: {len(slow)} rounds took more than {LIMIT:g} s after the promotion")
    print("history:", folder) if options.keep or broken or slow else shutil.rmtree(folder)
    sys.exit(bool(broken or slow))


if __name__ == "__main__":
    main()
