"""Brokers, relays and workers are broken while jobs run: `python -m proof.dispatch redis nats`.

Two relays and three workers in processes of their own, which reach each other by a real broker alone.
Workers and relays are killed (-9) and paused for longer than a lease, the broker is killed and
restarted, paused, and wiped, one after the other, in whole rounds. Before each of these a portion of the
jobs is submitted, and it is done as soon as some of them run, so that it meets work that is under way
however few jobs there are and however fast they are. Asked is: did every job end, did an at_most_once
job begin twice, and was something taken from an attempt that was not the last?
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
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import asyncpg
import msgspec

from proof.services import Kafka, Nats, Process, RabbitMQ, Redis
from proof.waiting import eventually
from rota import App, Context
from rota.store.embedded import open_embedded

app = App()
_JOURNAL = os.environ.get("DISPATCH_JOURNAL", "")
SERVICES: dict[str, type[Process]] = {
    "redis": Redis, "nats": Nats, "rabbitmq": RabbitMQ, "kafka": Kafka,
}  # fmt: skip
_WORKERS = 3
_RELAYS = 2
_SETTINGS = {
    "ROTA_HEARTBEAT": "1", "ROTA_MISSED_HEARTBEATS": "4", "ROTA_GRACE": "5",
    "ROTA_DISPATCH_SECRET": "a secret of relays and workers that is long enough",
    # A broker that is away for longer than a lease costs all workers their jobs, often in a round.
    "ROTA_MAX_CRASHES": "1000",
}  # fmt: skip
_LEASE = 4.0
_BULK = 1_000
_MOST_AT_ONCE = 5_000  # jobs that are submitted before one disturbance
_LEFT = "select (select count(*) from rota.future) + (select count(*) from rota.present)"
_RUNNING = "select count(*) from rota.present where state = 4"
_file: int | None = None


def _note(task: str, ctx: Context) -> None:
    """Write that an attempt has begun: one write, which a kill doesn't tear."""
    global _file
    if _file is None:
        _file = os.open(_JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_file, f"{task} {ctx.job.id} {ctx.token}\n".encode())


@app.task
async def work(ctx: Context, pause: float) -> int:
    _note("work", ctx)
    if pause:
        await asyncio.sleep(pause)
    return ctx.token


@app.task(guarantee="at_most_once")
async def once(ctx: Context, pause: float) -> int:
    _note("once", ctx)
    if pause:
        await asyncio.sleep(pause)
    return ctx.token


class Outcome(msgspec.Struct):
    """What was seen. `lost_once`: at_most_once jobs whose worker was killed under them."""

    jobs: int = 0
    seconds: float = 0.0
    begun: int = 0
    unended: int = 0
    failed: int = 0
    lost_once: int = 0
    never_begun: int = 0
    doubled_once: int = 0
    stale: int = 0
    done: dict[str, int] = msgspec.field(default_factory=dict)
    met: int = 0  # disturbances that met jobs that ran
    errors: dict[str, int] = msgspec.field(default_factory=dict)  # of those that failed

    @property
    def violations(self) -> int:
        return self.unended + self.failed + self.never_begun + self.doubled_once + self.stale


class Trial:
    def __init__(self, folder: Path, url: str, service: Process) -> None:
        self.folder, self.service = folder, service
        self.journal = folder / "journal"
        self.done: Counter[str] = Counter()
        here = str(Path(__file__).parent.parent)
        base = {
            **os.environ,
            **_SETTINGS,
            "PYTHONPATH": f"{here}/src:{here}",
            "DISPATCH_JOURNAL": str(self.journal),
        }
        base.pop("ROTA_DATABASE_URL", None)
        self._inside = {**base, "ROTA_DATABASE_URL": url}
        # Whatever a worker might do with a database, this is none.
        self._outside = {**base, "ROTA_DATA_DIR": str(folder / "none")}
        self.processes: dict[str, list[subprocess.Popen[bytes]]] = {}
        self._count = 0

    def start(self, kind: str) -> None:
        command = [sys.executable, "-c", "from rota.cli import main; main()", "start"]
        environment = self._inside
        if kind == "worker":
            command += ["proof.dispatch:app", "--dispatch", self.service.url]
            environment = self._outside
        else:
            command += ["--role", kind]
            if kind == "relay":
                environment = {**environment, "ROTA_DISPATCH": self.service.url}
        self._count += 1
        with (self.folder / f"{kind}-{self._count}.log").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.processes.setdefault(kind, []).append(process)

    def stop(self) -> None:
        for processes in self.processes.values():
            for process in processes:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()

    def begun(self) -> int:
        """Return how much was written to the journal."""
        return self.journal.stat().st_size if self.journal.exists() else 0

    def has_begun(self, before: int) -> bool:
        return self.begun() > before

    # -- what is done to them

    def disturbances(self) -> list[Callable[[], Any]]:
        return [
            self.kill_worker, self.restart_broker, self.kill_relay, self.wipe_broker,
            self.pause_worker, self.pause_relay, self.kill_worker, self.pause_broker,
            self.kill_both,
        ]  # fmt: skip

    def _kill(self, kind: str) -> None:
        victim = self.processes[kind].pop(0)
        victim.kill()
        victim.wait()
        self.start(kind)

    async def kill_worker(self) -> None:
        self._kill("worker")

    async def kill_relay(self) -> None:
        self._kill("relay")

    async def kill_both(self) -> None:
        self._kill("worker")
        self._kill("relay")
        self.service.kill()
        await asyncio.sleep(1)
        self.service.start()

    async def restart_broker(self) -> None:
        self.service.kill()
        await asyncio.sleep(2)
        self.service.start()

    async def wipe_broker(self) -> None:
        self.service.wipe()

    async def pause_broker(self) -> None:
        self.service.pause()
        await asyncio.sleep(3)
        self.service.resume()

    async def pause_worker(self) -> None:
        await self._pause("worker", _LEASE * 2)

    async def pause_relay(self) -> None:
        await self._pause("relay", _LEASE * 1.5)

    async def _pause(self, kind: str, seconds: float) -> None:
        process = self.processes[kind][0]
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        process.send_signal(signal.SIGCONT)


