"""awa: its queue-storage engine (Rust), jobs in bulk by its direct COPY, one process: its own threads
use the second core, and Python handlers share one interpreter. Two claimers of 512 jobs a batch,
which its documentation advises to try first, 100 handlers at a time. Plain functions run by
`asyncio.to_thread`.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import awa
import common

# Its driver wants a host in the URL, also where a parameter says that it is a socket.
URL = common.DATABASE_URL.replace("@/", "@localhost/")


@dataclass
class Noop:
    number: int


@dataclass
class Plain:
    number: int


@dataclass
class Hold:
    number: int


KINDS: dict[str, Any] = {"noop": Noop, "plain": Plain, "hold": Hold}


async def setup(wish: dict[str, Any]) -> dict[str, Any]:
    client = awa.AsyncClient(URL)
    await client.migrate()
    await client.install_queue_storage()
    return {"version": importlib.metadata.version("awa-pg")}


async def submit(wish: dict[str, Any]) -> dict[str, Any]:
    client = awa.AsyncClient(URL)
    kind = KINDS[wish["task"]]
    await client.queue_stats()  # connected
    with common.Stopwatch() as watch:
        if wish["how"] == "single":
            for number in common.numbers(wish):
                await client.insert(kind(number))
        else:
            for due, numbers in common.batches(wish):
                jobs = [kind(number) for number in numbers]
                if due is None:
                    await client.enqueue_many_copy(jobs)
                else:
                    at = datetime.fromtimestamp(due, UTC)
                    await client.enqueue_many_copy(jobs, run_at=at)
    return watch.answer()


async def trickle(wish: dict[str, Any]) -> None:
    client = awa.AsyncClient(URL)
    await common.at_a_pace(wish, lambda number: client.insert(Noop(number)))


async def work(wish: dict[str, Any]) -> None:
    client = awa.AsyncClient(URL, max_connections=12)
    hold_seconds = wish.get("hold", 0.0)

    @client.task(Noop)
    async def noop(job: Any) -> None:
        common.started(job.args.number)

    @client.task(Plain)
    async def plain(job: Any) -> None:
        await asyncio.to_thread(common.started, job.args.number)

    @client.task(Hold)
    async def hold(job: Any) -> None:
        common.started(job.args.number)
        await asyncio.sleep(hold_seconds)

    for number in range(wish.get("schedules", 0)):
        cron = "* * * * *" if wish["every"] == "minute" else "* * * * * *"
        client.periodic(f"s{number}", cron, Noop, Noop(number))
    queue = {
        "name": "default", "max_workers": wish["slots"], "claimers": 2, "claim_batch_size": 512,
    }  # fmt: skip
    await client.start([queue], promote_interval_ms=250)
    await common.until_told()
    await client.shutdown(timeout_ms=3000)


if __name__ == "__main__":
    common.main(setup=setup, submit=submit, trickle=trickle, work=work)
