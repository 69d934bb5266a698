"""How long a scheduler's death is felt: `python -m proof.takeover --kills 20`.

Three schedulers and a worker in processes of their own, default leases, jobs due all the time. A
scheduler is killed (-9), or stopped gracefully, over and over; measured are the time until its shards
have a living owner, and how late the jobs start that came due around it.
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
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import msgspec

from rota import App, Context
from rota.lib.ids import unit
from rota.store.embedded import open_embedded

app = App()
_JOURNAL = os.environ.get("TAKEOVER_JOURNAL", "")
_NODE = """
import asyncio, logging, sys
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
from importlib import import_module
from rota.node import Node
asyncio.run(Node(import_module(sys.argv[2]).app, roles=[sys.argv[1]]).run())
"""
_PER_SECOND = 200


class Late(msgspec.Struct, frozen=True):
    due: float
    late: float


@app.task
async def tick(ctx: Context) -> None:
    due = ctx.job.due_at
    assert due is not None
    # The machine's clock is the database's here, and nobody has moved it.
    line = msgspec.json.encode(Late(due.timestamp(), time.time() - due.timestamp()))
    file = os.open(_JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line + b"\n")
    os.close(file)


class Trial:
    def __init__(self, folder: Path, url: str, module: str = "proof.takeover", **more: str) -> None:
        self.folder = folder
        self.module = module
        self.journal = folder / "journal"
        self.environment = {
            **os.environ,
            "ROTA_DATABASE_URL": url,
            "TAKEOVER_JOURNAL": str(self.journal),
            "PYTHONPATH": str(Path(__file__).parent.parent),
            **more,
        }
        self.nodes: list[subprocess.Popen[bytes]] = []

    def start(self, role: str, prefix: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start a node. `prefix`: the beginning of its command, to start it on another machine."""
        log = (self.folder / f"node-{len(self.nodes)}.log").open("wb")
        with log:
            node = subprocess.Popen(
                [*prefix, sys.executable, "-c", _NODE, role, self.module],
                env=self.environment, stdout=log, stderr=log,
            )  # fmt: skip
        self.nodes.append(node)
        return node

    def stop(self) -> None:
        for node in self.nodes:
            if node.poll() is None:
                node.kill()
            node.wait()

    def lateness(self, begin: float, end: float) -> list[float]:
        lines = self.journal.read_bytes().splitlines() if self.journal.exists() else []
        read = [msgspec.json.decode(line, type=Late) for line in lines]
        return sorted(line.late for line in read if begin <= line.due <= end)


async def submit_for_ever() -> None:
    while True:
        for _ in range(_PER_SECOND // 10):
            await tick.options(delay=2 + 3 * unit()).submit()
        await asyncio.sleep(0.1)


async def settled(connection: asyncpg.Connection, schedulers: int) -> None:
    """Every shard is held, evenly."""
    while True:
        rows = await connection.fetch(
            "select count(*) from rota.shard where expires_at > rota.now() group by owner"
        )
        counts = [row[0] for row in rows]
        if len(counts) == schedulers and sum(counts) == 128 and max(counts) - min(counts) <= 1:
            return
        await asyncio.sleep(0.05)


async def end_one(
    trial: Trial, connection: asyncpg.Connection, victim: subprocess.Popen[bytes], how: int
) -> float:
    """Seconds until the shards it held are another's. One that has none yet is waited for."""
    shards: list[asyncpg.Record] = []
    async with asyncio.timeout(60):
        while not shards:
            shards = await connection.fetch(
                "select s.shard, s.epoch from rota.shard as s join rota.node as n on n.id = s.owner"
                " where n.pid = $1 and s.expires_at > rota.now()",
                victim.pid,
            )
    began = time.monotonic()
    victim.send_signal(how)
    while await connection.fetchval(
        "select exists (select from rota.shard as s"
        " join unnest($1::smallint[], $2::bigint[]) as w(shard, epoch) on w.shard = s.shard"
        " where s.epoch = w.epoch)",
        [row[0] for row in shards], [row[1] for row in shards],
    ):  # fmt: skip
        await asyncio.sleep(0.01)
    return time.monotonic() - began


async def run(kills: int) -> dict[str, list[float]]:
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    server = open_embedded(folder / "pg")
    trial = Trial(folder, server.url)
    found: dict[str, list[float]] = {"killed": [], "stopped": [], "late": []}
    try:
        async with app.using(app.settings.replace(database_url=server.url)):
            await app.migrate()
            connection = await asyncpg.connect(server.url)
            trial.start("worker")
            schedulers = [trial.start("scheduler") for _ in range(3)]
            submitting = asyncio.create_task(submit_for_ever())
            await settled(connection, 3)
            begin = time.time()
            for number in range(2 * kills):
                how, name = (
                    (signal.SIGKILL, "killed") if number % 2 else (signal.SIGTERM, "stopped")
                )
                place = number % 3
                found[name].append(await end_one(trial, connection, schedulers[place], how))
                schedulers[place].wait()
                schedulers[place] = trial.start("scheduler")
                await settled(connection, 3)
            found["late"] = trial.lateness(begin, time.time() - 1)
            submitting.cancel()
            await connection.close()
    finally:
        trial.stop()
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    found = asyncio.run(run(parser.parse_args().kills))
    for name, limit in (("killed", 5.0), ("stopped", 1.0), ("late", 2.0)):
        values = found[name]
        print(
            f"{name:8} n={len(values):6}  p50 {percentile(values, 0.5):6.3f} s  "
            f"p99 {percentile(values, 0.99):6.3f} s  max {max(values):6.3f} s  (goal {limit} s)"
        )


if __name__ == "__main__":
    main()
