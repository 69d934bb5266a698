"""A rolling upgrade, for real: `make upgrade`, or `python -m proof.upgrade REF` (a tag or a commit of
the release before).

`--rate 500` submits so many jobs a second all the time, `--seconds 20` for so long in each phase.

The code of REF makes its schema and runs a scheduler and two workers. Meanwhile this code migrates the
schema and its nodes take the place of the old ones, one by one; jobs are submitted all the time, by
programs of both, among them a task that the old code doesn't know. When the last old node has left, the
migration is finished (`--post`), still under load. No submit may have failed, every job must have run
exactly once, the new task only on new nodes, and the migration may not have disturbed an old node.
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
import msgspec

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
        asked = time.monotonic()
        try:
            await app.submit(name, {"number": number}, key=str(number), delay=delay)
        except Exception as error:
            note(f"refused {number} {type(error).__name__}")
        else:
            note(f"submitted {name}-{number} {time.monotonic() - asked:.4f}")

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

async def finish_migration():
    await app.migrate(include_post=True)

actions = {"migrate": migrate, "migrate --post": finish_migration, "submit": submit}
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


class Figures(msgspec.Struct, frozen=True):
    """What was seen, in jobs: `ran` by task; `slow` and `slowest` are seconds of a submit."""

    submitted: int
    failed: int
    lost: int
    doubled: int
    ran: dict[str, int]
    slow: float  # 99 of 100 submits were answered within it
    slowest: float

    @property
    def broken(self) -> bool:
        return bool(self.failed or self.lost or self.doubled)


async def roll(upgrade: Upgrade, url: str, seconds: float = 1) -> Figures:
    upgrade.run("old", "migrate")
    # A program submits at every moment: of the old code until the new one's does, for a while both.
    old = {role: upgrade.start("old", role) for role in ("scheduler", "worker", "submit")}
    second = upgrade.start("old", "worker")
    await upgrade.until("jobs on the old nodes", lambda: upgrade.ran("known", "old"))
    began = time.monotonic()
    await asyncio.sleep(seconds)
    upgrade.run("new", "migrate")
    new = {role: upgrade.start("new", role) for role in ("scheduler", "worker", "submit")}
    await upgrade.until("jobs on the new node", lambda: upgrade.ran("known", "new"))
    await upgrade.until("the new task", lambda: upgrade.ran("unknown", "new"))
    assert all(process.poll() is None for process in (*old.values(), second, *new.values())), (
        upgrade.logs()
    )
    upgrade.end(old["submit"])
    await asyncio.sleep(seconds)
    upgrade.end(old["scheduler"])  # the new one takes over
    upgrade.end(old["worker"])
    new["second"] = upgrade.start("new", "worker")
    before = len(upgrade.lines())
    await upgrade.until("work on both releases", lambda: len(upgrade.lines()) > before + 200)
    upgrade.end(second)
    upgrade.run("new", "migrate --post")
    before = len(upgrade.lines())
    await upgrade.until("work on new nodes only", lambda: len(upgrade.lines()) > before + 200)
    await asyncio.sleep(seconds)
    upgrade.end(new["submit"])
    upgrade.took = time.monotonic() - began
    done = await _ended(url)
    assert not upgrade.ran("unknown", "old")
    disturbed = [line for line in upgrade.logs().splitlines() if "Error" in line]
    assert disturbed == [], disturbed[:5]
    return _judge(upgrade.lines(), done)


async def _ended(url: str) -> set[str]:
    """Wait for the end of every job, and return the keys of those that succeeded."""
    connection = await asyncpg.connect(url)
    while await connection.fetchval(
        "select exists (select from rota.job where state < 5 and schedule_id is null)"
    ):
        await asyncio.sleep(0.1)
    rows = await connection.fetch("select key from rota.job where key is not null and state = 5")
    await connection.close()
    return {row["key"] for row in rows}


def _judge(lines: list[list[str]], done: set[str]) -> Figures:
    """A job is lost when its submit was answered, and it didn't run or its row doesn't say so."""
    submitted = [line for line in lines if line[0] == "submitted"]
    runs = [line for line in lines if line[0] in ("known", "exact", "unknown") and line[1] != "-1"]
    times = Counter(line[1] for line in runs)
    took = sorted(float(line[2]) for line in submitted)
    return Figures(
        submitted=len(submitted),
        failed=sum(line[0] == "refused" for line in lines),
        lost=sum(
            number not in done or number not in times
            for number in (line[1].rpartition("-")[2] for line in submitted)
        ),
        doubled=sum(count > 1 for count in times.values()),
        ran=dict(Counter(line[0] for line in runs)),
        slow=took[len(took) * 99 // 100],
        slowest=took[-1],
    )


def main(ref: str, rate: float = 100, seconds: float = 1) -> Figures:
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    server = open_embedded(folder / "pg")
    upgrade = Upgrade(ref, folder, server.url, rate)
    try:
        found = asyncio.run(roll(upgrade, server.url, seconds))
    finally:
        upgrade.stop()
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(
        f"{ref} and this code side by side: {found.submitted} jobs submitted in {upgrade.took:.0f} s "
        f"({found.submitted / upgrade.took:.0f} a second), {found.failed} submits failed, "
        f"{found.lost} jobs lost, {found.doubled} ran twice: {found.ran}\n"
        f"A submit took at most {found.slow * 1e3:.0f} ms in 99 of 100 cases, and "
        f"{found.slowest * 1e3:.0f} ms at most."
    )
    return found


# Until there are releases: the first code with the schema in its present files.
_BEFORE_RELEASES = "dd9d6b6"


def previous_release() -> str | None:
    """The newest tag before this code, or the commit that stands for it; None: not in this clone."""
    git = ["git", "-C", str(_ROOT)]
    tag = subprocess.run(
        [*git, "describe", "--tags", "--match", "v*", "--abbrev=0", "HEAD~1"],
        capture_output=True, text=True,
    )  # fmt: skip
    ref = os.environ.get("ROTA_PREVIOUS") or tag.stdout.strip() or _BEFORE_RELEASES
    known = subprocess.run([*git, "cat-file", "-e", f"{ref}^{{commit}}"], capture_output=True)
    return ref if known.returncode == 0 else None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ref", nargs="?", help="default: the newest tag before this code")
    parser.add_argument("--rate", type=float, default=500, help="jobs a second")
    parser.add_argument("--seconds", type=float, default=20, help="length of each phase")
    given = parser.parse_args()
    before = given.ref or previous_release()
    if before is None:
        sys.exit("error: the release before isn't in this clone's history; name a tag or a commit")
    sys.exit(main(before, given.rate, given.seconds).broken)
