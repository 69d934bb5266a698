"""A coordinator is broken while a cluster works: `python -m proof.coordinators etcd zookeeper consul
postgres`.

Three schedulers and a worker in processes of their own, jobs that come due all the time and schedules
that fire every second. The coordinator is killed and restarted, paused (SIGSTOP), wiped; schedulers
are killed in between and meanwhile. Asked is: did every job run once, is every occurrence in the
ledger once, how late were they, and how long did a dead scheduler's shards wait for a new owner?
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import asyncpg
import msgspec

from proof.services import Consul, Etcd, Process, ZooKeeper
from proof.takeover import Trial, end_one, percentile, settled
from proof.waiting import eventually
from rota import All, App, Context
from rota.lib.ids import unit
from rota.store.embedded import open_embedded

app = App()
_JOURNAL = os.environ.get("TAKEOVER_JOURNAL", "")
SERVICES: dict[str, type[Process] | None] = {
    "postgres": None, "etcd": Etcd, "zookeeper": ZooKeeper, "consul": Consul,
}  # fmt: skip
_SCHEDULES = 20
_PER_SECOND = 60


class Ran(msgspec.Struct, frozen=True):
    job: UUID
    due: float
    late: float


@app.task
async def note(ctx: Context) -> None:
    due = ctx.job.due_at
    assert due is not None
    # The machine's clock is the database's here, and nobody has moved it.
    line = msgspec.json.encode(Ran(ctx.job.id, due.timestamp(), time.time() - due.timestamp()))
    file = os.open(_JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line + b"\n")
    os.close(file)


class Outcome(msgspec.Struct):
    """What was seen. `late`: the worst lateness in each stretch of the trial."""

    jobs: int = 0
    occurrences: int = 0
    lost: int = 0
    doubled: int = 0
    missing_occurrences: int = 0
    doubled_occurrences: int = 0
    takeovers: list[float] = msgspec.field(default_factory=list)
    takeover_while_away: list[float] = msgspec.field(default_factory=list)
    late: dict[str, tuple[float, float]] = msgspec.field(default_factory=dict)

    @property
    def violations(self) -> int:
        return self.lost + self.doubled + self.missing_occurrences + self.doubled_occurrences


class CoordinatorTrial:
    def __init__(
        self, trial: Trial, connection: asyncpg.Connection, service: Process | None
    ) -> None:
        self.trial, self.connection, self.service = trial, connection, service
        self.schedulers = [self.start_scheduler(place) for place in range(3)]
        self._next = 0  # the place of the next to be killed
        self.submitted: set[UUID] = set()
        self.found = Outcome()
        self.stretches: dict[str, tuple[float, float]] = {}

    async def submit_for_ever(self) -> None:
        while True:
            for _ in range(_PER_SECOND // 10):
                job = await note.options(delay=2 + 3 * unit()).submit()
                self.submitted.add(job.id)
            await asyncio.sleep(0.1)

    def start_scheduler(self, place: int) -> subprocess.Popen[bytes]:
        return self.trial.start("scheduler")

    async def kill_a_scheduler(self, place: int | None = None) -> float:
        """Kill the one in this place, or one after the other. Return how long its shards waited."""
        if place is None:
            place, self._next = self._next, (self._next + 1) % len(self.schedulers)
        victim = self.schedulers[place]
        took = await end_one(self.trial, self.connection, victim, signal.SIGKILL)
        victim.wait()
        self.schedulers[place] = self.start_scheduler(place)
        return took

    async def settle(self) -> None:
        async with asyncio.timeout(120):
            await settled(self.connection, 3)

    async def stretch(self, name: str, do: Callable[[], Awaitable[None]]) -> None:
        began = time.time()
        await do()
        self.stretches[name] = (began, time.time())
        await self.settle()

    async def undisturbed(self) -> None:
        for _ in range(3):
            self.found.takeovers.append(await self.kill_a_scheduler())
            await self.settle()

    async def killed(self) -> None:
        assert self.service is not None
        self.service.kill()
        await asyncio.sleep(5)
        self.found.takeover_while_away.append(await self.kill_a_scheduler())
        await asyncio.sleep(5)
        self.service.start()
        await self.wait_until_used()

    async def paused(self) -> None:
        assert self.service is not None
        self.service.pause()
        await asyncio.sleep(5)
        self.found.takeover_while_away.append(await self.kill_a_scheduler())
        await asyncio.sleep(5)
        self.service.resume()
        await self.wait_until_used()

    async def wiped(self) -> None:
        assert self.service is not None
        self.service.wipe()
        await self.wait_until_used()
        self.found.takeovers.append(await self.kill_a_scheduler())

    async def wait_until_used(self) -> None:
        async def all_use_it() -> bool:
            return bool(
                await self.connection.fetchval(
                    "select count(*) = 3 and bool_and(coordinator_fault is null) from rota.node"
                    " where 'scheduler' = any(roles) and state = 'live' and expires_at > rota.now()"
                )
            )

        await eventually(all_use_it, 120, "the return to the coordinator")

    # -- the judgement

    async def judge(self) -> Outcome:
        found = self.found

        async def all_ended() -> bool:
            left = await self.connection.fetchval(
                "select (select count(*) from rota.future) + (select count(*) from rota.present)"
            )
            return left == 0

        await self.connection.execute("update rota.schedule set paused_at = rota.now()")
        await eventually(all_ended, 120, "the end of all jobs")
        lines = self.trial.journal.read_bytes().splitlines()
        ran = [msgspec.json.decode(line, type=Ran) for line in lines]
        times = Counter(line.job for line in ran)
        found.jobs, found.occurrences = len(self.submitted), await self.count_occurrences()
        found.lost = sum(times[job] == 0 for job in self.submitted)
        found.doubled = sum(count > 1 for count in times.values())
        for name, (begin, end) in self.stretches.items():
            late = sorted(line.late for line in ran if begin <= line.due <= end)
            found.late[name] = (percentile(late, 0.5), max(late)) if late else (0.0, 0.0)
        rows = await self.connection.fetch(
            "select schedule_id, count(*) as n, count(distinct due_at) as moments,"
            " extract(epoch from max(due_at) - min(due_at))::int + 1 as expected,"
            " count(job_id) as jobs from rota.occurrence group by 1"
        )
        found.missing_occurrences = sum(max(row["expected"] - row["moments"], 0) for row in rows)
        found.doubled_occurrences = sum(row["n"] - row["moments"] for row in rows)
        fired = {
            row[0]
            for row in await self.connection.fetch(
                "select job_id from rota.occurrence where state = 1"
            )
        }
        found.lost += sum(times[job] == 0 for job in fired if job is not None)
        return found

    async def count_occurrences(self) -> int:
        return int(await self.connection.fetchval("select count(*) from rota.occurrence"))


Make = Callable[[Trial, asyncpg.Connection], CoordinatorTrial]
Break = Callable[[CoordinatorTrial], Awaitable[None]]


async def conduct(folder: Path, coordination: str | None, make: Make, break_it: Break) -> Outcome:
    """Let a cluster work in this folder while `break_it` goes on, and judge what became of its jobs."""
    server = open_embedded(folder / "pg")
    more = {"ROTA_COORDINATION": coordination} if coordination else {}
    trial = Trial(folder, server.url, "proof.coordinators", **more)
    try:
        async with app.using(app.settings.replace(database_url=server.url)):
            await app.migrate()
            for number in range(_SCHEDULES):
                await app.schedule(
                    f"every-{number}", "note", every=1, overlap="allow", catch_up=All()
                )
            connection = await asyncpg.connect(server.url)
            trial.start("worker")
            one = make(trial, connection)
            submitting = asyncio.create_task(one.submit_for_ever())
            await one.settle()
            await break_it(one)
            submitting.cancel()
            await asyncio.gather(submitting, return_exceptions=True)
            found = await one.judge()
            await connection.close()
            return found
    finally:
        trial.stop()
        server.close()


async def run(name: str, *, quick: bool = False) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    kind = SERVICES[name]
    service = kind(folder) if kind else None

    async def break_it(one: CoordinatorTrial) -> None:
        if not quick:
            await one.stretch("undisturbed", one.undisturbed)
        if service is not None:
            await one.stretch("killed", one.killed)
            await one.stretch("paused", one.paused)
            await one.stretch("wiped", one.wiped)

    try:
        if service is not None:
            service.start()
        return await conduct(
            folder, service.url if service else None,
            lambda trial, connection: CoordinatorTrial(trial, connection, service), break_it,
        )  # fmt: skip
    finally:
        if service is not None:
            service.stop()
        if not os.environ.get("ROTA_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("services", nargs="*", default=list(SERVICES))
    broken = 0
    for name in parser.parse_args().services:
        kind = SERVICES[name]
        if kind is not None and (reason := kind.missing()):
            print(f"{name}: left out, {reason}")
            continue
        found = asyncio.run(run(name))
        broken += found.violations
        print(told(name, found), flush=True)
    sys.exit(broken > 0)


def told(name: str, found: Outcome) -> str:
    """Return what was seen, for people."""
    counts = (
        f"{name}: {found.jobs} jobs, {found.occurrences} occurrences, lost {found.lost}, doubled "
        f"{found.doubled}, occurrences missing {found.missing_occurrences}, doubled "
        f"{found.doubled_occurrences}"
    )
    away = _list(found.takeover_while_away)
    takeovers = f"  takeovers {_list(found.takeovers)}; while it was away {away}"
    late = [
        f"  {stretch:12} late: p50 {median:.3f} s, at most {worst:.3f} s"
        for stretch, (median, worst) in found.late.items()
    ]
    return "\n".join([counts, takeovers, *late])


def _list(values: list[float]) -> str:
    return ", ".join(f"{value:.1f} s" for value in values) or "none"


if __name__ == "__main__":
    main()
