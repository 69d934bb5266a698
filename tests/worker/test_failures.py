"""What a handler raised reaches the worker's log, the app's hooks and `rota jobs logs`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import rota.testing
from proof.waiting import eventually
from rota import App, ConfigError, Retry
from rota.cli import cli
from rota.node import Node
from tests.support import hung_tasks

PLACES = ["on_the_loop", "in_a_thread", "in_a_child"]


@pytest.fixture
async def app(make_app: Callable[..., App]) -> AsyncIterator[App]:
    settings = make_app(heartbeat=0.5, kill_grace=1, processes=1).settings
    async with hung_tasks.app.using(settings) as app:
        yield app


def records(caplog: pytest.LogCaptureFixture, id: object) -> list[logging.LogRecord]:
    return [one for one in caplog.records if one.name == "rota.jobs" and str(id) in one.message]


@pytest.mark.parametrize("place", PLACES)
async def test_a_failed_attempt_is_a_warning_and_a_dead_letter_an_error_in_the_workers_log(
    app: App, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    async with Node(app).running():
        job = await (await app.submit(f"fail_{place}")).wait(60)
        await eventually(lambda: _count(caplog, job.id, 2))
    warning, error = records(caplog, job.id)
    assert (warning.levelname, error.levelname) == ("WARNING", "ERROR")
    for record in (warning, error):
        assert f"ValueError: no luck in the {place.rpartition('_')[2]}" in record.message
        assert 'raise ValueError(f"no luck in the {runner}")' in record.message  # the traceback
        assert "hung_tasks.py" in record.message
    assert "attempt 1 of 2, and is tried again" in warning.message
    assert "attempt 2 of 2, it is a dead letter now" in error.message


async def _count(caplog: pytest.LogCaptureFixture, id: object, count: int) -> bool:
    return len(records(caplog, id)) == count


async def test_a_child_that_died_is_an_error_in_the_log(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    async with Node(app).running():
        job = await (await app.submit("die")).wait(60)
        await eventually(lambda: _count(caplog, job.id, 1))
    [error] = records(caplog, job.id)
    assert "ProcessDied: its child process exited with status 3" in error.message


@pytest.mark.parametrize("place", PLACES)
async def test_a_hook_is_called_where_it_happened_and_can_break_nothing(
    app: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    told = tmp_path / "told"
    monkeypatch.setenv("ROTA_TEST_HOOK", str(told))
    async with Node(app).running():
        job = await (await app.submit(f"fail_{place}")).wait(60)
        assert (job.state, len(job.attempts)) == ("failed", 2)
        assert job.error is not None
        assert job.error.type == "ValueError"
    lines = [line.split(" ", 3) for line in told.read_text().splitlines()]
    assert [line[1:3] for line in lines] == [[str(job.id), "1"], [str(job.id), "2"]]
    assert {line[3] for line in lines} == {f"ValueError: no luck in the {place.rpartition('_')[2]}"}
    assert all((int(line[0]) == os.getpid()) == (place != "in_a_child") for line in lines)


async def test_a_hook_hears_in_the_worker_of_a_child_that_died(
    app: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    monkeypatch.setenv("ROTA_TEST_HOOK", str(told))
    async with Node(app).running():
        job = await (await app.submit("die")).wait(60)
        await eventually(lambda: _exists(told))
    pid, id, attempt, error = told.read_text().strip().split(" ", 3)
    assert (int(pid), id, attempt) == (os.getpid(), str(job.id), "1")
    assert error == "ProcessDied: its child process exited with status 3"


async def _exists(path: Path) -> bool:
    return path.exists()


async def test_a_hook_is_called_in_a_sandbox_too(sandbox: rota.testing.Sandbox) -> None:
    told: list[str] = []

    @sandbox.app.on_error
    def tell(job: object, error: BaseException) -> None:
        told.append(str(error))

    @sandbox.app.task(retry=Retry(max_attempts=1))
    async def fail() -> None:
        raise ValueError("no luck")

    await fail.submit()
    await sandbox.run_due()
    assert told == ["no luck"]


def test_a_hook_must_be_a_plain_function() -> None:
    app = App()
    with pytest.raises(ConfigError, match="plain function"):

        @app.on_error  # type: ignore[arg-type]
        async def tell(job: object, error: BaseException) -> None: ...


async def test_the_log_of_a_job_shows_the_traceback_of_its_attempts(
    app: App,
) -> None:
    async with Node(app).running():
        job = await (await app.submit("fail_on_the_loop")).wait(60)
    settings = app.settings
    environ = {"ROTA_DATABASE_URL": settings.database_url, "ROTA_SCHEMA": settings.schema}
    shown = await _run_cli(environ, "jobs", "logs", str(job.id))
    assert shown.count("ValueError: no luck in the loop") == 2
    assert "attempt 1 ended with raised:" in shown
    assert 'raise ValueError(f"no luck in the {runner}")' in shown
    last = await _run_cli(environ, "jobs", "logs", str(job.id), "--attempt", "2")
    assert "attempt 1" not in last
    assert last.count("ValueError: no luck in the loop") == 1


async def _run_cli(environ: dict[str, str | None], *words: str) -> str:
    answer = await asyncio.to_thread(lambda: CliRunner().invoke(cli, list(words), env=environ))
    assert answer.exit_code == 0, answer.output
    return answer.output
