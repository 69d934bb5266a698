"""The pytest plugin, in small projects whose tests a real pytest runs: `rota.pytest_plugin`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import asyncpg
import pytest

from tests.support.places import ROOT

SHOP = """
from rota import App, Retry

app = App()
outbox = []


@app.task(retry=Retry(max_attempts=2, base=60, jitter=0))
async def remind(order: int) -> str:
    outbox.append(order)
    return f"order {order}"


@app.task
def resize(width: int) -> int:
    return width * 2


@app.task
async def broken() -> None:
    raise ValueError("no such order")
"""

PLAIN = """
import pytest
from rota.testing import SyncSandbox
from shop import app, broken, outbox, remind, resize


def test_time_moves(rota: SyncSandbox) -> None:
    assert isinstance(rota, SyncSandbox)
    outbox.clear()
    before = rota.now()
    job = remind.options(delay=3600).submit_sync(7)
    assert rota.run_due() == []
    assert (rota.advance(hours=1) - before).total_seconds() == 3600
    [ended] = rota.run_due()
    assert (ended.id, ended.state, outbox) == (job.id, "succeeded", [7])
    assert job.result_sync(10) == "order 7"


def test_nothing_is_left_of_the_test_before(rota: SyncSandbox) -> None:
    assert rota.jobs() == []
    assert rota.app.sync.schedules.list() == []
    resize.submit_sync(2)
    [job] = rota.run_due(raise_errors=True)
    assert job.result == 4


def test_a_schedule_fires_on_the_way(rota: SyncSandbox) -> None:
    rota.app.sync.schedule("hourly", resize, cron="@hourly", payload={"width": 1})
    assert len(rota.run_for(days=1)) == 24


def test_what_a_handler_raises_can_fail_the_test(rota: SyncSandbox) -> None:
    broken.submit_sync()
    with pytest.raises(ValueError, match="no such order"):
        rota.run_due(raise_errors=True)


@pytest.mark.rota(now="2030-01-01T09:00Z", namespace="acme")
def test_a_marker_says_how_it_begins(rota: SyncSandbox) -> None:
    assert rota.now().isoformat() == "2030-01-01T09:00:00+00:00"
    assert rota.app.settings.namespace == "acme"
    assert rota.run_until(rota.now().replace(hour=10)) == []
    assert rota.travel_to(rota.now().replace(hour=11)) == rota.now()
"""

COROUTINES = """
import asyncio
import pytest
from rota.testing import Sandbox
from shop import app, outbox, remind, resize
{head}

{mark}
async def test_time_moves(rota: Sandbox) -> None:
    assert isinstance(rota, Sandbox)
    outbox.clear()
    job = await remind.options(delay=3600).submit(7)
    assert await rota.run_due() == []
    await rota.advance(hours=1)
    [ended] = await rota.run_due()
    assert (ended.id, ended.state, outbox) == (job.id, "succeeded", [7])
    assert await job.result(10) == "order 7"


{mark}
async def test_nothing_is_left_of_the_test_before(rota: Sandbox) -> None:
    assert await rota.jobs() == []
    await resize.submit(2)
    [job] = await rota.run_for(minutes=1, raise_errors=True)
    assert job.result == 4


{mark}
async def test_handlers_run_in_the_loop_of_the_test(rota: Sandbox) -> None:
    loops = []

    @app.task(name=f"loop_{{len(app.tasks)}}")
    async def remember() -> None:
        loops.append(asyncio.get_running_loop())

    await remember.submit()
    await rota.run_due(raise_errors=True)
    assert loops == [asyncio.get_running_loop()]


class TestInAClass:
    {mark}
    async def test_it_works_as_well(self, rota: Sandbox) -> None:
        await remind.submit(1)
        assert len(await rota.run_due()) == 1


def test_a_plain_one_beside_them(rota) -> None:
    assert rota.jobs() == []
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "pytest.ini").write_text("[pytest]\nrota_app = shop:app\nfilterwarnings = error\n")
    return tmp_path


def run_pytest(project: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    if "no:asyncio" not in arguments:
        arguments = (*arguments, "-o", "asyncio_default_fixture_loop_scope=function")
    left_out = ("PYTEST_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:faker",
         "-p", "no:schemathesis", *arguments],
        cwd=project, env={**kept, "ROTA_DATABASE_URL": url, "PYTHONPATH": ""},
        capture_output=True, text=True, timeout=150,
    )  # fmt: skip


async def schemas_in(url: str) -> set[str]:
    connection = await asyncpg.connect(url)
    rows = await connection.fetch("select nspname from pg_namespace where nspname ~ '^rota_test_'")
    await connection.close()
    return {row["nspname"] for row in rows}


async def test_plain_tests_move_time(project: Path, database_url: str) -> None:
    (project / "test_shop.py").write_text(PLAIN)
    before = await schemas_in(database_url)
    done = run_pytest(project, database_url, "-p", "no:asyncio", "-p", "no:anyio")
    assert "5 passed" in done.stdout, done.stdout + done.stderr
    assert await schemas_in(database_url) <= before


