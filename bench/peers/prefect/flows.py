"""Prefect: its server on the same PostgreSQL, without the interface, analytics and logs to the server.
The flow is called in the client's own process, as its first pages do, with asynchronous tasks that
run there and have no cache.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

import common

_FOLDER = Path(os.environ["BENCH_FOLDER"])
_PORT = _FOLDER / "prefect.port"


def _environment() -> dict[str, str]:
    url = common.DATABASE_URL.replace("postgresql://", "postgresql+asyncpg://")
    return {
        "PREFECT_API_DATABASE_CONNECTION_URL": url, "PREFECT_HOME": str(_FOLDER / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1",
        "PREFECT_LOGGING_LEVEL": "ERROR", "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
        "PREFECT_LOGGING_TO_API_ENABLED": "false", "PREFECT_SERVER_UI_ENABLED": "false",
    }  # fmt: skip


def setup(wish: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y"]
    subprocess.run(command, env={**os.environ, **_environment()}, check=True, stdout=sys.stderr)
    return {"version": importlib.metadata.version("prefect")}


async def chain(wish: dict[str, Any]) -> None:
    url = f"http://127.0.0.1:{_answering()}/api"
    os.environ.update(_environment(), PREFECT_API_URL=url)
    from prefect import flow, task
    from prefect.cache_policies import NO_CACHE

    @task(cache_policy=NO_CACHE)
    async def step(number: int) -> None:
        if wish["hold"]:
            await asyncio.sleep(wish["hold"])
        common.started(number)

    @flow
    async def steps(number: int) -> None:
        for at in range(wish["steps"]):
            await step(number + at)

    for number in common.chains(wish):
        await steps(number)


def _answering() -> str:
    """The port of the server, once it answers."""
    for _ in range(600):
        try:
            port = _PORT.read_text()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=5):
                return port
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the server did not answer within a minute")


def work(wish: dict[str, Any]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _PORT.write_text(str(port))
    server = subprocess.Popen(
        [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port",
         str(port), "--no-ui"], env={**os.environ, **_environment()},
    )  # fmt: skip
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    server.wait()


if __name__ == "__main__":
    common.main(setup=setup, chain=chain, work=work)
