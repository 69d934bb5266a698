"""`rota pool` with real processes: from zero, up, down without harm, and when something is killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import rota.cli.supervisor
from proof.waiting import eventually
from rota import App
from rota.cli.supervisor import Plan, Supervisor
from tests.support.places import ROOT

PLAN = Plan(
    reference="tests.support.pool_tasks:app", most=2, slots=1, queues=["pool"], drain_target=1.0
)


@pytest.fixture
def app(make_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch) -> App:
    app = make_app(heartbeat=0.2)
    settings = app.settings
    for name in ("database_url", "schema", "heartbeat"):
        monkeypatch.setenv(f"ROTA_{name.upper()}", str(getattr(settings, name)))
    monkeypatch.setenv("ROTA_PROCESSES", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # The rules of time are tested in tests/core/test_pools.py.
    monkeypatch.setattr("rota.core.pools.DOWN_SECONDS", 0.0)
    monkeypatch.setattr("rota.core.pools._STEP_SECONDS", 0.0)
    monkeypatch.setattr("rota.core.pools.UP_SECONDS", 0.5)
    monkeypatch.setattr(rota.cli.supervisor, "_INTERVAL", 0.2)
    monkeypatch.setattr(rota.cli.supervisor, "_FIRST_PAUSE", 0.2)
    return app


@pytest.fixture
async def pool(app: App) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(app, PLAN)
    running = asyncio.create_task(supervisor.run())
    yield supervisor
    supervisor._request_stop()
    await running


async def submit(app: App, task: str, path: Path) -> Any:
    return await app.submit(task, {"path": str(path)}, queue="pool")


async def test_a_pool_wakes_from_zero_grows_and_shrinks_without_interrupting_a_job(
    app: App, pool: Supervisor, tmp_path: Path
) -> None:
    assert pool.started == 0
    paths = [tmp_path / name for name in "ab"]
    jobs = [await submit(app, "hold", path) for path in paths]
    await eventually(
        lambda: len(pool.workers) == 2 and sum(w.running for w in pool.workers) == 2, 60
    )
    # One job ends: its worker is the emptiest, and goes. The other one goes on.
    paths[0].touch()
    first = await jobs[0].wait(60)
    await eventually(lambda: [w.pid for w in pool.workers if not w.has_ended] != [], 60)
    await eventually(lambda: first.result not in [w.pid for w in pool.workers], 60)
    assert (await jobs[1].status()).state == "running"
    paths[1].touch()
    assert (await jobs[1].wait(60)).attempt == 1
    await eventually(lambda: not pool.workers, 60)
    assert pool.started == 2
    assert {(await job.status()).attempt for job in jobs} == {1}


async def test_a_worker_that_crashes_is_started_again_after_a_pause(
    app: App, pool: Supervisor, tmp_path: Path
) -> None:
    job = await submit(app, "crash", tmp_path / "x")
    await eventually(lambda: pool.started >= 1, 60)
    await eventually((tmp_path / "x").exists, 60)
    await eventually(lambda: pool.started >= 2 or not pool.workers, 60)
    assert pool._pause > 0.2
    assert (await job.status()).state in ("running", "ready", "succeeded")


async def test_workers_whose_supervisor_was_killed_finish_their_jobs_and_end(
    app: App, tmp_path: Path
) -> None:
    path = tmp_path / "go"
    program = "from rota.cli import main; main()"
    words = ["pool", PLAN.reference, "--max", "1", "--slots", "1", "--queue", "pool"]
    supervisor = await asyncio.create_subprocess_exec(
        str(ROOT / ".venv/bin/python") if (ROOT / ".venv").exists() else "python",
        "-c", program, *words, cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    try:
        job = await submit(app, "hold", path)
        await eventually(lambda: _is_running(job), 90)
        worker = await eventually(lambda: _busy(app), 60)
    finally:
        supervisor.send_signal(signal.SIGKILL)
        await supervisor.wait()
    await eventually(lambda: _is_draining(app), 60)
    assert (await job.status()).state == "running"
    path.touch()
    done = await job.wait(60)
    assert (done.attempt, done.result) == (1, worker.pid)
    await eventually(lambda: not _is_alive(worker.pid), 60)


async def _is_running(job: Any) -> bool:
    return (await job.status()).state == "running"


async def _busy(app: App) -> Any:
    return next((node for node in await app.nodes.list() if node.running), None)


async def _is_draining(app: App) -> bool:
    return any(node.state == "draining" for node in await app.nodes.list())


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
