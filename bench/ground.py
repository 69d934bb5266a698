"""Where everything is measured: one PostgreSQL and one Redis for all, a database for each peer, its
workers in processes of their own, the records of what they ran, and who used how much of the processor.

A peer's tables are made once, in a template; each measurement starts on a fresh copy of it. Processor
time comes from /proc: of the server with all its children, also those that have ended, and of the
workers with theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psutil

from bench.peers.catalogue import Peer
from bench.peers.install import folder, interpreter, program, redis
from rota.store.embedded import open_embedded

_RECORD = struct.Struct("<Id")
_SECONDS = 300  # for any one command


class Trouble(Exception):
    """A measurement that didn't come to its end, and why."""


@dataclass
class Ground:
    url: str
    postmaster: int
    folder: Path
    redis_socket: str | None
    redis_process: int | None

    def url_of(self, database: str) -> str:
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{database}"))

    def sql(self, *statements: str, database: str | None = None) -> Any:
        """Runs them in turn, each by itself; the last one's first value."""

        async def run() -> Any:
            url = self.url_of(database) if database else self.url
            connection = await asyncpg.connect(url)
            try:
                for statement in statements[:-1]:
                    await connection.execute(statement)
                return await connection.fetchval(statements[-1])
            finally:
                await connection.close()

        return asyncio.run(run())

    def server_cpu(self) -> float:
        return cpu_of(self.postmaster)

    def redis_cpu(self) -> float:
        return cpu_of(self.redis_process) if self.redis_process else 0.0


@contextlib.contextmanager
def ground() -> Iterator[Ground]:
    """A fresh embedded PostgreSQL with fsync on, and a Redis where there is one."""
    folder = Path(tempfile.mkdtemp(prefix="rota-bench-"))
    folder.chmod(0o711)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        server = open_embedded(folder)
        stack.callback(server.close)
        socket, process = None, None
        if shutil.which("redis-server"):
            socket, process = stack.enter_context(redis(folder))
        made = Ground(server.url, 0, folder, socket, process)
        # Its first line is the postmaster's process id.
        data = made.sql("select setting from pg_settings where name = 'data_directory'")
        made.postmaster = int((Path(data) / "postmaster.pid").read_text().split()[0])
        yield made


def cpu_of(pid: int) -> float:
    """Seconds used by a process, by its children, and by those that it has buried."""
    used = 0.0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                times = each.cpu_times()
                used += times.user + times.system + times.children_user + times.children_system
    return used


