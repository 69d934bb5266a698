"""Submitting over HTTP: `python -m bench.http [--seconds 10] [--rounds 3]`.

16 keep-alive connections post single jobs to a server beside a bare Litestar echo that reads the same
body and answers as many bytes; rounds are interleaved, so that noise hits both alike. Then a single
connection sends jobs as NDJSON. All that was acknowledged must be in the database afterwards. On a
machine that others use at the same time, the CPU time per request says more than the rate does.

wrk makes the requests where it is installed (Debian: wrk); else a small client of our own, which costs
so much itself that the ratio says less.
"""

# ruff: noqa: A005 - bench.http, never http

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).parent.parent))

import asyncpg
import psutil
from rich.console import Console
from rich.table import Table

from bench.support import database, median, run

T = TypeVar("T")

CONNECTIONS = 16
JOB = {"job_type": "email_send", "payload": {"to": "ada@example.org", "n": 1}, "retries": 3}
ROOT = Path(__file__).parent.parent

_ECHO = """
import msgspec, sys, uvicorn
from litestar import Litestar, post
class Answer(msgspec.Struct):
    id: str
    task: str
@post("/v1/jobs")
async def echo(data: dict) -> Answer:
    return Answer("0190b5d4-0000-7000-8000-000000000000", data["job_type"])
uvicorn.run(Litestar([echo], openapi_config=None), port=int(sys.argv[1]), loop=sys.argv[2],
            http="httptools", log_level="error", access_log=False)
"""

_ROTA = """
import asyncio, signal, sys
from bench.app import app
from rota.server.serving import Server
async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    server = Server(app)
    await server.start()
    await stop.wait()
    await server.stop()
if sys.argv[2] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""

_LUA = """
wrk.method = "POST"
wrk.body = '{body}'
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer {token}"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bulk", type=int, default=100_000)
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default=_best_loop())
    chosen = parser.parse_args()
    with database() as url:
        from bench.app import app

        run(app.migrate)
        token = run(_make_token)
        with contextlib.ExitStack() as stack:
            echo = stack.enter_context(_process(_ECHO, chosen.loop))
            rota = stack.enter_context(_process(_ROTA, chosen.loop))
            table = measure(chosen, url, token, echo, rota)
    Console(width=110).print(table)


def measure(chosen: argparse.Namespace, url: str, token: str, echo: int, rota: int) -> Table:
    bare, posts, bulks = [], [], []
    echo_cpu, rota_cpu, bulk_cpu = [], [], []
    acknowledged = 0
    _post(echo, token, 1), _post(rota, token, 1)  # to warm up
    before = asyncio.run(_count(url))
    for _ in range(chosen.rounds):
        done, seconds = _with_cpu(echo, lambda: _post(echo, token, chosen.seconds))
        bare.append(done / chosen.seconds)
        echo_cpu.append(seconds / done)
        done, seconds = _with_cpu(rota, lambda: _post(rota, token, chosen.seconds))
        posts.append(done / chosen.seconds)
        rota_cpu.append(seconds / done)
        acknowledged += done
    present = asyncio.run(_count(url)) - before
    for _ in range(chosen.rounds):
        took, seconds = _with_cpu(rota, lambda: _bulk(rota, token, chosen.bulk))
        bulks.append(chosen.bulk / took)
        bulk_cpu.append(seconds / chosen.bulk)
    stored = asyncio.run(_count(url)) - before - present
    table = Table("what", "a second", "beside", "goal", title=f"HTTP on {chosen.loop}")
    ratio = median(posts) / median(bare)
    # The best round is the one that others disturbed least.
    least, bare_least = min(rota_cpu), min(echo_cpu)
    table.add_row("bare Litestar echo, 16 connections", f"{median(bare):,.0f}")
    table.add_row(
        "POST /v1/jobs, 16 connections", f"{median(posts):,.0f}", f"{ratio:.2f}", "≥ 0.35"
    )
    table.add_row(
        "… CPU of the process, µs a request", f"{least * 1e6:,.0f}",
        f"{bare_least / least:.2f} of {bare_least * 1e6:,.0f}", "≥ 0.35",
    )  # fmt: skip
    # Requests that were under way when wrk stopped are stored, and not counted by it.
    lost = max(0, acknowledged - present)
    table.add_row("… acknowledged, present", f"{acknowledged:,}, {present:,}", f"{lost} lost", "0")
    table.add_row("POST /v1/jobs:bulk", f"{median(bulks):,.0f}", "", "≥ 20,000")
    table.add_row("… CPU of the process, µs a job", f"{min(bulk_cpu) * 1e6:,.0f}", "", "≤ 50")
    table.add_row("… sent, present", f"{chosen.bulk * chosen.rounds:,}, {stored:,}", "", "equal")
    return table


