"""The FastAPI shop: its own tests, and its page, followed word by word by a shell.

The page's `bash` blocks are run in one shell, in an empty folder, with the wheel in an environment
of its own. A `text` block after one of them is what it prints, `…` standing for anything. A block
after `<!-- repeat -->` is run until it does. Only the ports are changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import asyncpg
import psutil
import pytest

from proof.replicas import Replica
from rota.store.embedded.server import find_binaries
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "guide" / "fastapi.md"
EXAMPLE = ROOT / "examples" / "fastapi_shop"
_PATIENCE = 120.0

_BLOCK = re.compile(
    r"(?P<repeat><!-- repeat -->\n)?```bash\n(?P<script>.*?)\n```"
    r"(?:\n\n```text\n(?P<shown>.*?)\n```)?",
    re.DOTALL,
)


class Step(NamedTuple):
    script: str
    shown: str | None
    repeat: bool


def steps_of(page: str) -> Iterator[Step]:
    for found in _BLOCK.finditer(page):
        yield Step(found["script"], found["shown"], found["repeat"] is not None)


def matches(shown: str, printed: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in shown.split("…"))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


class Shell:
    """One bash, which ends at the first command that fails. What it logs goes to a file."""

    def __init__(self, folder: Path, path: str) -> None:
        kept = {n: v for n, v in os.environ.items() if not n.startswith(("ROTA_", "PG", "PYTHON"))}
        self._log = folder / "stderr"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                ["bash"], cwd=folder, env={**kept, "PATH": path, "HOME": str(folder)},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip
        self.run("set -euo pipefail")

    def run(self, script: str) -> str:
        """Run it to its end, and return what it printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        end = f"end-{uuid4()}"
        self._process.stdin.write(f"{script}\necho\necho {end}\n")
        self._process.stdin.flush()
        printed: list[str] = []
        for line in self._process.stdout:
            if line.strip() == end:
                return "".join(printed)
            printed.append(line)
        raise AssertionError(f"failed:\n{script}\n{''.join(printed)}\n{self.log()}")

    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")[-5000:]

    def close(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(self._process.pid).children(recursive=True)
            for process in [*family, psutil.Process(self._process.pid)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._process.communicate()


def follow(shell: Shell, step: Step) -> None:
    if not step.repeat:
        printed = shell.run(step.script)
        assert step.shown is None or matches(step.shown, printed), f"{step.script}\n{printed}"
        return
    assert step.shown is not None
    deadline = time.monotonic() + _PATIENCE
    while not matches(step.shown, printed := shell.run(f"(set +e\n{step.script}\n) || true")):
        assert time.monotonic() < deadline, f"{step.script}\n{printed}\n{shell.log()}"
        time.sleep(0.2)


# -- its own tests


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[str]:
    """A database of its own: the shop makes a schema."""
    name = f"fastapi_shop_{uuid4().hex[:8]}"
    connection = await asyncpg.connect(database_url)
    await connection.execute(f"create database {name}")
    before = await connection.fetchval("select current_database()")
    yield re.sub(rf"/{before}(?=$|\?)", f"/{name}", database_url)
    await connection.execute(f"drop database {name} with (force)")
    await connection.close()


def test_the_shops_own_tests_pass(database: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "fastapi_shop"],
        cwd=EXAMPLE.parent, env={**os.environ, "ROTA_DATABASE_URL": database},
        capture_output=True, text=True, timeout=170,
    )  # fmt: skip
    assert "5 passed" in done.stdout, done.stdout


# -- the page


@pytest.fixture
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rota-"))  # short: a unix socket's path has little room
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def postgres(folder: Path) -> AsyncIterator[Replica]:
    """A server of its own, where everybody but the superuser needs a password."""
    server = Replica(folder, "server")
    await server.make()
    (folder / "server" / "pg_hba.conf").write_text(
        "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
    )
    connection = await server.connect()
    await connection.execute("select pg_reload_conf()")
    await connection.close()
    yield server
    await server.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def copy_of_the_clone(folder: Path, ports: dict[str, str]) -> Path:
    clone = folder / "clone"
    clone.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    unwanted = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", clone / "src", ignore=unwanted)
    shop = shutil.copytree(EXAMPLE, clone / "examples" / "fastapi_shop", ignore=unwanted)
    config = shop / "pgbouncer.ini"
    config.write_text(with_ports(config.read_text("utf-8"), ports))
    return clone


def with_ports(text: str, ports: dict[str, str]) -> str:
    return re.sub(r"\b(5432|6432|8000|8400)\b", lambda found: ports[found[0]], text)


def programs(folder: Path) -> str:
    """A PATH with psql, and with a PgBouncer that root can start."""
    shims = folder / "bin"
    shims.mkdir()
    if os.geteuid() == 0:
        program = shutil.which("pgbouncer")
        shim = shims / "pgbouncer"
        shim.write_text(f'#!/bin/sh\nexec {program} --user=nobody "$@"\n')
        shim.chmod(0o755)
    (shims / "python3").symlink_to(Path(sys.executable).resolve())
    return f"{shims}:{os.environ['PATH']}:{find_binaries()}"


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("pgbouncer") is None, reason="pgbouncer is not installed")
async def test_the_page_is_followed_word_by_word(folder: Path, postgres: Replica) -> None:
    ports = {"5432": str(postgres.port), **{p: str(free_port()) for p in ("6432", "8000", "8400")}}
    clone = copy_of_the_clone(folder, ports)
    page = with_ports(PAGE.read_text("utf-8"), ports).replace("~/rota", str(clone))
    path = programs(folder)
    work = folder / "work"
    work.mkdir(mode=0o755)
    shell = Shell(work, path)
    try:
        for step in steps_of(page):
            follow(shell, step)
    finally:
        shell.close()
