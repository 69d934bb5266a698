"""PostgreSQL servers that follow each other: no commit is answered before both have it.

Protocol. A replica is made by initdb, or from another by pg_basebackup, after which it follows. The one
that is followed waits with each commit until its follower has it (synchronous_standby_names). Killed
means all of its processes at once, with SIGKILL. A replica that was promoted waits for nobody until it
is followed in its turn.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from rota.store.embedded.account import choose_account
from rota.store.embedded.server import find_binaries

_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
shared_buffers = 64MB
synchronous_commit = on
timezone = 'UTC'
log_min_messages = warning
"""
_FOLLOWER = "follower"


class Replica:
    def __init__(self, folder: Path, name: str, bin_dir: Path | None = None) -> None:
        self.name = name
        self.port = _free_port()
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"postgresql://postgres@{self.host}/postgres"
        self._folder = folder
        self.data = folder / name
        self._log = folder / f"{name}.log"
        self.programs = bin_dir or find_binaries()
        self._killed: int | None = None
        self._prepare()

    def _prepare(self) -> None:
        self.data.mkdir(mode=0o700)
        self.account = choose_account(self.programs, self._folder, self.data)
        self._log.touch()
        for path in (self.data, self._log):
            self.account.give(path)

    # -- making

    async def make(self, more_settings: str = "") -> None:
        await self._run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8",
                        "--locale=C")  # fmt: skip
        with (self.data / "postgresql.conf").open("a") as settings:
            settings.write(_SETTINGS + more_settings)
        await self._start()

    async def follow(self, primary: Replica, *, synchronous: bool = True) -> None:
        """From nothing, until every commit of the primary waits for this one, or it has all of them."""
        shutil.rmtree(self.data)
        self._prepare()
        source = f"host=127.0.0.1 port={primary.port} user=postgres application_name={_FOLLOWER}"
        await self._run("pg_basebackup", "--pgdata", str(self.data), "--dbname", source,
                        "--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream")  # fmt: skip
        with (self.data / "postgresql.auto.conf").open("a") as settings:
            settings.write("synchronous_standby_names = ''\n")  # once promoted, for nobody
        await self._start()
        if synchronous:
            await primary.wait_for_follower()
        else:
            await primary.wait_until_followed()

    async def copy_of(self, primary: Replica) -> None:
        """Take a base backup, and don't start it."""
        shutil.rmtree(self.data)
        self._prepare()
        source = f"host=127.0.0.1 port={primary.port} user=postgres"
        await self._run("pg_basebackup", "--pgdata", str(self.data), "--dbname", source,
                        "--checkpoint=fast", "--wal-method=stream")  # fmt: skip

    async def restore(self, archive: Path, point: str) -> None:
        """Start a base backup with the archived log, up to a restore point, and promote it."""
        (self.data / "recovery.signal").touch()
        self.account.give(self.data / "recovery.signal")
        with (self.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(
                f"restore_command = 'cp {archive}/%f %p'\narchive_mode = off\n"
                f"recovery_target_name = '{point}'\nrecovery_target_action = 'promote'\n"
            )
        await self.recover()

    async def recover(self) -> None:
        """Start on a data folder that says how far to replay the log, until it takes writes."""
        await self._start()
        connection = await self.connect()
        while await connection.fetchval("select pg_is_in_recovery()"):
            await asyncio.sleep(0.05)
        await connection.close()

    async def wait_for_follower(self) -> None:
        """Wait until the follower has applied all that is here, and make every commit wait for it."""
        connection = await self.connect()
        try:
            written = await connection.fetchval("select pg_current_wal_lsn()")
            await connection.execute(f"alter system set synchronous_standby_names = '{_FOLLOWER}'")
            await connection.execute("select pg_reload_conf()")
            follows = (
                "select sync_state = 'sync' and replay_lsn >= $1::pg_lsn from pg_stat_replication"
            )
            while not await connection.fetchval(follows, written):
                await asyncio.sleep(0.05)
        finally:
            await connection.close()

    async def wait_until_followed(self) -> None:
        """Wait until the follower has applied all that is here; commits don't wait for it."""
        connection = await self.connect()
        try:
            written = await connection.fetchval("select pg_current_wal_lsn()")
            follows = "select replay_lsn >= $1::pg_lsn from pg_stat_replication"
            while not await connection.fetchval(follows, written):
                await asyncio.sleep(0.05)
        finally:
            await connection.close()

    def hold_replication(self) -> None:
        """Stop the process that sends the log, as a link does that has become too slow."""
        senders = [
            process
            for process in psutil.Process(self._pid()).children()
            if "walsender" in " ".join(process.cmdline())
        ]
        assert senders, f"nobody follows {self.name}"
        for process in senders:
            process.suspend()

    async def _start(self) -> None:
        while self._killed is not None and psutil.pid_exists(self._killed):
            await asyncio.sleep(0.02)  # it refuses to start beside a process that isn't reaped yet
        await self._run("pg_ctl", "start", "--wait", "--timeout=60", "--log", self._log.name,
                        "--options", f"-c port={self.port}")  # fmt: skip

    async def connect(self) -> asyncpg.Connection[Any]:
        connection: asyncpg.Connection[Any] = await asyncpg.connect(self.url, timeout=10)
        return connection

    # -- breaking

    def kill(self) -> None:
        """All of its processes, without a word to anybody."""
        self._killed = self._pid()
        postmaster = psutil.Process(self._killed)
        for process in (postmaster, *postmaster.children(recursive=True)):
            process.kill()

    async def promote(self) -> None:
        await self._run("pg_ctl", "promote", "--wait", "--timeout=60")

    async def stop(self) -> None:
        if self._is_running():
            await self._run("pg_ctl", "stop", "--mode=immediate", "--wait", "--timeout=60")

    def _is_running(self) -> bool:
        try:
            return psutil.Process(self._pid()).status() != psutil.STATUS_ZOMBIE
        except (FileNotFoundError, psutil.NoSuchProcess):
            return False

    def _pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    async def _run(self, program: str, *arguments: str) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
        done = await asyncio.to_thread(
            self.account.run,
            [str(self.programs / program), *arguments],
            cwd=self._folder,
            env={**kept, "LC_ALL": "C", "PGDATA": str(self.data)},
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} of {self.name}: {done.stdout.strip()[-2000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