def _portions(jobs: int, faults: int) -> list[int]:
    """Return how many jobs are submitted before each disturbance, in whole rounds of these."""
    rounds = max(1, -(-jobs // (faults * _MOST_AT_ONCE)))
    each, more = divmod(jobs, rounds * faults)
    return [each + (number < more) for number in range(rounds * faults)]


async def _submit(jobs: int) -> None:
    for start in range(0, jobs, _BULK):
        calls = range(start, min(start + _BULK, jobs))
        pauses = {n: _pause(n) for n in calls}
        await work.submit_many([{"pause": pauses[n]} for n in calls if n % 10 >= 3])
        await once.submit_many([{"pause": pauses[n]} for n in calls if n % 10 < 3])


def _pause(number: int) -> float:
    if number % 100 in (0, 5):  # one of each task that still runs when it is disturbed
        return 2.0
    return 0.5 if number % 50 == 1 else 0.01 if number % 3 else 0.0


async def _disturb(
    connection: asyncpg.Connection, trial: Trial, found: Outcome, quiet: bool
) -> None:
    """Submit all jobs in portions, and disturb each portion while it runs."""
    disturbances = trial.disturbances()
    portions = _portions(found.jobs, len(disturbances))
    for portion, disturb in zip(portions, cycle(disturbances), strict=False):
        before = trial.begun()
        await _submit(portion)
        # After what was done before, this may take a lease and more.
        await eventually(partial(trial.has_begun, before), 120, "the first job of a portion")
        found.met += await connection.fetchval(_RUNNING) > 0
        await disturb()
        trial.done[disturb.__name__] += 1
        if not quiet:
            print(f"  {disturb.__name__}, {await connection.fetchval(_LEFT)} jobs left", flush=True)


async def _judge(connection: asyncpg.Connection, trial: Trial, found: Outcome) -> None:
    rows = await connection.fetch(
        "select id, task, token, state, result::text as result, (error ->> 'type') as error, "
        "(error ->> 'message') as message "
        "from (select id, task, token, state, result, error::jsonb as error from rota.past"
        " union all select id, task, token, state, result, error::jsonb from rota.dead) as j"
    )
    # After the rows: if time is over, attempts still begin and end.
    begun = Counter[tuple[str, str]]()
    for line in trial.journal.read_text().splitlines():
        task, job, _token = line.split()
        begun[task, job] += 1
    found.begun = begun.total()
    found.doubled_once = sum(task == "once" and n > 1 for (task, _), n in begun.items())
    for row in rows:
        lost = row["error"] == "NodeLost" and row["task"] == "once"
        found.lost_once += lost
        if row["result"] is None and not lost:
            found.failed += 1
            said = f"{row['task']}: {row['error']}: {row['message']}"
            found.errors[said] = found.errors.get(said, 0) + 1
        found.never_begun += not lost and begun[row["task"], str(row["id"])] == 0
        # Each attempt returns its own token: what was taken must be of the one that held the job.
        found.stale += row["result"] is not None and int(row["result"]) != row["token"]
    found.unended = found.jobs - len(rows)


async def run(name: str, jobs: int, *, seconds: float = 1800.0, quiet: bool = True) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    service = SERVICES[name](folder)
    server = open_embedded(folder / "pg")
    trial = Trial(folder, server.url, service)
    found = Outcome(jobs=jobs)
    try:
        service.start()
        async with app.using(app.settings.replace(database_url=server.url)):
            await app.migrate()
            connection = await asyncpg.connect(server.url)
            for kind, count in (("scheduler", 1), ("relay", _RELAYS), ("worker", _WORKERS)):
                for _ in range(count):
                    trial.start(kind)
            began = time.monotonic()
            async with asyncio.timeout(seconds):
                await _disturb(connection, trial, found, quiet)
            left = jobs
            while left and time.monotonic() - began < seconds:
                await asyncio.sleep(0.5)
                left = await connection.fetchval(_LEFT)
            found.seconds = time.monotonic() - began
            found.done = dict(trial.done)
            await _judge(connection, trial, found)
            await connection.close()
            return found
    finally:
        trial.stop()
        service.stop()
        server.close()
        if os.environ.get("ROTA_KEEP"):
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("services", nargs="*", default=list(SERVICES))
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=1800.0)
    given = parser.parse_args()
    broken = 0
    for name in given.services:
        if reason := SERVICES[name].missing():
            print(f"{name}: left out, {reason}")
            continue
        found = asyncio.run(run(name, given.jobs, seconds=given.seconds, quiet=False))
        broken += found.violations
        print(
            f"{name}: {found.jobs} jobs in {found.seconds:.0f} s, {found.begun} attempts began; "
            f"unended {found.unended}, failed {found.failed}, never begun {found.never_begun}, "
            f"at_most_once twice {found.doubled_once}, stale writes {found.stale}; at_most_once lost "
            f"with their worker {found.lost_once}\n  {found.done} {found.errors or ''}", flush=True,
        )  # fmt: skip
    sys.exit(broken > 0)


if __name__ == "__main__":
    main()
