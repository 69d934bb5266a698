"""`rota dev` and `rota start` in real processes: how they start, what they log, how they end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Self
from uuid import UUID, uuid4

import asyncpg
import psutil
import pytest

from proof.waiting import eventually
from tests.support.command_line import drop_schema, run, submit
from tests.support.places import ROTA, SUPPORT


class Program:
    """A `rota` in a process group of its own, as in a terminal; its lines are read as they come."""

    def __init__(self, *arguments: str, **environ: str) -> None:
        clean = {n: v for n, v in os.environ.items() if not n.startswith("ROTA_")}
        self._process = subprocess.Popen(
            [ROTA, *arguments],
            cwd=SUPPORT,
            env={**clean, "ROTA_PROCESSES": "1", **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._seen: list[str] = []

    def until(self, is_it: Callable[[str], bool]) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._seen.append(line)
            if is_it(line):
                return line
        raise AssertionError(f"it ended without saying so:\n{''.join(self._seen)}")

    def press_ctrl_c(self) -> None:
        os.killpg(self._process.pid, signal.SIGINT)

    def terminate(self) -> None:
        self._process.terminate()

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self._process.pid).children(recursive=True)

    def end(self) -> tuple[int, str]:
        """Its exit code, and all that it said."""
        rest, _ = self._process.communicate(timeout=60)
        return self._process.returncode, "".join(self._seen) + rest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


@pytest.fixture
def data_dir() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rota-"))
    path.chmod(0o711)  # root's server runs as another user, who must be able to pass
    yield path
    for process in _processes_of(path):
        process.kill()
    shutil.rmtree(path, ignore_errors=True)


def _processes_of(data_dir: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(data_dir) in argument for argument in process.cmdline()):
                found.append(process)
    return found


def test_dev_brings_its_database_shows_jobs_and_leaves_nothing_behind(data_dir: Path) -> None:
    where = {"ROTA_DATA_DIR": str(data_dir)}
    with Program("dev", "cli_app:app", **where) as dev:
        dev.until(lambda line: line.startswith("stop") and "Ctrl-C" in line)
        with Program("jobs", "submit", "greet", '{"name": "Ada"}', "--wait", **where) as submitted:
            code, said = submitted.end()
            job_id = UUID(said.split()[1])
            assert (code, said.splitlines()[-1]) == (0, '"hello Ada"')
        line = dev.until(lambda line: str(job_id) in line)
        assert line.split()[1:3] == ["greet", "succeeded"]
        with Program("jobs", "submit", "explode", "--wait", "--json", **where) as submitted:
            code, said = submitted.end()
            assert code == 1
            assert '"type":"JobFailed"' in said.splitlines()[-1]
        assert ": ValueError: boom" in dev.until(lambda line: "explode" in line)
        family = dev.family()
        assert family
        assert _processes_of(data_dir)
        dev.press_ctrl_c()
        code, said = dev.end()
    assert code == 0, said
    assert f"embedded PostgreSQL in {data_dir}" in said
    assert "add" in said
    assert "queue sums" in said
    assert "at_most_once" in said
    assert 'rota jobs submit greet \'{"name": "..."}\'' in said
    assert "Traceback" not in said
    assert "\x1b" not in said
    assert not [process for process in family if process.is_running()]
    assert _processes_of(data_dir) == []


def test_a_second_ctrl_c_stops_dev_at_once_and_returns_its_jobs(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"ROTA_DATABASE_URL": database_url, "ROTA_SCHEMA": f"cli_{uuid4().hex[:8]}"}
    with Program("dev", "cli_app:app", "--json", **environ) as dev:
        up = json.loads(dev.until(lambda line: '"up"' in line))
        assert {"name": "add", "queue": "sums", "guarantee": "at_most_once"} in up["tasks"]
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        job_id = submit("wait_for_ever")
        dev.until(lambda line: line == "waiting\n")
        dev.press_ctrl_c()
        first = json.loads(dev.until(lambda line: '"stopping"' in line))
        dev.press_ctrl_c()
        second = json.loads(dev.until(lambda line: '"stopping"' in line))
        assert (first["running"], first["now"], second["now"]) == (1, False, True)
        ended = json.loads(dev.until(lambda line: '"ended"' in line))
        assert (ended["id"], ended["outcome"]) == (job_id, "returned")
        code, said = dev.end()
    assert code == 0, said
    assert run("jobs", "show", job_id, "--json").json["state"] == "ready"
    asyncio.run(drop_schema(environ))


def test_start_runs_a_node_until_it_is_told_to_stop(environ: dict[str, str]) -> None:
    roles = ["--role", "worker", "--queue", "sums=1", "--capability", "gpu"]
    sizes = ["--concurrency", "3", "--processes", "1", "--log-format", "json"]
    with Program("start", "cli_app:app", *roles, *sizes, **environ) as program:
        entry = json.loads(program.until(lambda line: "is up" in line))
        assert (entry["level"], entry["logger"]) == ("info", "rota.node")
        assert datetime.fromisoformat(entry["time"]).tzinfo is not None
        [node] = run("nodes", "--json").json
        assert len(run("shards", "--json").json["shards"]) == 128
        assert "0-127" in run("shards").out
        assert (node["roles"], node["queues"], node["slots"]) == (["worker"], ["sums"], 4)
        assert (node["capabilities"], node["state"]) == (["gpu"], "live")
        waited = run("jobs", "submit", "add", '{"a": 1, "b": 2}', "--queue", "sums", "--wait")
        assert (waited.code, waited.out) == (0, "3\n")
        program.terminate()
        code, said = program.end()
    assert code == 0, said
    assert run("nodes", "--json").json == []
    [stopped] = run("nodes", "--all", "--json").json
    assert stopped["state"] == "stopped"


_OWN_LOGGING = """
import logging.config
logging.config.dictConfig({
    "version": 1,
    "formatters": {"own": {"format": "own %(levelname)s %(message)s"}},
    "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own", "level": HANDLER}},
    "root": {"level": "WARNING", "handlers": ["own"]},
    "loggers": {"rota": {"level": LEVEL}},
})
from cli_app import app
"""


def _with_own_logging(folder: Path, *, handler: str = "NOTSET", level: str = "NOTSET") -> Path:
    text = _OWN_LOGGING.replace("HANDLER", repr(handler)).replace("LEVEL", repr(level))
    (folder / "own_logging.py").write_text(text)
    return folder


def test_a_log_level_holds_where_the_application_configures_logging_itself(
    environ: dict[str, str], tmp_path: Path
) -> None:
    environ["PYTHONPATH"] = str(_with_own_logging(tmp_path, level="ERROR"))
    with Program("start", "own_logging:app", "--log-level", "info", **environ) as program:
        assert program.until(lambda line: "is up" in line).startswith("own INFO ")
        program.terminate()
        assert program.end()[0] == 0


def test_without_a_log_level_the_application_decides_about_rotas_records(
    environ: dict[str, str], tmp_path: Path
) -> None:
    environ["PYTHONPATH"] = str(_with_own_logging(tmp_path, level="ERROR"))
    with Program("start", "own_logging:app", **environ) as program:
        asyncio.run(_wait_for_node(environ))
        program.terminate()
        assert "own INFO" not in program.end()[1]


async def _wait_for_node(environ: dict[str, str]) -> None:
    connection = await asyncpg.connect(environ["ROTA_DATABASE_URL"])
    query = f"select count(*) from {environ['ROTA_SCHEMA']}.node where namespace = $1 and state = 'live'"
    await eventually(lambda: connection.fetchval(query, environ["ROTA_NAMESPACE"]), what="a node")
    await connection.close()


def test_a_log_level_that_the_applications_handlers_defeat_is_said(
    environ: dict[str, str], tmp_path: Path
) -> None:
    environ["PYTHONPATH"] = str(_with_own_logging(tmp_path, handler="WARNING"))
    with Program("start", "own_logging:app", "--log-level", "info", **environ) as program:
        said = program.until(lambda line: "--log-level" in line)
        assert said.startswith("own WARNING --log-level info has no effect")


def test_start_refuses_a_schema_it_does_not_know(database_url: str) -> None:
    environ = {"ROTA_DATABASE_URL": database_url, "ROTA_SCHEMA": "cli_nowhere"}
    with Program("start", "cli_app:app", **environ) as program:
        code, said = program.end()
    assert code == 1
    assert "rota migrate" in said
    assert "Traceback" not in said


def test_an_app_that_child_processes_can_not_import_ends_the_start(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "parents_only.py").write_text(
        "import sys\n"
        "assert 'rota.worker.runners.child' not in sys.orig_argv, 'not for children'\n"
        "from rota import App\n"
        "app = App()\n"
        "@app.task\n"
        "def plain(): pass\n"
    )
    with Program("start", "parents_only:app", **environ, PYTHONPATH=str(tmp_path)) as program:
        code, said = program.end()
    assert code == 1
    assert "error: a child process could not import the app parents_only:app" in said
    assert "AssertionError: not for children" in said


def test_a_bad_module_is_one_line(folder: Path) -> None:
    for arguments in (["dev", "nosuch:app"], ["dev"]):
        answer = run(*arguments)
        assert (answer.code, answer.out) == (1, "")
        assert answer.err.startswith("error: ")
        assert answer.err.count("\n") == 1
    with Program("start", "cli_app:nosuch") as program:
        assert program.end() == (
            1, "error: module 'cli_app' has no 'nosuch'; it has cli_app:app\n"
        )  # fmt: skip
