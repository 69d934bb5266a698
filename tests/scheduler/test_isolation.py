"""Schedules that can't be planned or written: they stop nobody, are seen, and come back."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import rota.testing
from rota import App, ConfigError, Context
from rota.core.time import zones
from rota.observe import Metrics
from rota.scheduler import firer as firer_module
from rota.scheduler.firer import Firer
from rota.scheduler.shards import AllShards
from rota.store.schedules import ScheduleStore
from tests.support.broken_schedules import add_broken
from tests.support.sandboxes import isolated

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def app(database_url: str) -> App:
    app = App(database_url=database_url, node_name="test")

    @app.task
    async def tell(ctx: Context, note: str = "") -> str:
        return note

    return app


@pytest.fixture
async def sandbox(app: App) -> AsyncIterator[rota.testing.Sandbox]:
    async with isolated(app, now=START) as sandbox:
        yield sandbox


def make_firer(hot: Any, name: str = "one", retry_after: float = 3600.0) -> Firer:
    firer = Firer(ScheduleStore(hot), AllShards(128))
    firer._retry_after = retry_after
    firer._node = name
    return firer


async def fire(firer: Firer) -> None:
    while await firer.tick() == 0.0:
        pass


async def ledger(app: App, name: str) -> list[tuple[str, str | None]]:
    rows = await app.schedules.occurrences(name, START, START + timedelta(days=30), 200_000)
    return [(row.state, row.reason) for row in rows]


async def test_ten_broken_schedules_stop_no_other(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    names = await add_broken(app)
    await app.schedule("zz-good", "tell", cron="* * * * * *")
    firer = make_firer(hot)
    for _ in range(5):
        await sandbox.advance(seconds=1)
        await fire(firer)
    assert await ledger(app, "zz-good") == [("fired", None)] * 5
    listed = {status.name: status for status in await app.schedules.list()}
    assert sorted(name for name, status in listed.items() if status.problem) == names
    assert all("set aside on one: " in (listed[name].problem or "") for name in names)
    events = await app.events.list(kind="set_aside")
    assert sorted(event.detail["schedule"] for event in events) == names
    text = (await Metrics(hot).render())[0].decode()
    assert 'rota_schedules_set_aside{namespace="default"} 10.0' in text


async def test_many_that_the_database_refuses_leave_the_rest_of_their_transaction_alone(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    for n in range(20):
        await app.schedule(f"s{n}", "tell", every="1m")
    async with hot.connection() as connection:
        await connection.execute(
            f"update {hot.schema}.schedule set headers = $1 where name in ('s3', 's4', 's17')",
            '{"tags": ["\\u0000"]}',
        )
    await sandbox.advance(minutes=1)
    firer = make_firer(hot)
    await fire(firer)
    fired = [n for n in range(20) if await ledger(app, f"s{n}")]
    assert fired == [n for n in range(20) if n not in (3, 4, 17)]
    async with hot.connection() as connection:
        await connection.execute(f"update {hot.schema}.schedule set headers = null")
    await fire(make_firer(hot))  # as after a restart: it is tried again
    assert await ledger(app, "s4") == [("fired", None)]


async def test_a_schedule_that_was_set_aside_comes_back_by_itself(
    app: App, sandbox: rota.testing.Sandbox, hot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.schedule("s", "tell", every="1m", tz="Asia/Tokyo")
    await sandbox.advance(minutes=1)
    old, new = make_firer(hot, "old-tzdata", retry_after=0.0), make_firer(hot, "new-tzdata")

    def no_tokyo(name: str) -> ZoneInfo:
        if name == "Asia/Tokyo":
            raise ConfigError("tz: 'Asia/Tokyo' is not an IANA time zone")
        return ZoneInfo(name)

    with monkeypatch.context() as patch:
        patch.setattr(zones, "zone", no_tokyo)
        patch.setattr("rota.core.time.schedule.zone", no_tokyo)
        await old.tick()
        assert await ledger(app, "s") == []
    status = await app.schedules.get("s")
    assert status.problem == "set aside on old-tzdata: tz: 'Asia/Tokyo' is not an IANA time zone"
    # Another node can plan it meanwhile.
    await fire(new)
    assert await ledger(app, "s") == [("fired", None)]
    # And the one that could not notices that it can.
    await sandbox.advance(minutes=1)
    await fire(old)
    assert await ledger(app, "s") == [("fired", None)] * 2
    assert (await app.schedules.get("s")).problem is None


async def test_a_schedule_that_was_set_aside_is_repaired_by_an_update(
    app: App, sandbox: rota.testing.Sandbox, hot: Any, caplog: pytest.LogCaptureFixture
) -> None:
    names = await add_broken(app, cron="0 * * * *")
    firer = make_firer(hot)
    await sandbox.advance(hours=2)
    await fire(firer)
    with caplog.at_level(logging.ERROR):
        for name in names:
            assert await app.schedule(name, "tell", cron="0 * * * *", tags=["new"]) == "updated"
    assert "what was due from" in caplog.text
    await sandbox.advance(hours=1)
    await fire(firer)
    for name in names:
        status = await app.schedules.get(name)
        assert (status.problem, status.spec and status.spec.tags) == (None, ("new",))
        assert (await ledger(app, name))[-1] == ("fired", None)
        audit = await app.schedules.audit(name, START, START + timedelta(days=1))
        assert audit.is_clean
        assert len(audit.unsettled) >= 1


async def test_what_waits_for_its_spread_as_the_row_is_spoilt_is_said_to_be_unknown(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    """It was due, and a run by hand came after it: what is known ends before it, not with that run."""
    firer = make_firer(hot)
    await app.schedule("s", "tell", every="1h", spread="50m")
    await sandbox.advance(hours=1, seconds=5)  # the spread of this name is more than that
    await fire(firer)
    assert await ledger(app, "s") == []
    await app.schedules.trigger("s")
    async with hot.connection() as connection:
        await connection.execute(
            f"update {hot.schema}.schedule set version = version + 1, next_due = {hot.schema}.now(),"
            """spec = (spec::jsonb || '{"tz": "Mars/Olympus"}')::json"""
        )
    await sandbox.advance(hours=1)
    await fire(firer)
    await app.schedule("s", "tell", every="1h", spread="50m")
    await sandbox.advance(hours=2)
    await fire(firer)
    audit = await app.schedules.audit("s", START, START + timedelta(days=1))
    due = START + timedelta(hours=1)
    assert audit.is_clean
    assert any(each.begin < due <= each.end for each in audit.unsettled), audit.unsettled
    assert [reason for _, reason in await ledger(app, "s")].count("triggered") == 1
    assert len(await ledger(app, "s")) > 1  # and it goes on


async def test_each_that_cannot_be_read_can_be_deleted_and_says_why_it_does_nothing_else(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    for name in await add_broken(app):
        status = await app.schedules.get(name)
        if status.spec is None:
            with pytest.raises(ConfigError, match=r"stored|IANA|century|jitter|far away"):
                await app.schedules.trigger(name)
        await app.schedules.delete(name)
    assert await app.schedules.list() == []


async def test_a_spec_is_checked_before_it_is_stored(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    bad: list[tuple[str, dict[str, Any]]] = [
        ("catch_up.within", {"catch_up": rota.All(within=1e11)}),
        ("catch_up.within", {"catch_up": rota.Latest(within=4e9)}),
        ("max_running", {"max_running": 10**10}),
        ("max_queued", {"max_queued": 2**31}),
        ("jitter", {"jitter": 1e9}),
        ("spread", {"spread": 1e9}),
        ("tags", {"tags": ["a\0b"]}),
        ("description", {"description": "\ud800"}),
        ("options", {"options": {"tags": ["\0"]}}),
        ("NUL", {"payload": {"note": "\0"}}),
    ]
    for field, settings in bad:
        for task in ("tell", "elsewhere"):
            with pytest.raises((ConfigError, rota.InvalidArguments), match=field):
                await app.schedule("s", task, cron="* * * * *", **settings)
    assert await app.schedules.list() == []


async def test_a_firer_remembers_only_so_many_compiled_schedules(
    app: App, sandbox: rota.testing.Sandbox, hot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firer_module, "_REMEMBERED", 3)
    for n in range(6):
        await app.schedule(f"s{n}", "tell", every="1m")
    firer = make_firer(hot)
    for minute in (1, 2):
        await sandbox.travel_to(START + timedelta(minutes=minute))
        await fire(firer)
    assert len(firer._compiled) == 3
    assert [len(await ledger(app, f"s{n}")) for n in range(6)] == [2] * 6
