"""PgBouncer in transaction mode, in front of a benchmark's PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg

_START_SECONDS = 20.0
_SIZE = 20  # connections to the server


async def _place(url: str) -> tuple[str, str, str]:
    connection = await asyncpg.connect(url)
    try:
        host, port = await connection.fetchval("show unix_socket_directories"), "show port"
        return (
            host,
            await connection.fetchval(port),
            await connection.fetchval("select current_database()"),
        )
    finally:
        await connection.close()


@contextlib.contextmanager
def pooled(url: str, clients: int) -> Iterator[str]:
    """Start one for so many clients, and return its URL; stopped by its own process id."""
    if shutil.which("pgbouncer") is None:
        raise SystemExit("PgBouncer is not installed: make .venv/pgbouncer")
    host, port, name = asyncio.run(_place(url))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="rota-pgbouncer-"))
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{name} = host={host} port={port} dbname={name} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {listen}\nauth_type = any\n"
        f"pool_mode = transaction\nmax_client_conn = {clients + 100}\ndefault_pool_size = {_SIZE}\n"
        "max_prepared_statements = 200\nunix_socket_dir =\n"
    )
    # Not as root, which it refuses: as the server's own user, who can reach the server's socket.
    owner = Path(host).stat().st_uid
    os.chown(folder, owner, -1)
    process = subprocess.Popen(
        ["pgbouncer", str(folder / "pgbouncer.ini")], user=owner,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    theirs = f"postgresql://postgres@127.0.0.1:{listen}/{name}"
    try:
        _wait(theirs)
        yield theirs
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder, ignore_errors=True)


def _wait(url: str) -> None:
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            asyncio.run(_place(url))
        except (OSError, asyncpg.PostgresError):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return
