"""Partitions of the history by the hour (`rota history partitions`), switched while jobs run."""

from __future__ import annotations

import asyncio
import gzip
import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rota import App, ConfigError
from rota.scheduler.janitor import Janitor
from rota.scheduler.shards import AllShards
from rota.store.work import UpkeepStore


@pytest.fixture
def app(sandbox):
    @sandbox.app.task
    async def greet(name: str = "ann") -> str:
        return f"Hello, {name}!"

    return sandbox.app


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def janitor(hot, app, folder):
    settings = app.settings.replace(archive_dir=folder, retention_days=7)
    return Janitor(UpkeepStore(hot), settings, AllShards(128))


def noon_after(now: datetime) -> datetime:
    return now.replace(hour=12, minute=30) + timedelta(days=1)


async def names(app: App) -> set[str]:
    return {one.name for one in await app.history.partitions()}


async def placed(app: App) -> list[str]:
    async with (await app.store()).database.connection() as connection:
        rows = await connection.fetch(
            f"select tableoid::regclass::text as name from {app.settings.schema}.past "
            "order by finished_at"
        )
    return [row["name"].split(".")[-1] for row in rows]


async def test_hours_begin_tomorrow_and_days_return(sandbox, app, janitor):
    await sandbox.travel_to(noon_after(sandbox.now()))
    await janitor.clean()
    today, tomorrow = (f"past_{sandbox.now() + timedelta(days=n):%Y%m%d}" for n in (0, 1))
    await app.history.partition_by("hour")
    await janitor.clean()
    now = await names(app)
    assert today in now
    assert tomorrow not in now
    assert {f"{tomorrow}_{hour:02}" for hour in range(24)} <= now
    for _ in range(4):
        await app.submit("greet")
        await sandbox.run_due()
        await sandbox.advance(hours=9)
        await janitor.clean()
    assert await placed(app) == [today, today, f"{tomorrow}_06", f"{tomorrow}_15"]
    await app.history.partition_by("day")
    await janitor.clean()
    later = f"past_{sandbox.now() + timedelta(days=1):%Y%m%d}"
    assert later in await names(app)
    assert f"{later}_05" not in await names(app)
    assert f"{tomorrow}_15" in await names(app)


async def test_hours_are_archived_and_dropped_one_by_one(sandbox, app, janitor, folder):
    await sandbox.travel_to(noon_after(sandbox.now()))
    await app.history.partition_by("hour")
    await janitor.clean()
    await sandbox.travel_to(sandbox.now().replace(hour=5) + timedelta(days=1))
    handle = await app.submit("greet")
    await sandbox.run_due()
    hour = f"past_{sandbox.now():%Y%m%d_%H}"
    assert await placed(app) == [hour]
    await sandbox.advance(days=7)
    await janitor.clean()
    assert hour in await names(app)
    await sandbox.advance(hours=1)
    await janitor.clean()
    assert hour not in await names(app)
    with gzip.open(folder / f"{hour}.jsonl.gz", "rt") as file:
        assert [json.loads(line)["id"] for line in file] == [str(handle.id)]


async def test_a_coming_day_that_has_jobs_stays(sandbox, app, janitor, hot):
    """Jobs that ended by a clock that was ahead."""
    await sandbox.travel_to(noon_after(sandbox.now()))
    await janitor.clean()
    await sandbox.travel_to(sandbox.now() + timedelta(days=2))
    await app.submit("greet")
    await sandbox.run_due()
    ahead = f"past_{sandbox.now():%Y%m%d}"
    async with hot.connection() as connection:
        await connection.execute(
            f"create or replace function {hot.schema}.now() returns timestamptz language sql stable as "
            f"$$ select '{sandbox.now() - timedelta(days=2)}'::timestamptz $$"
        )
    await app.history.partition_by("hour")
    await janitor.clean()
    assert ahead in await names(app)
    assert await placed(app) == [ahead]
    assert not any(name.startswith(f"{ahead}_") for name in await names(app))


async def test_a_long_reader_delays_the_switch_and_nothing_else(sandbox, app, janitor, hot):
    await sandbox.travel_to(noon_after(sandbox.now()))
    await janitor.clean()
    await app.history.partition_by("hour")
    tomorrow = f"past_{sandbox.now() + timedelta(days=1):%Y%m%d}"
    async with hot.connection() as reader, reader.transaction():
        await reader.fetch(f"select count(*) from {hot.schema}.past")
        cleaning = asyncio.create_task(janitor.clean())
        await app.submit("greet")
        assert len(await sandbox.run_due()) == 1
        await cleaning
        assert tomorrow in await names(app)
    await janitor.clean()
    assert tomorrow not in await names(app)


async def test_what_is_no_size_is_refused(app):
    with pytest.raises(ConfigError, match="day or hour"):
        await app.history.partition_by("week")  # type: ignore[arg-type]