def _with_cpu(port: int, work: Callable[[], T]) -> tuple[T, float]:
    """What the work gives, and the seconds that the process behind a port computed meanwhile."""
    began = _cpu(port)
    return work(), _cpu(port) - began


def _best_loop() -> str:
    try:
        import uvloop  # noqa: F401 - is it there?
    except ImportError:
        return "asyncio"
    return "uvloop"


async def _make_token() -> str:
    from bench.app import app
    from rota.operations.installation import Installation

    tokens = Installation(app.connector).tokens
    return (await tokens.create("bench", role="operator", namespace="default")).token


@contextlib.contextmanager
def _process(code: str, loop: str) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    environment = {**os.environ, "ROTA_PORT": str(port), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code, str(port), loop], env=environment)
    try:
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None, "it didn't start"
            assert time.monotonic() < end, "it doesn't answer"
            time.sleep(0.05)
        yield port
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _post(port: int, token: str, seconds: int) -> int:
    """How many were answered with success."""
    if shutil.which("wrk") is None:
        return asyncio.run(_post_by_hand(port, token, seconds))
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_LUA.format(body=json.dumps(JOB), token=token))
        script.flush()
        told = subprocess.run(
            ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", script.name,
             f"http://127.0.0.1:{port}/v1/jobs"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    assert "Non-2xx" not in told, told
    found = re.search(r"(\d+) requests in", told)
    assert found, told
    return int(found[1])


async def _post_by_hand(port: int, token: str, seconds: int) -> int:
    body = json.dumps(JOB).encode()
    request = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    end = time.monotonic() + seconds

    async def one() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        done = 0
        while time.monotonic() < end:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            assert head.startswith(b"http/1.1 201"), head
            length = re.search(rb"content-length: (\d+)", head)
            assert length
            await reader.readexactly(int(length[1]))
            done += 1
        writer.close()
        return done

    return sum(await asyncio.gather(*(one() for _ in range(CONNECTIONS))))


def _bulk(port: int, token: str, count: int) -> float:
    """Seconds for so many lines in one request."""
    line = json.dumps(JOB).encode() + b"\n"
    with socket.create_connection(("127.0.0.1", port), 300) as connection:
        began = time.perf_counter()
        connection.sendall(
            f"POST /v1/jobs:bulk HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Length: {len(line) * count}\r\nConnection: close\r\n\r\n".encode()
        )
        for start in range(0, count, 1000):
            connection.sendall(line * min(1000, count - start))
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
        seconds = time.perf_counter() - began
    summary = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert summary["stored"] == count, summary
    return seconds


def _cpu(port: int) -> float:
    """Seconds that the process behind a port has computed."""
    for found in psutil.net_connections("tcp"):
        if found.laddr and found.laddr.port == port and found.status == psutil.CONN_LISTEN:
            times = psutil.Process(found.pid).cpu_times()
            return float(times.user + times.system)
    raise LookupError(f"nothing listens on {port}")


async def _count(url: str) -> int:
    connection = await asyncpg.connect(url)
    count: int = await connection.fetchval("select count(*) from rota.present")
    await connection.close()
    return count


if __name__ == "__main__":
    main()
