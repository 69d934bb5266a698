"""Backups of a replica by Barman: a base backup, the archived log, and a restore to a point in time.

Protocol. The primary copies each segment of its log to Barman's folder of incoming ones (`SETTINGS`,
which it is made with). `backup` takes a full backup. `keep_up` ends the current segment and waits until
the log so far is in the archive: then the primary may be lost. `restore` writes the data folder of
another replica, which replays the log up to a restore point and takes writes.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import subprocess
from pathlib import Path

from proof.replicas import Replica

PROGRAM = Path(__file__).parent.parent / ".venv" / "barman" / "bin" / "barman"

_CONFIGURATION = """
[barman]
barman_user = {user}
barman_home = {home}
barman_lock_directory = {home}
log_file = {home}/log
[rota]
description = "the database of Rota"
conninfo = host=127.0.0.1 port={port} user=postgres dbname=postgres
streaming_conninfo = host=127.0.0.1 port={port} user=postgres dbname=postgres
backup_method = postgres
archiver = on
path_prefix = {programs}
"""


def settings(folder: Path) -> str:
    """Return what the primary's configuration has to have."""
    incoming = folder / "barman" / "rota" / "incoming"
    return f"archive_mode = on\narchive_command = 'test -d {incoming} && cp %p {incoming}/%f'\n"


class Barman:
    def __init__(self, folder: Path, primary: Replica) -> None:
        self._home = folder / "barman"
        incoming = self._home / "rota" / "incoming"
        incoming.mkdir(parents=True)
        primary.account.give(incoming)
        self._file = self._home / "barman.conf"
        user = pwd.getpwuid(os.geteuid()).pw_name
        self._file.write_text(
            _CONFIGURATION.format(
                user=user, home=self._home, port=primary.port, programs=primary.programs
            )
        )

    async def backup(self) -> None:
        await self.keep_up()  # without a segment in the archive, it refuses
        await self._run("backup", "--wait", "rota")

    async def keep_up(self) -> None:
        await self._run("switch-wal", "--force", "--archive", "rota")

    async def restore(self, replica: Replica, point: str) -> None:
        """Restore the last backup into the folder of a replica that has never been made."""
        replica.data.rmdir()
        await self._run(
            "restore", "--target-name", point, "--target-action", "promote", "rota", "latest",
            str(replica.data),
        )  # fmt: skip
        for path in (replica.data, *replica.data.rglob("*")):
            replica.account.give(path)
        await replica.recover()

    async def _run(self, *arguments: str) -> None:
        program = await asyncio.create_subprocess_exec(
            PROGRAM, "--config", self._file, *arguments, cwd=self._home,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await program.communicate()
        if program.returncode != 0:
            raise RuntimeError(f"barman {arguments[0]}: {said.decode().strip()[-2000:]}")
