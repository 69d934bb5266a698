"""`rota.integrations.django`: the interface for tasks, the sample shop, real workers; on both lines.

Django's settings are one per process: so each line runs in processes of its own. Django 5.2 with
`django-tasks` is in this environment; Django 6 needs Python 3.12 and has one that `make` makes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import psycopg
import pytest

from proof.nemesis.server import free_port
from proof.waiting import eventually
from rota.integrations.django.reload import Reloader
from tests.support.places import EXAMPLES, ROOT, SUPPORT

SHOP = EXAMPLES / "django_shop"
PROJECT = SUPPORT / "django_project"
DJANGO_6 = Path(os.environ.get("ROTA_DJANGO6", ROOT / ".venv" / "django6")) / "bin" / "python"
LINES = {"5.2": sys.executable, "6": str(DJANGO_6)}


class Line:
    """A line of Django, and a database for its project."""

    def __init__(self, python: str, url: str, name: str) -> None:
        self.python = python
        self.environment = {
            **{n: v for n, v in os.environ.items() if not n.startswith(("ROTA_", "DJANGO_"))},
            "DATABASE_URL": url, "DATABASE_NAME": name, "PYTHONUNBUFFERED": "1",
        }  # fmt: skip

    def manage(self, folder: Path, *arguments: str, **environment: str) -> str:
        """Run manage.py to its end, and return what it printed."""
        done = subprocess.run(
            [self.python, "-W", "error", "manage.py", *arguments], cwd=folder, text=True,
            capture_output=True, env={**self.environment, **environment}, timeout=150, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    @contextlib.contextmanager
    def running(self, folder: Path, *arguments: str, **environment: str) -> Iterator[Any]:
        """Keep manage.py up. It is asked to stop at the end."""
        process = subprocess.Popen(
            [self.python, "manage.py", *arguments], cwd=folder, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env={**self.environment, **environment},
        )  # fmt: skip
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


@pytest.fixture(params=LINES)
def line(request: pytest.FixtureRequest, database_url: str) -> Iterator[Line]:
    python = LINES[request.param]
    if not Path(python).exists():
        pytest.skip("Django 6 needs Python 3.12 or newer, and there is none that `make` found")
    name = f"django_{uuid4().hex[:12]}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        for each in (name, f"{name}_other"):
            connection.execute(f"create database {each}")
        yield Line(python, urlsplit(database_url)._replace(path=f"/{name}").geturl(), name)
        for each in (name, f"{name}_other"):
            connection.execute(f"drop database {each} with (force)")


def test_django_s_interface_for_tasks_method_by_method(line: Line) -> None:
    printed = line.manage(PROJECT, "test", "--noinput")
    assert "OK" in printed, printed


def test_the_shop_s_own_tests(line: Line) -> None:
    assert "OK" in line.manage(SHOP, "test", "--noinput")


@pytest.mark.proof
def test_a_request_and_its_job_are_one_transaction(line: Line) -> None:
    """The sample shop, over HTTP, with a worker: an order that is committed, one that is rolled back."""
    line.manage(SHOP, "migrate")
    port = free_port()
    with (
        line.running(SHOP, "runserver", "--noreload", str(port)),
        line.running(SHOP, "rota", "worker"),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        _wait(lambda: _answers(client))
        committed = client.post("/orders/", json={"item": "teapot", "quantity": 2})
        rolled_back = client.post("/orders/", json={"item": "teapot", "quantity": 101})
        assert (committed.status_code, rolled_back.status_code) == (201, 409)
        job = committed.json()["job"]
        _wait(lambda: client.get(f"/jobs/{job}/").json()["status"] == "SUCCESSFUL")
        assert client.get(f"/jobs/{job}/").json() == {
            "status": "SUCCESSFUL", "attempts": 1, "value": "2 teapot"
        }  # fmt: skip
        assert client.get("/orders/").json() == {"orders": 1, "bookings": 1}
        listed = json.loads(line.manage(SHOP, "rota", "jobs", "list", "--json"))
        # One of each: the order that was rolled back has left no job, neither waiting nor failed.
        assert sorted(each["task"] for each in listed) == ["shop.tasks.confirm", "shop.tasks.thank"]
        schedules = line.manage(SHOP, "rota", "schedules", "list")
        assert "nightly-report" in schedules


def _wait(ask: Callable[[], bool]) -> None:
    asyncio.run(eventually(ask, 90))


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/orders/").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.proof
def test_a_real_worker_keeps_the_promises_of_tasks(line: Line) -> None:
    """Signals, statuses, retries, exactly_once by the ORM across errors and across a killed process."""
    line.manage(PROJECT, "migrate")
    line.manage(PROJECT, "migrate", "--database", "other")
    with line.running(PROJECT, "rota", "worker", NOTE_SIGNALS="1", BAD_RECEIVER="1"):
        done = subprocess.run(
            [line.python, "-m", "conform.drive"], cwd=PROJECT, text=True, capture_output=True,
            env={**line.environment, "DJANGO_SETTINGS_MODULE": "conform.settings"}, timeout=150,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    results = told["results"]
    assert results["add"] == ["SUCCESSFUL", 1, 5, []]
    assert results["anote"] == ["SUCCESSFUL", 1, "async", []]
    assert results["fail"] == ["FAILED", 3, None, ["builtins.ValueError"] * 3]
    assert results["far_away"] == ["SUCCESSFUL", 1, "found", []]
    assert results["slow"] == ["SUCCESSFUL", 1, "slow", []]
    assert results["odd_result"][:3] == ["SUCCESSFUL", 1, None]
    assert results["exactly"][:2] == ["SUCCESSFUL", 2]
    assert results["dies_once"][:3] == ["SUCCESSFUL", 2, "alive"]
    notes = told["notes"]
    assert notes.count("once") == notes.count("once, inside") == 1
    assert notes.count("killed") == 1
    assert notes.count("from a coroutine") == 1
    # Sent where the handler runs: a start for each attempt, an end for each task.
    assert notes.count("started fail") == 3
    assert notes.count("FAILED fail") == 1
    assert notes.count("SUCCESSFUL add") == 1
    # Receivers write in the handler's transaction: what a failed attempt noted is undone with it.
    assert notes.count("started exactly") == 1


def test_a_signal_that_comes_while_the_worker_is_started_reaches_it() -> None:
    reloader = Reloader([sys.executable, "-c", "import time; time.sleep(600)"], [], print)
    reloader._start()
    started, reloader._process = reloader._process, None
    reloader._stop(signal.SIGTERM, None)
    reloader._process = started
    assert reloader._end() == -signal.SIGTERM


def test_the_worker_starts_again_when_a_file_changes(line: Line, tmp_path: Path) -> None:
    changed = tmp_path / "watched.py"
    changed.write_text("before = 1")
    code = (
        "import sys; from pathlib import Path; from rota.integrations.django.reload import Reloader; "
        "say = lambda text: print(text, flush=True); "
        "Reloader([sys.executable, '-c', 'print(\"up\", flush=True); import time; time.sleep(600)'],"
        f" [Path({str(tmp_path)!r})], say).run()"
    )
    with subprocess.Popen(
        [line.python, "-c", code], text=True, stdout=subprocess.PIPE, env=line.environment
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "up\n"
            changed.write_text("after = 22")
            assert "watched.py changed: starting again." in process.stdout.readline()
            assert process.stdout.readline() == "up\n"
        finally:
            process.send_signal(signal.SIGTERM)
