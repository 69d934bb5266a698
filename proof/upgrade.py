"""A rolling upgrade, for real: `python -m proof.upgrade REF` (a tag or a commit of the release before).

`--rate 500` submits so many jobs a second all the time, `--seconds 20` for so long in each phase.

The code of REF makes its schema and runs a scheduler and a worker. Meanwhile this code migrates the
schema and joins with nodes of its own; jobs are submitted all the time, by both, among them a task
that the old code doesn't know. Then the old nodes leave. No submit may have failed, every job must have
run exactly once, the new task only on new nodes, and the migration may not have disturbed an old node.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import asyncpg

from proof.waiting import eventually
from rota.store.embedded import open_embedded

_ROOT = Path(__file__).parent.parent
# Runs under either code: only what has been in the public API since the first release.
_PROGRAM = """
import asyncio, itertools, logging, os, sys, time
from rota import App, Context
from rota.node import Node

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
app = App()
which, role = sys.argv[1:3]

def note(text):
    file = os.open(os.environ["UPGRADE_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (text + chr(10)).encode())
    os.close(file)

@app.task
async def known(number: int, ctx: Context) -> None:
    note(f"known {number} {which}")

@app.task(guarantee="exactly_once")
async def exact(number: int, ctx: Context) -> None:
    note(f"exact {number} {which}")

if which == "new":
    @app.task
    async def unknown(number: int) -> None:
        note(f"unknown {number} {which}")

async def submit():
    names = ["known", "exact"] + (["unknown"] if which == "new" else [])
    # Every number is one job's: even ones of the old code, odd ones of the new.
    numbers = itertools.count(0 if which == "old" else 1, 2)
    pause, rate = 0.05, float(os.environ["UPGRADE_RATE"])

    async def one(number):
        name, delay = names[number // 2 % len(names)], (0, 1.5)[number // 6 % 2]
        try:
            await app.submit(name, {"number": number}, key=str(number), delay=delay)
        except Exception as error:
            note(f"refused {number} {type(error).__name__}")
        else:
            note(f"submitted {name}-{number}")

    began, sent = time.monotonic(), 0
    while True:
        # As many as are due by now: a slow moment is made up for.
        due = int((time.monotonic() - began) * rate) - sent
        await asyncio.gather(*(one(next(numbers)) for _ in range(min(due, 200))))
        sent += min(due, 200)
        await asyncio.sleep(pause)

async def migrate():
    await app.migrate()
    await app.schedule("every-second", "known", every=1, payload={"number": -1}, overlap="allow")

actions = {"migrate": migrate, "submit": submit}
asyncio.run(actions[role]() if role in actions else Node(app, roles=[role]).run())
"""


class Upgrade:
    def __init__(self, ref: str, folder: Path, url: str, rate: float = 100) -> None:
        self.folder, self.journal = folder, folder / "journal"
        archive = subprocess.run(
            ["git", "archive", ref, "src"], cwd=_ROOT, check=True, capture_output=True
        ).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            # Pythons before 3.11.4 don't know the filter, and this archive is our own.
            known = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            files.extractall(folder / "old", **known)  # type: ignore[arg-type]
        self._source = {"old": folder / "old" / "src", "new": _ROOT / "src"}
        self._environment = {
            **os.environ,
            "ROTA_DATABASE_URL": url,
            "ROTA_HEARTBEAT": "1",
            "UPGRADE_JOURNAL": str(self.journal),
            "UPGRADE_RATE": str(rate),
        }
        self.processes: list[subprocess.Popen[bytes]] = []
        self.took = 0.0

    def start(self, which: str, role: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{len(self.processes)}-{which}-{role}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, which, role],
                env={**self._environment, "PYTHONPATH": str(self._source[which])},
                stdout=log, stderr=log,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def run(self, which: str, role: str) -> None:
        if self.start(which, role).wait(600) != 0:
            raise SystemExit(self.logs())

    def lines(self) -> list[list[str]]:
        text = self.journal.read_text() if self.journal.exists() else ""
        return [line.split() for line in text.splitlines()]

    async def until(self, what: str, happened: Callable[[], bool]) -> None:
        try:
            await eventually(happened, 300, what)
        except AssertionError as error:
            raise SystemExit(f"{error}\n{self.logs()}") from None

    def ran(self, name: str, where: str) -> bool:
        return any(line[0] == name and line[2] == where for line in self.lines() if len(line) == 3)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGTERM)
        process.wait(300)

    def logs(self) -> str:
        return "\n".join(f"--- {f.name}\n{f.read_text()}" for f in self.folder.glob("*.log"))

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


async def roll(upgrade: Upgrade, url: str, seconds: float = 1) -> Counter[str]:
    upgrade.run("old", "migrate")
    # A program submits at every moment: of the old code until the new one's does, for a while both.
    old = [upgrade.start("old", role) for role in ("scheduler", "worker", "submit")]
    await upgrade.until("jobs on the old nodes", lambda: upgrade.ran("known", "old"))
    began = time.monotonic()
    await asyncio.sleep(seconds)
    upgrade.run("new", "migrate")
    new = [upgrade.start("new", role) for role in ("scheduler", "worker", "submit")]
    await upgrade.until("jobs on the new node", lambda: upgrade.ran("known", "new"))
    await upgrade.until("the new task", lambda: upgrade.ran("unknown", "new"))
    assert all(process.poll() is None for process in (*old, *new)), upgrade.logs()
    upgrade.end(old[2])
    await asyncio.sleep(seconds)
    upgrade.end(old[0])  # the scheduler first: the new one takes over
    upgrade.end(old[1])
    before = len(upgrade.lines())
    await upgrade.until("a second on new nodes only", lambda: len(upgrade.lines()) > before + 200)
    await asyncio.sleep(seconds)
    upgrade.end(new[2])
    upgrade.took = time.monotonic() - began
    connection = await asyncpg.connect(url)
    while await connection.fetchval(
        "select exists (select from rota.job where state < 5 and schedule_id is null)"
    ):
        await asyncio.sleep(0.1)
    states = await connection.fetch(
        "select task, state, count(*) from rota.job where key is not null group by 1, 2"
    )
    await connection.close()
    submitted = [line[1] for line in upgrade.lines() if line[0] == "submitted"]
    refused = [line for line in upgrade.lines() if line[0] == "refused"]
    assert refused == [], refused[:5]
    done = {row["task"]: row["count"] for row in states if row["state"] == 5}
    assert {row["state"] for row in states} == {5}, states
    assert sum(done.values()) >= len(submitted), (done, len(submitted))
    ran = [line for line in upgrade.lines() if line[0] != "submitted" and line[1] != "-1"]
    twice = [number for number, runs in Counter(line[1] for line in ran).items() if runs > 1]
    assert twice == [], twice[:5]
    assert {name.rpartition("-")[2] for name in submitted} <= {line[1] for line in ran}
    runs = Counter(line[0] for line in ran)
    assert runs == done, (runs, done)
    assert not upgrade.ran("unknown", "old")
    disturbed = [line for line in upgrade.logs().splitlines() if "Error" in line]
    assert disturbed == [], disturbed[:5]
    return runs


def main(ref: str, rate: float = 100, seconds: float = 1) -> None:
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    server = open_embedded(folder / "pg")
    upgrade = Upgrade(ref, folder, server.url, rate)
    try:
        runs = asyncio.run(roll(upgrade, server.url, seconds))
    finally:
        upgrade.stop()
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
    total = sum(runs.values())
    print(
        f"{ref} and this code side by side: {total} jobs in {upgrade.took:.0f} s "
        f"({total / upgrade.took:.0f} a second), no submit failed, each job ran once: {dict(runs)}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ref")
    parser.add_argument("--rate", type=float, default=100, help="jobs a second")
    parser.add_argument("--seconds", type=float, default=1, help="length of each phase")
    given = parser.parse_args()
    main(given.ref, given.rate, given.seconds)
