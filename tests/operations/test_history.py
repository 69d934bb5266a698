"""Exports (operations/history.py, files/exports.py): each ended job once, in whole files."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rota import App, ConfigError, Retry
from rota.files.exports import export_jobs


@pytest.fixture
def app(sandbox, monkeypatch):
    monkeypatch.setattr("rota.operations.history._PAGE", 3)

    @sandbox.app.task
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    @sandbox.app.task(queue="other", retry=Retry(max_attempts=1))
    async def hopeless() -> None:
        raise ValueError("no luck")

    return sandbox.app


@pytest.fixture
async def ended(sandbox, app):
    """Seven that succeeded, two that failed, one that was cancelled; one that waits."""
    ids = [(await app.submit("greet", {"name": str(n)})).id for n in range(7)]
    ids += [(await app.submit("hopeless")).id for _ in range(2)]
    cancelled = await app.submit("greet", {"name": "nobody"}, delay=3600)
    await app.jobs.cancel(cancelled.id)
    await app.submit("greet", {"name": "later"}, delay=3600)
    await sandbox.run_due()
    return [*ids, cancelled.id]


async def read(app, since, until, **filters):
    return [job async for job in app.history.jobs(since, until, **filters)]


def period(sandbox):
    return sandbox.now() - timedelta(days=1), sandbox.now() + timedelta(seconds=1)


async def test_each_ended_job_comes_once_in_the_order_of_the_submits(sandbox, app, ended):
    found = await read(app, *period(sandbox))
    assert [job.id for job in found] == ended
    assert {job.state for job in found} == {"succeeded", "failed", "cancelled"}
    assert found[0].result == "Hello, 0!"


async def test_the_period_is_that_of_the_ends_and_its_end_is_not_included(sandbox, app, ended):
    await sandbox.advance(days=2)
    await sandbox.run_due()  # what waited for an hour
    before = sandbox.now()
    await sandbox.advance(days=2)
    later = await app.submit("greet", {"name": "Ada"})
    await sandbox.run_due()
    [job] = await read(app, before + timedelta(days=1), sandbox.now() + timedelta(seconds=1))
    assert job.id == later.id
    assert await read(app, before + timedelta(days=1), job.finished_at) == []
    assert [
        each.id for each in await read(app, job.finished_at, sandbox.now() + timedelta(days=1))
    ] == [later.id]


async def test_filters(sandbox, app, ended):
    span = period(sandbox)
    assert [job.id for job in await read(app, *span, state="failed")] == ended[7:9]
    assert [job.id for job in await read(app, *span, task="hopeless")] == ended[7:9]
    assert [job.id for job in await read(app, *span, queue="other")] == ended[7:9]
    assert [job.id for job in await read(app, *span, state="cancelled")] == ended[9:]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"since": datetime(2026, 1, 1)}, "since"),
        ({"until": datetime(2026, 1, 1)}, "until"),
        ({"state": "running"}, "state"),
        ({"limit": 0}, "limit"),
    ],
)  # fmt: skip
async def test_what_is_refused_is_named(app, change, field):
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(ConfigError, match=field) as error:
        await app.history.page(**{"since": moment, "until": moment, **change})
    assert [*error.value.fields] == [field]


@pytest.mark.parametrize("name", ["jobs.jsonl", "jobs.jsonl.gz"])
async def test_json_lines(sandbox, app, ended, tmp_path: Path, name):
    count = await export_jobs(app.history.jobs(*period(sandbox)), tmp_path / name, "jsonl")
    opened = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "rt") as file:
        rows = [json.loads(line) for line in file]
    assert count == len(ended)
    assert [row["id"] for row in rows] == [str(id) for id in ended]
    assert rows[0]["payload"] == {"name": "0"}


async def test_parquet(sandbox, app, ended, tmp_path: Path, monkeypatch):
    from pyarrow import parquet

    monkeypatch.setattr("rota.files.exports._ROWS", 4)
    path = tmp_path / "jobs.parquet"
    await export_jobs(app.history.jobs(*period(sandbox)), path, "parquet")
    table = parquet.read_table(path)
    assert parquet.ParquetFile(path).num_row_groups == 3
    assert table.column("id").to_pylist() == [str(id) for id in ended]
    assert json.loads(table.column("payload").to_pylist()[0]) == {"name": "0"}
    [job] = await read(app, *period(sandbox), state="cancelled")
    assert table.column("finished_at").to_pylist()[-1] == job.finished_at
    assert json.loads(table.column("error").to_pylist()[7])["message"] == "no luck"


async def test_an_export_that_fails_leaves_no_file_and_the_one_that_was_there(app, tmp_path: Path):
    path = tmp_path / "jobs.jsonl"
    path.write_text("the export of yesterday")

    async def breaks():
        yield await app.jobs.get((await app.submit("greet", {"name": "Ada"})).id)
        raise ConnectionError("gone")

    with pytest.raises(ConfigError, match="can't write"):
        await export_jobs(breaks(), path, "jsonl")
    assert path.read_text() == "the export of yesterday"
    assert [each.name for each in tmp_path.iterdir()] == ["jobs.jsonl"]


async def test_a_folder_that_is_not_there_is_named(app, tmp_path: Path):
    with pytest.raises(ConfigError, match="no folder"):
        await export_jobs(
            app.history.jobs(*[datetime.now(UTC)] * 2), tmp_path / "no" / "jobs", "jsonl"
        )


async def test_only_jobs_of_the_namespace_are_exported(sandbox, app, ended):
    stranger = App(
        namespace="elsewhere", database_url=app.settings.database_url, schema=app.settings.schema
    )
    try:
        assert [job async for job in stranger.history.jobs(*period(sandbox))] == []
    finally:
        await stranger.close()