def moments(path: Path) -> Iterator[tuple[int, float]]:
    """What one process has noted, in its order: (number, moment)."""
    if not path.exists():
        return
    with path.open("rb") as file:
        while chunk := file.read(_RECORD.size * 8192):
            for number, moment in _RECORD.iter_unpack(
                chunk[: len(chunk) // _RECORD.size * _RECORD.size]
            ):
                if not number:
                    return
                yield number - 1, moment


class Records:
    """What the processes of a peer have noted, read on as it grows."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._at: dict[Path, int] = {}
        self.seen: list[tuple[int, float]] = []  # (number, moment)

    def read(self) -> int:
        """How many there are by now."""
        for path in self._folder.glob(f"{self._name}-*"):
            with path.open("rb") as file:
                file.seek(self._at.get(path, 0))
                while chunk := file.read(_RECORD.size * 8192):
                    whole = len(chunk) - len(chunk) % _RECORD.size
                    found = [
                        (number - 1, moment)
                        for number, moment in _RECORD.iter_unpack(chunk[:whole])
                        if number
                    ]
                    self.seen.extend(found)
                    self._at[path] = self._at.get(path, 0) + len(found) * _RECORD.size
                    if len(found) * _RECORD.size < whole or whole < len(chunk):
                        break
        return len(self.seen)

    @property
    def processes(self) -> int:
        return sum(1 for at in self._at.values() if at)

    def firsts(self) -> dict[int, float]:
        """The moment at which each was first noted."""
        first: dict[int, float] = {}
        for number, moment in self.seen:
            first[number] = min(moment, first.get(number, moment))
        return first

    def twice(self) -> int:
        return sum(count - 1 for count in Counter(number for number, _ in self.seen).values())


@dataclass
class Arena:
    """One peer on its ground."""

    peer: Peer
    ground: Ground
    version: str = ""
    occupied: bool = False  # somebody holds a transaction open in its database
    label: str = ""  # of its database and records, where there are several of a peer
    extra: dict[str, str] = field(default_factory=dict)  # of the environment of its programs
    _workers: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def database(self) -> str:
        return "bench_" + (self.label or self.peer.name).replace("-", "_")

    @property
    def _records(self) -> Path:
        return self.ground.folder / f"records-{self.label or self.peer.name}"

    # -- a fresh start

    def prepare(self) -> None:
        """Its tables, once, in a template."""
        self.ground.sql(f"create database {self.database}_template")
        self._clear_records()
        self.version = self.call("setup", database=f"{self.database}_template").get("version", "")

    def refresh(self) -> None:
        """An empty database, and no records."""
        if self.peer.store == "redis":
            self._redis("FLUSHALL")
        self.ground.sql(
            f"drop database if exists {self.database} with (force)",
            f"create database {self.database} template {self.database}_template",
            "checkpoint",
        )
        self._clear_records()

    def _clear_records(self) -> None:
        shutil.rmtree(self._records, ignore_errors=True)
        self._records.mkdir()

    def records(self, name: str = "started") -> Records:
        return Records(self._records, name)

    # -- its programs

    def call(
        self, command: str, *, database: str | None = None, seconds: int = _SECONDS, **wish: Any
    ) -> dict[str, Any]:
        """Runs a command to its end; what it says on its last line."""
        try:
            done = subprocess.run(
                self._program(command, wish), env=self._environment(database), text=True,
                capture_output=True, timeout=seconds, cwd=self._home, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise Trouble(f"{command} took more than {seconds} s") from None
        if done.returncode:
            raise Trouble(f"{command} failed: {_last_line(done.stderr or done.stdout)}")
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        return answer

    @contextlib.contextmanager
    def working(self, processes: int | None = None, **wish: Any) -> Iterator[None]:
        """Its workers, while it lasts; stopped by their own process ids."""
        wish = {"slots": 100, "task": "noop", **wish}
        count = processes or self.peer.processes
        wish["slots"] = max(wish["slots"] // count, 1)
        log = (self.ground.folder / f"{self.peer.name}.log").open("w")
        mine = [
            subprocess.Popen(
                self._program("work", wish), env=self._environment(None), text=True,
                stdout=log, stderr=log, cwd=self._home, start_new_session=True,
            )
            for _ in range(count)
        ]  # fmt: skip
        self._workers += mine
        try:
            yield
        finally:
            for process in mine:
                _end(process)
            self._workers = [one for one in self._workers if one not in mine]
            log.close()

    def check_alive(self) -> None:
        for process in self._workers:
            if process.poll() is not None:
                said = (self.ground.folder / f"{self.peer.name}.log").read_text()
                raise Trouble(f"a worker ended by itself: {_last_line(said)}")

    def kill_workers(self, first: int | None = None) -> None:
        """As a power cut would: they (or the first few) and all that they have started, at once."""
        for process in self._workers[:first]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def _home(self) -> Path:
        return self.ground.folder if self.peer.kind == "rota" else folder(self.peer)

    def _program(self, command: str, wish: dict[str, Any]) -> list[str]:
        return [*interpreter(self.peer), str(program(self.peer)), command, json.dumps(wish)]

    def _environment(self, database: str | None) -> dict[str, str]:
        url = self.ground.url_of(database or self.database)
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("ROTA_")},
            "BENCH_DATABASE_URL": url,
            "BENCH_REDIS_URL": self.ground.redis_socket or "",
            "BENCH_RECORDS": str(self._records),
            "BENCH_FOLDER": str(self.ground.folder),
            **self.extra,
        }

    # -- what it has left, and what it costs

    def left(self) -> int:
        if self.peer.store == "postgres":
            return int(self.ground.sql(self.peer.left, database=self.database) or 0)
        counted = 0
        for key in self.peer.left.split():
            kind = self._redis("TYPE", key)
            ask = {"list": "LLEN", "hash": "HLEN", "zset": "ZCARD", "set": "SCARD"}.get(kind)
            counted += int(self._redis(ask, key)) if ask else 0
        return counted

    def stored_bytes(self) -> int:
        if self.peer.store == "redis":
            memory = dict(
                line.split(":") for line in self._redis("INFO", "memory").split() if ":" in line
            )
            return int(memory["used_memory"])
        return int(self.ground.sql(f"select pg_database_size('{self.database}')"))

    def _redis(self, *words: str) -> str:
        assert self.ground.redis_socket
        return subprocess.run(
            ["redis-cli", "-s", self.ground.redis_socket, *words],
            capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip

    def worker_cpu(self) -> float:
        return sum(cpu_of(process.pid) for process in self._workers)

    def worker_memory(self) -> float:
        """Megabytes of all its processes; what they share is counted once."""
        total = 0
        for process in self._workers:
            with contextlib.suppress(psutil.Error):
                top = psutil.Process(process.pid)
                for each in [top, *top.children(recursive=True)]:
                    with contextlib.suppress(psutil.Error):
                        total += each.memory_full_info().pss
        return total / 1e6

    def store_cpu(self) -> float:
        redis_too = self.ground.redis_cpu() if self.peer.store == "redis" else 0.0
        return self.ground.server_cpu() + redis_too


def _end(process: subprocess.Popen[str]) -> None:
    """Asked, asked again, then killed with all that it has started."""
    for patience in (10, 5):
        if process.poll() is not None:
            break
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def wait_until(condition: Any, seconds: float, pause: float = 0.02) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(pause)
    return True
