"""The archive (scheduler/archive.py): nothing is dropped that is not in a file."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from pathlib import Path

import pytest

from rota import ConfigError, NotFound, Retry
from rota.scheduler.archive import Archive
from rota.scheduler.janitor import Janitor
from rota.scheduler.shards import AllShards
from rota.store.history import HistoryStore
from rota.store.work import UpkeepStore


@pytest.fixture
def app(sandbox):
    @sandbox.app.task
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    @sandbox.app.task(retry=Retry(max_attempts=1))
    async def hopeless() -> None:
        raise ValueError("no luck")

    return sandbox.app


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def janitor(hot, app, folder):
    settings = app.settings.replace(archive_dir=folder, retention_days=7, dead_letter_days=10)
    return Janitor(UpkeepStore(hot), settings, AllShards(128))


@pytest.fixture
async def greeted(sandbox, app, monkeypatch):
    monkeypatch.setattr("rota.store.history._PAGE", 2)
    ids = [str((await app.submit("greet", {"name": str(n)})).id) for n in range(5)]
    await sandbox.run_due()
    return ids


def read(path: Path) -> list[dict]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


async def test_a_day_is_in_its_file_before_it_is_dropped(sandbox, app, janitor, folder, greeted):
    name = f"past_{sandbox.now():%Y%m%d}.jsonl.gz"
    await janitor.clean()
    assert list(folder.iterdir()) == []
    await sandbox.advance(days=9)
    await janitor.clean()
    rows = read(folder / name)
    assert sorted(row["id"] for row in rows) == sorted(greeted)
    assert {row["task"] for row in rows} == {"greet"}
    assert rows[0]["result"] == f"Hello, {rows[0]['payload']['name']}!"
    with pytest.raises(NotFound):
        await app.jobs.get(greeted[0])


async def test_nothing_is_dropped_while_the_folder_cannot_be_written(
    sandbox, app, janitor, folder, greeted, monkeypatch, caplog
):
    failed = await app.submit("hopeless")
    await sandbox.run_due()
    await sandbox.advance(days=20)

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("rota.lib.row_files.tempfile.mkstemp", full)
        patched.setattr("rota.scheduler.archive.append_lines", full)
        await janitor.clean()
    assert "No space left on device" in caplog.text
    assert (await app.jobs.get(greeted[0])).state == "succeeded"
    assert (await app.jobs.get(failed.id)).state == "failed"
    await janitor.clean()  # put off
    assert (await app.jobs.get(greeted[0])).state == "succeeded"
    monkeypatch.setattr("rota.scheduler.archive._AGAIN", 0.0)
    janitor._archive._not_before = 0.0
    await janitor.clean()
    assert len(read(next(folder.glob("past_*")))) == 5
    with pytest.raises(NotFound):
        await app.jobs.get(failed.id)


async def test_dead_letters_are_appended_and_then_deleted(sandbox, app, janitor, folder):
    first = await app.submit("hopeless")
    await sandbox.run_due()
    await sandbox.advance(hours=1)
    second = await app.submit("hopeless")
    await sandbox.run_due()
    midnight = sandbox.now().replace(hour=0, minute=0, second=0, microsecond=0)
    await sandbox.travel_to(midnight + timedelta(days=12))
    await janitor.clean()
    [path] = folder.glob("dead_letters_*")
    assert {row["id"] for row in read(path)} == {str(first.id), str(second.id)}
    with pytest.raises(NotFound):
        await app.jobs.get(first.id)
    third = await app.submit("hopeless")
    await sandbox.run_due()
    await sandbox.advance(days=11)
    await janitor.clean()
    assert str(third.id) in {
        row["id"] for path in folder.glob("dead_letters_*") for row in read(path)
    }


async def test_a_row_that_comes_after_the_copy_keeps_its_day(sandbox, app, hot, folder, greeted):
    folder.mkdir()
    archive, store = Archive(HistoryStore(hot), folder), UpkeepStore(hot)
    day = f"past_{sandbox.now():%Y%m%d}"
    await sandbox.advance(days=9)
    copied = await archive.copy_days(7)
    assert copied == {day: 5}
    async with hot.connection() as connection:
        await connection.execute(
            f"insert into {hot.schema}.{day} select (jsonb_populate_record(p,"
            f" jsonb_build_object('id', gen_random_uuid()))).* from {hot.schema}.{day} as p limit 1"
        )
    assert day not in await store.drop_old_days(7, 90, 7, copied)
    assert day not in await store.drop_old_days(7, 90, 7, {})
    assert (await app.jobs.get(greeted[1])).state == "succeeded"
    assert day in await store.drop_old_days(7, 90, 7, await archive.copy_days(7))
    assert len(read(folder / f"{day}.jsonl.gz")) == 6


async def test_a_copy_of_a_day_that_another_janitor_empties_is_thrown_away(
    sandbox, app, hot, folder, greeted, monkeypatch
):
    folder.mkdir()
    store = HistoryStore(hot)
    day = f"past_{sandbox.now():%Y%m%d}"
    await sandbox.advance(days=9)
    pages = store.pages_of_day

    async def emptied(name):
        async for lines in pages(name):
            yield lines
            async with hot.connection() as connection:
                await connection.execute(f"truncate table {hot.schema}.{day}")

    monkeypatch.setattr(store, "pages_of_day", emptied)
    assert await Archive(store, folder).copy_days(7) == {}
    assert list(folder.iterdir()) == []


async def test_a_folder_that_cannot_be_made_is_refused_at_the_start(hot, app, tmp_path: Path):
    (tmp_path / "file").write_text("")
    settings = app.settings.replace(archive_dir=tmp_path / "file" / "archive")
    with pytest.raises(ConfigError, match="archive_dir"):
        Janitor(UpkeepStore(hot), settings, AllShards(128))
