"""A PostgreSQL of the run's own, with everything on that keeps data safe.

It listens on loopback only, has its data in the run's folder, and is restarted in the rudest way that
still counts as a restart: all its processes die at once, and what was committed is found in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import asyncpg
import psutil

from proof.nemesis.clocks import WallClock
from proof.owners import OWN_SETTINGS
from rota.store.embedded.account import choose_account
from rota.store.embedded.server import find_binaries

_SETTINGS = """
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
max_connections = 600
shared_buffers = 128MB
max_wal_size = 2GB
fsync = on
synchronous_commit = on
full_page_writes = on
jit = off
autovacuum_naptime = 10s
timezone = 'UTC'
log_timezone = 'UTC'
log_min_messages = warning
"""


_CRASH = re.compile(rb"\(PID \d+\) was terminated by signal \d+")


class Server:
    def __init__(self, folder: Path, clock: WallClock | None = None) -> None:
        self.folder = folder
        self.clock = clock
        self.port = free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._data = folder / "postgres"
        self.programs = find_binaries()
        self._busy = asyncio.Lock()

    async def start(self) -> None:
        await asyncio.to_thread(self._make)
        await self._control("start", "--wait", "--timeout=60", "--log", "postgres.log")

    async def restart(self) -> None:
        """Without warning: no checkpoint, no good-bye to anybody."""
        async with self._busy:
            await self._control(
                "restart", "--mode=immediate", "--wait", "--timeout=60", "--log", "postgres.log"
            )

    async def stop(self) -> None:
        """And remove its data: what matters was dumped."""
        async with self._busy:
            await asyncio.to_thread(self._end)
            await asyncio.to_thread(shutil.rmtree, self._data, ignore_errors=True)

    def _end(self) -> None:
        """By our own hand: whatever is wrong with the folder must not keep it alive."""
        try:
            pid = int((self._data / "postmaster.pid").read_text().split()[0])
            server = psutil.Process(pid)
            processes = [server, *server.children(recursive=True)]
        except (OSError, ValueError, IndexError, psutil.Error):
            return  # it isn't there, or is gone
        with contextlib.suppress(psutil.Error):
            server.send_signal(signal.SIGQUIT)
        _, left = psutil.wait_procs(processes, timeout=20)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=5)

    async def connect(self) -> asyncpg.Connection:
        """Past all proxies, and through a restart."""
        end = asyncio.get_running_loop().time() + 60
        while True:
            try:
                return await asyncpg.connect(self.url, timeout=10, server_settings=OWN_SETTINGS)
            except (OSError, asyncpg.PostgresError, TimeoutError):
                if asyncio.get_running_loop().time() > end:
                    raise
            await asyncio.sleep(0.1)

    async def watch_crashes(self, on_crash: Callable[[str], None]) -> None:
        """Tell whenever a process of the server has crashed, and all of them are started anew with it.

        With a wrong clock that happens by itself: libfaketime opens a file whenever somebody looks at
        the clock, and the server looks in handlers of signals, which may interrupt malloc.
        """
        with (self.folder / "postgres.log").open("rb") as log:
            rest = b""
            while True:
                *lines, rest = (rest + await asyncio.to_thread(log.read, 1 << 24)).split(b"\n")
                for line in lines:
                    if found := _CRASH.search(line):
                        on_crash(found[0].decode())
                await asyncio.sleep(0.2)

    def _make(self) -> None:
        self._data.mkdir(mode=0o700)
        self._account = choose_account(self.programs, self.folder, self._data)
        log = self.folder / "postgres.log"
        log.touch()
        for path in (self._data, log):
            self._account.give(path)
        self._run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8",
                  "--locale=C")  # fmt: skip
        with (self._data / "postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS.format(port=self.port))

    async def _control(self, *arguments: str) -> None:
        await asyncio.to_thread(self._run, "pg_ctl", *arguments)

    def _own_clock(self) -> dict[str, str]:
        """Read at every look: for a moment two sessions would have different clocks otherwise."""
        return {**self.clock.environment, "FAKETIME_NO_CACHE": "1"} if self.clock else {}

    def _run(self, program: str, *arguments: str) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
        done = self._account.run(
            [str(self.programs / program), *arguments],
            cwd=self.folder,
            env={**kept, **self._own_clock(), "LC_ALL": "C", "PGDATA": str(self._data)},
        )  # fmt: skip
        if done.returncode != 0:
            raise RuntimeError(f"{program} {' '.join(arguments)}: {done.stdout.strip()[-2000:]}")


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
