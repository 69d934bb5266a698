"""`make disaster`: a region is lost under load, its standby takes over, every job is accounted for.

The database of one region has a standby in another, which is a little behind, as standbys of other
regions are. Nodes and clients work; the link becomes slow; then the whole region is lost: its database,
its schedulers, its workers, in the same moment. The standby is promoted and `rota recover` says what
will run and what may have run. The runbook of docs/guide/recovery.md is followed: jobs of the list that
have run, as the outside world knows, are cancelled, and the queues resumed.

Every job that a client was told to be stored is then in exactly one place:

- *ran*: it has ended in the standby's database, as its journal says, too;
- *will run*: it waits there, and may run more than once by its guarantee, or hasn't come due;
- *may have run*: it may run once at most, and is on the list of `rota recover`;
- *gone*: the standby never had it. The client's own record names it.

What is asserted: no job is outside of these; each at_most_once job that began is on the list unless it
has ended or is gone; none begins twice; the effects of exactly_once jobs happened once; all that will
run has ended in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from uuid import UUID

import msgspec

from proof import workload
from proof.history import OK, Beat, History, Recorder
from proof.replicas import Replica
from proof.waiting import eventually
from rota.operations.recovery import Recovery
from rota.store.bulk import BulkStore
from rota.store.rows import NewJob

_LATER = 40  # jobs of each kind
_SETTINGS = {"heartbeat": 1.0, "missed_heartbeats": 3, "connect_timeout": 3.0, "processes": 1}


class Account(msgspec.Struct, frozen=True):
    """Where the acknowledged jobs were after the loss; `gone_but_ran`: of those that are gone."""

    acknowledged: int
    ran: int
    will_run: int
    may_have_run: int
    may_have_run_and_did: int
    gone: int
    gone_but_ran: int
    ran_again: int
    behind: float
    promoted_after: float
    broken: list[str]


class Disaster:
    def __init__(self, folder: Path, rate: float) -> None:
        self.folder, self._rate = folder, rate
        self._here, self._there = Replica(folder, "here"), Replica(folder, "there")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        Recorder(folder, "faults").close()

    async def start(self) -> None:
        await self._here.make()
        await self._there.follow(self._here, synchronous=False)
        self._use(self._here)
        await workload.app.migrate()
        connection = await self._here.connect()
        await connection.execute(workload.EFFECTS.format(schema=workload.app.settings.schema))
        await connection.close()
        self._start_nodes("here")
        for name in ("client-1", "client-2"):
            self._spawn(name, workload.client_command(self._rate / 2))

    def _use(self, replica: Replica) -> None:
        self._url = replica.url
        workload.app.settings = workload.app.settings.replace(database_url=self._url, **_SETTINGS)

    def _start_nodes(self, region: str) -> None:
        self._spawn(f"scheduler-{region}", workload.node_command("scheduler"))
        for number in (1, 2):
            self._spawn(f"worker-{region}-{number}", workload.node_command("worker"))

    def _spawn(self, name: str, command: list[str]) -> None:
        settings = {**_SETTINGS, "database_url": self._url}
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, env=workload.environment(self.folder, name, **settings),
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def beats(self) -> list[Beat]:
        return History(self.folder).beats()

    def acknowledged(self) -> dict[str, float]:
        told = History(self.folder).submissions()
        return {line.job: line.at for line in told if line.answer == "acknowledged"}

    async def work(self, jobs: int) -> None:
        """Let so many more jobs be accepted, and as many begin."""
        before, begun = len(self.acknowledged()), len(self._begun())
        await eventually(lambda: len(self.acknowledged()) >= before + jobs, 120, "submits")
        await eventually(lambda: len(self._begun()) >= begun + jobs // 2, 120, "starts")

    def _begun(self) -> set[str]:
        return {beat.job for beat in self.beats() if beat.event == "start"}

    async def _submit_for_later(self) -> list[NewJob]:
        """Submit jobs that the standby gets to know, and that come due when it hears no more.

        Some come due after the loss.
        """
        recorder = Recorder(self.folder, "clients")
        store = BulkStore((await workload.app.store()).database)
        client = workload.Client(store, recorder, random.Random(1))
        soon, later = (
            [
                msgspec.structs.replace(job, delay=first + 3 * number / _LATER)
                for task in ("at_most", "plain", "exact")
                for number, job in enumerate(client.make(_LATER, task))
            ]
            for first in (1.0, 15.0)
        )
        await client.submit([*soon, *later], "single")
        await self._here.wait_until_followed()
        return soon

    async def lose_the_region(self, jobs: int) -> float:
        """Make the standby fall behind by so many jobs, and kill everything. Returns the seconds."""
        soon = await self._submit_for_later()
        self._here.hold_replication()
        held = time.monotonic()
        await self.work(jobs)
        due = {str(job.id) for job in soon}
        # The kill comes in the middle of them.
        await eventually(lambda: len(due & self._begun()) >= len(due) // 2, 60, "starts of them")
        self._here.kill()
        for process in self._processes.values():
            process.kill()
            process.wait()
        await workload.app.close()
        return time.monotonic() - held

    async def promote(self) -> float:
        began = time.monotonic()
        await self._there.promote()
        self._use(self._there)
        return time.monotonic() - began

    async def recover(self) -> tuple[Recovery, dict[str, int]]:
        """Return what `rota recover` says, and the state of each job in the standby's database."""
        found = await workload.app.connector.recover()
        connection = await self._there.connect()
        rows = await connection.fetch(f"select id, state from {workload.app.settings.schema}.job")
        await connection.close()
        return found, {str(row["id"]): row["state"] for row in rows}

    async def go_on(self, found: Recovery, begun: set[str]) -> None:
        """Cancel what has run, as the outside world knows; resume the queues; wait for the rest."""
        for job in found.may_have_run:
            if str(job.id) in begun:
                await workload.app.jobs.cancel(UUID(str(job.id)))
        self._start_nodes("there")
        for queue in found.paused:
            await workload.app.queues.resume(queue.partition("/")[2])
        connection, schema = await self._there.connect(), workload.app.settings.schema
        left = f"select not exists (select from {schema}.job where state < 5)"
        await eventually(lambda: connection.fetchval(left), 120, "the end of all jobs")
        await connection.close()

    async def effects(self) -> Counter[str]:
        connection = await self._there.connect()
        rows = await connection.fetch(f"select job from {workload.app.settings.schema}.app_effect")
        await connection.close()
        return Counter(str(row["job"]) for row in rows)

    async def stop(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        await workload.app.close()
        for replica in (self._here, self._there):
            await replica.stop()


async def run(folder: Path, rate: float = 100, jobs: int = 500, behind: int = 100) -> Account:
    disaster, settings = Disaster(folder, rate), workload.app.settings
    try:
        await disaster.start()
        await disaster.work(jobs)
        lag = await disaster.lose_the_region(behind)
        before = disaster.beats()
        promoted = await disaster.promote()
        found, states = await disaster.recover()
        await disaster.go_on(found, {beat.job for beat in before if beat.event == "start"})
        return account(
            disaster.acknowledged(), before, disaster.beats(), found, states,
            await disaster.effects(), lag, promoted,
        )  # fmt: skip
    finally:
        await disaster.stop()
        workload.app.settings = settings


def account(
    acknowledged: dict[str, float], before: list[Beat], after: list[Beat], found: Recovery,
    states: dict[str, int], effects: Counter[str], lag: float, promoted: float,
) -> Account:  # fmt: skip
    """Put every acknowledged job in its place, and say what is wrong."""
    begun = {beat.job for beat in before if beat.event == "start"}
    ended = {beat.job for beat in before if beat.event == "end" and beat.outcome == OK}
    listed = {str(job.id) for job in found.may_have_run}
    at_most = {beat.job for beat in after if beat.task == "at_most"}
    gone = {job for job in acknowledged if job not in states}
    ran = {job for job in acknowledged if states.get(job, 0) >= _ENDED}
    uncertain = {job for job in acknowledged if job in listed}
    will_run = set(acknowledged) - gone - ran - uncertain
    starts = Counter(beat.job for beat in after if beat.event == "start")
    broken = [f"{job} ended, and its journal has no start" for job in ran - begun]
    broken += [
        f"{job} runs at most once, began before the loss, and is not on the list"
        for job in (at_most & begun) - gone - ran - uncertain
    ]
    broken += [f"{job} is at_most_once and began twice" for job in at_most if starts[job] > 1]
    broken += [f"the effect of {job} happened {n} times" for job, n in effects.items() if n > 1]
    broken += [f"{job} never began" for job in will_run if not starts[job]]
    return Account(
        acknowledged=len(acknowledged), ran=len(ran), will_run=len(will_run),
        may_have_run=len(uncertain), may_have_run_and_did=len(uncertain & begun), gone=len(gone),
        gone_but_ran=len(gone & begun), ran_again=len(will_run & ended), behind=lag,
        promoted_after=promoted, broken=broken,
    )  # fmt: skip


_ENDED = 5  # states from here on are final


def main() -> None:
    parser = argparse.ArgumentParser(description="Lose a region, and account for every job.")
    parser.add_argument("--rate", type=float, default=100.0, help="jobs a second")
    parser.add_argument("--jobs", type=int, default=3000, help="that are accepted before")
    parser.add_argument("--behind", type=int, default=300, help="that the standby doesn't get")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="rota-disaster-"))
    folder.chmod(0o711)  # root's server runs as another user, who must be able to pass
    found = asyncio.run(run(folder, options.rate, options.jobs, options.behind))
    print(
        f"The standby was {found.behind:.1f} s behind, and promoted in {found.promoted_after:.1f} s.\n"
        f"{found.acknowledged} jobs were acknowledged:\n"
        f"  ran             {found.ran}\n"
        f"  will run        {found.will_run}, of which {found.ran_again} had ended in the lost region\n"
        f"  may have run    {found.may_have_run}, listed; {found.may_have_run_and_did} of them had\n"
        f"  gone            {found.gone}, of which {found.gone_but_ran} had begun in the lost region"
    )
    for sentence in found.broken[:20]:
        print("BROKEN:", sentence)
    print("history:", folder) if found.broken else shutil.rmtree(folder)
    sys.exit(bool(found.broken))


if __name__ == "__main__":
    main()
