"""PgBouncer in front of the tests' PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from proof.waiting import eventually

NO_PGBOUNCER = pytest.mark.skipif(
    shutil.which("pgbouncer") is None, reason="pgbouncer is not installed on this machine"
)


@contextlib.asynccontextmanager
async def pgbouncer(
    database_url: str, mode: str = "transaction", *, size: int = 10, more: str = ""
) -> AsyncIterator[str]:
    """Start one, and return its URL."""
    direct = await asyncpg.connect(database_url)
    host = await direct.fetchval("show unix_socket_directories")
    port = await direct.fetchval("show port")
    name = await direct.fetchval("select current_database()")
    await direct.close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="rota-pgbouncer-"))
    config = folder / "pgbouncer.ini"
    config.write_text(
        f"[databases]\n{name} = host={host} port={port} dbname={name} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {listen}\nauth_type = any\n"
        f"pool_mode = {mode}\nmax_client_conn = 200\ndefault_pool_size = {size}\n"
        f"unix_socket_dir =\n{more}\n"
    )
    # Not as root, which it refuses: as the server's own user, who can reach the server's socket.
    owner = Path(host).stat().st_uid
    os.chown(folder, owner, -1)
    process = subprocess.Popen(
        ["pgbouncer", str(config)], user=owner, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    url = f"postgresql://postgres@127.0.0.1:{listen}/{name}"
    try:
        await eventually(lambda: _answers(url), what="PgBouncer's start")
        yield url
    finally:
        process.terminate()
        process.wait(60)
        shutil.rmtree(folder)


async def _answers(url: str) -> bool:
    try:
        await (await asyncpg.connect(url, statement_cache_size=0)).close()
    except (OSError, asyncpg.PostgresError):
        return False
    return True