@pytest.mark.parametrize(
    ("plugins", "head", "mark"),
    [
        ("-p no:anyio", "", "@pytest.mark.asyncio"),
        ("-p no:anyio --asyncio-mode=auto", "", ""),
        (
            "-p no:asyncio",
            '@pytest.fixture\ndef anyio_backend(): return "asyncio"',
            "@pytest.mark.anyio",
        ),
        ("-p no:asyncio -p no:anyio", "", ""),
    ],
    ids=["pytest-asyncio", "pytest-asyncio in auto mode", "anyio", "no other plugin"],
)
def test_coroutines_move_time(
    project: Path, database_url: str, plugins: str, head: str, mark: str
) -> None:
    (project / "test_shop.py").write_text(COROUTINES.format(head=head, mark=mark))
    done = run_pytest(project, database_url, *plugins.split())
    assert "5 passed" in done.stdout, done.stdout + done.stderr


ASYNC_FIXTURE = """
import pytest
from shop import remind


@pytest.fixture
async def order(rota):
    yield await remind.submit(3)
    await rota.app.close()


async def test_a_fixture_submits(rota, order):
    [job] = await rota.run_due()
    assert job.id == order.id
"""


def test_a_fixture_that_is_a_coroutine_uses_it(project: Path, database_url: str) -> None:
    (project / "test_shop.py").write_text(ASYNC_FIXTURE)
    done = run_pytest(project, database_url, "--asyncio-mode=auto")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_test_that_leaves_a_transaction_open_harms_no_other(
    project: Path, database_url: str
) -> None:
    (project / "test_shop.py").write_text(
        """
import psycopg
from shop import app, remind

held = []

def test_a_lock_is_left(rota):
    remind.submit_sync(1)
    held.append(psycopg.connect(app.settings.database_url))
    held[0].execute(f"lock table {app.settings.schema}.present")
    held[0].execute(f"select * from {app.settings.schema}.future")

def test_the_next(rota):
    assert rota.jobs() == []
    held[0].close()
"""
    )
    (project / "conftest.py").write_text(
        "import rota.pytest_sandbox\nrota.pytest_sandbox._PATIENCE = 1\n"
    )
    done = run_pytest(project, database_url, "-p", "no:asyncio")
    assert "2 passed, 1 error" in done.stdout, done.stdout
    assert "ERROR test_shop.py::test_a_lock_is_left" in done.stdout
    assert "the test has left a transaction open that holds a lock" in done.stdout


def test_an_app_that_is_not_named_is_asked_for(project: Path, database_url: str) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "test_shop.py").write_text("def test_it(rota): ...\n")
    done = run_pytest(project, database_url)
    assert "set `rota_app = module:variable` in pytest's configuration" in done.stdout
    assert done.returncode != 0


def test_a_fixture_may_make_the_app(project: Path, database_url: str) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "test_shop.py").write_text(
        "import pytest, shop\n\n"
        "@pytest.fixture\ndef rota_app():\n    return shop.app\n\n"
        "def test_it(rota):\n    assert rota.app is shop.app\n"
    )
    done = run_pytest(project, database_url)
    assert "1 passed" in done.stdout, done.stdout


UNUSED = """
import sys

def pytest_unconfigure(config):
    heavy = {"asyncpg", "msgspec", "rota.app", "rota.testing", "rota.pytest_sandbox", "rota.cli"}
    assert config.pluginmanager.has_plugin("rota")
    print("loaded:", sorted(heavy & sys.modules.keys()))
"""


def test_projects_that_do_not_use_it_load_nothing(project: Path, database_url: str) -> None:
    (project / "conftest.py").write_text(UNUSED)
    (project / "test_it.py").write_text("def test_it(): ...\n")
    done = run_pytest(project, database_url, "-p", "no:asyncio", "-p", "no:anyio")
    assert "1 passed" in done.stdout
    assert "loaded: []" in done.stdout, done.stdout


def test_production_loads_no_pytest() -> None:
    code = (
        "import sys, rota.app, rota.node, rota.cli, rota.client, rota.server.serving\n"
        "print([each for each in sys.modules if 'pytest' in each or each == 'rota.testing'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


DOCUMENTED = """
from rota import App

app = App()
outbox = []


@app.task
async def remind(order_id: int) -> None:
    outbox[:] = [f"order {order_id}"]
"""


def test_the_tests_that_the_guide_shows_pass(project: Path, database_url: str) -> None:
    page = (ROOT / "docs/guide/testing.md").read_text("utf-8")
    marked = r"no-run: run by tests/test_pytest_plugin.py -->\n *```python\n(.*?)\n *```\n"
    blocks = re.findall(marked, page, re.DOTALL)
    assert len(blocks) == 3
    (project / "shop.py").write_text(DOCUMENTED)
    for number, block in enumerate(blocks):
        (project / f"test_{number}.py").write_text(textwrap.dedent(block))
    done = run_pytest(project, database_url)
    assert "3 passed" in done.stdout, done.stdout
