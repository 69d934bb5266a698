"""Updates and deletions of schedules: what was due is accounted for, whatever happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

import rota.operations.settling
import rota.testing
from proof.waiting import eventually
from rota import All, App, Context, Latest
from rota.core.time.schedule import make_spec
from rota.errors import NotFound, StoreUnavailable
from rota.lib import failpoints
from rota.operations.deleting import finish_deletions
from rota.scheduler.firer import Firer
from rota.scheduler.janitor import Janitor
from rota.scheduler.shards import AllShards
from rota.server.dashboard.schedules import to_cells
from rota.store.schedules import ScheduleStore
from rota.store.work import NIL, LaneClaim, UpkeepStore, WorkStore
from tests.support.sandboxes import isolated

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def seen() -> list[Any]:
    return []


@pytest.fixture
def app(database_url: str, seen: list[Any]) -> App:
    app = App(database_url=database_url, node_name="test")

    @app.task
    async def tell(ctx: Context, note: str = "") -> str:
        seen.append((ctx.occurrence, note))
        return note

    return app


@pytest.fixture
async def sandbox(app: App) -> AsyncIterator[rota.testing.Sandbox]:
    async with isolated(app, now=START) as sandbox:
        yield sandbox


async def ledger(app: App, name: str) -> list[tuple[str, str | None]]:
    rows = await app.schedules.occurrences(name, START, START + timedelta(days=30), 200_000)
    return [(row.state, row.reason) for row in rows]


async def assert_clean(app: App, name: str) -> None:
    audit = await app.schedules.audit(name, START - timedelta(days=2), START + timedelta(days=400))
    assert (audit.missing, audit.extra, audit.unsettled) == ([], [], [])


async def fire(hot: Any) -> None:
    firer = Firer(ScheduleStore(hot), AllShards(128))
    while await firer.tick() == 0.0:
        pass


# -- updates


@pytest.mark.parametrize(("catch_up", "runs"), [(All(), 6), (Latest(), 1), (All(within="3h"), 3)])
async def test_a_pause_with_catch_up_survives_updates(
    app: App, sandbox: rota.testing.Sandbox, seen: list[Any], catch_up: Any, runs: int
) -> None:
    await app.schedule("s", "tell", cron="30 * * * *", overlap="allow", catch_up=catch_up)
    await app.schedules.pause("s")
    await sandbox.advance(hours=3)
    await app.schedule(
        "s", "tell", cron="45 * * * *", overlap="allow", catch_up=catch_up, payload={"note": "new"}
    )
    await sandbox.run_due()
    await sandbox.advance(hours=3)
    await app.schedule(
        "s",
        "tell",
        cron="15 * * * *",
        overlap="allow",
        catch_up=catch_up,
        payload={"note": "newer"},
    )
    assert await sandbox.run_due() == []
    await app.schedules.resume("s")
    ended: list[Any] = []
    while done := await sandbox.run_due():
        ended += done
    assert len(ended) == runs
    minutes = [occurrence.due_at.minute for occurrence, _ in seen]
    assert minutes == ([30] * 3 + [45] * 3)[-runs:]  # each by the rule of its time
    assert {note for _, note in seen} == {"newer"}
    assert len(await ledger(app, "s")) == 6
    await assert_clean(app, "s")
    await sandbox.advance(minutes=15)
    assert len(await sandbox.run_due()) == 1  # by the newest rule
    await assert_clean(app, "s")


async def test_an_update_that_ends_a_pause_catches_up(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    await app.schedule("s", "tell", every="1h", overlap="allow", catch_up=All(), paused=True)
    await sandbox.advance(hours=3, minutes=1)
    await app.schedule("s", "tell", every="1d", overlap="allow", catch_up=All())
    assert len(await sandbox.run_due()) == 3
    await assert_clean(app, "s")


async def test_an_occurrence_that_waits_for_its_spread_survives_an_update(
    app: App, sandbox: rota.testing.Sandbox, seen: list[Any]
) -> None:
    await app.schedule("s", "tell", cron="0 * * * *", spread="50m", payload={"note": "old"})
    offset = (await app.schedules.preview((await app.schedules.get("s")).spec, 1)).occurrences[0]
    assert offset.due_at - offset.nominal > timedelta(minutes=2)
    await sandbox.advance(hours=1, minutes=1)
    assert await sandbox.run_due() == []
    await app.schedule("s", "tell", cron="0 0 * * *", payload={"note": "new"})
    assert await sandbox.run_due() == []  # not before its time
    await sandbox.travel_to(offset.due_at)
    assert len(await sandbox.run_due()) == 1
    assert [(o.due_at, note) for o, note in seen] == [(offset.nominal, "old")]
    await assert_clean(app, "s")


async def test_an_update_after_a_very_long_outage_loses_nothing(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    await app.schedule("s", "tell", every=1)
    await sandbox.advance(seconds=101_000)
    await app.schedule("s", "tell", every=60)
    assert await app.schedule("s", "tell", every=30) == "updated"
    await fire(hot)
    counts = Counter(await ledger(app, "s"))
    assert sum(counts.values()) == 101_000
    await assert_clean(app, "s")
    status = await app.schedules.get("s")
    assert status.next_due is not None
    assert status.next_due > sandbox.now()


async def test_an_occurrence_with_a_short_jitter_does_not_wait_for_one_with_a_longer(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    await app.schedule("s", "tell", cron="* * * * *", jitter="1h", overlap="allow")
    for _ in range(10):
        await sandbox.advance(minutes=1)
        await fire(hot)
    assert await ledger(app, "s") == [("fired", None)] * 10


# -- deletions


async def claim_and_begin(hot: Any) -> list[str]:
    store, node = WorkStore(hot), uuid4()
    rows = await store.claim(node, [LaneClaim("default/default", 10)], ["tell"])
    ids, tokens = [row["id"] for row in rows], [row["token"] for row in rows]
    return list((await store.begin_scheduled(node, ids, tokens)).values())


async def test_deleting_a_schedule_decides_what_waits_for_its_turn(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    await app.schedule("s", "tell", every="1m", overlap="queue", max_queued=5)
    verdicts: list[str] = []
    for _ in range(3):
        await sandbox.advance(minutes=1)
        await fire(hot)
        verdicts += await claim_and_begin(hot)
    assert verdicts == ["start", "wait", "wait"]
    await app.schedules.backfill("s", START - timedelta(hours=1), START)
    await app.schedules.delete("s")
    states = Counter(job.state for job in await app.jobs.list(limit=100))
    assert states == {"running": 1, "skipped": 2 + 60}
    (one, *_) = await app.jobs.list(state="skipped")
    assert "the schedule was deleted" in (await app.jobs.explain(one.id)).sentence
    async with hot.connection() as connection:
        for table in ("gate", "schedule"):
            assert await connection.fetchval(f"select count(*) from {hot.schema}.{table}") == 0


async def test_what_was_due_when_its_schedule_is_deleted_has_a_row(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    await app.schedule("s", "tell", every="1h", catch_up=All())
    await app.schedules.pause("s")
    await sandbox.advance(hours=3)
    id = (await app.schedules.get("s")).id
    await app.schedules.delete("s")
    rows = await ScheduleStore(hot).ledger(id, START, START + timedelta(days=1))
    assert [row["reason"] for row in rows] == ["deleted"] * 3
    assert await sandbox.run_due() == []


async def test_however_much_was_due_when_its_schedule_is_deleted_all_of_it_has_a_row(
    app: App, sandbox: rota.testing.Sandbox, hot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rota.operations.settling, "_MANY", 4)
    monkeypatch.setattr(rota.operations.settling, "BATCH", 2)
    await app.schedule("s", "tell", every="1h", catch_up=All())
    await app.schedules.pause("s")
    await sandbox.advance(hours=5)
    await app.schedule("s", "tell", every="2h", catch_up=All())
    await sandbox.advance(hours=6)
    id = (await app.schedules.get("s")).id
    await app.schedules.delete("s")

    async def hours() -> list[float]:
        rows = await ScheduleStore(hot).ledger(id, START, START + timedelta(days=1))
        assert {row["reason"] for row in rows} == {"deleted"}
        return [(row["due_at"] - START) / timedelta(hours=1) for row in rows]

    # It is gone for everybody; what the transaction had no room for is left to the janitor.
    assert [each.name for each in await app.schedules.list()] == []
    with pytest.raises(NotFound):
        await app.schedules.get("s")
    assert await hours() == [1, 2, 3, 4]
    await app.schedule("s", "tell", every="1d")  # the name is free
    # One that dies before its step is committed has done nothing.
    dying = failpoints.armed_with("finish_deletions:before_commit=error")
    with pytest.raises(StoreUnavailable), dying:
        await finish_deletions(ScheduleStore(hot))
    assert await hours() == [1, 2, 3, 4]
    assert await sandbox.run_due() == []  # nothing of it runs meanwhile
    steps = [await finish_deletions(ScheduleStore(hot)) for _ in range(3)]
    assert steps == [True, False, False]
    assert await hours() == [1, 2, 3, 4, 5, 6, 8, 10]
    async with hot.connection() as connection:
        names = await connection.fetch(f"select name from {hot.schema}.schedule")
    assert [name for (name,) in names] == ["s"]


async def test_jobs_of_a_deleted_schedule_are_skipped_in_steps_and_none_starts_meanwhile(
    app: App, sandbox: rota.testing.Sandbox, hot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rota.operations.settling, "_MANY", 10)
    await app.schedule("s", "tell", every="1m", overlap="queue", max_queued=5)
    await sandbox.advance(minutes=1)
    await fire(hot)
    assert await claim_and_begin(hot) == ["start"]
    assert (await app.schedules.backfill("s", START - timedelta(minutes=25), START)).count == 25
    await app.schedules.delete("s")
    await app.schedule("s", "tell", every="1m")
    await app.schedules.delete("s")  # another of that name: it leaves the first one's lines alone
    skipped = []
    while True:
        await fire(hot)  # lets nothing through
        assert await claim_and_begin(hot) == []
        states = Counter(job.state for job in await app.jobs.list(limit=100))
        skipped.append(states["skipped"])
        if not await finish_deletions(ScheduleStore(hot)):
            break
    assert skipped == [10, 20]
    states = Counter(job.state for job in await app.jobs.list(limit=100))
    assert states == {"running": 1, "skipped": 25}
    async with hot.connection() as connection:
        for table in ("gate", "schedule"):
            assert await connection.fetchval(f"select count(*) from {hot.schema}.{table}") == 0


async def test_a_job_that_was_to_come_doesn_t_start_while_its_schedule_is_being_deleted(
    app: App, sandbox: rota.testing.Sandbox, hot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.schedule("s", "tell", every="1h", spread="30m")
    await sandbox.advance(hours=1)
    await app.schedule("s", "tell", every="2h", spread="30m")  # decides what waits for its spread
    monkeypatch.setattr(rota.operations.settling, "_MANY", 0)
    await app.schedules.delete("s")
    await sandbox.advance(hours=1)
    async with hot.connection() as connection:
        await connection.execute(hot.queries["release"], list(range(128)), [None] * 128, 100)
    assert await claim_and_begin(hot) == ["skip"]
    [job] = await app.jobs.list()
    assert job.state == "skipped"
    assert "the schedule was deleted" in (await app.jobs.explain(job.id)).sentence


async def test_a_deletion_says_nothing_of_a_version_that_cannot_be_read(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    await app.schedule("s", "tell", every="1h", catch_up=All())
    await app.schedules.pause("s")
    await sandbox.advance(hours=5)
    await app.schedule("s", "tell", every="2h", catch_up=All())
    await sandbox.advance(hours=6)
    id = (await app.schedules.get("s")).id
    async with hot.connection() as connection:
        await connection.execute(
            f"update {hot.schema}.schedule_version set spec = '{{}}' where version = 1"
        )
    await app.schedules.delete("s")
    rows = await ScheduleStore(hot).ledger(id, START, START + timedelta(days=1))
    # What the second version would have said of the time before it is nobody's occurrence.
    assert [(row["due_at"] - START) / timedelta(hours=1) for row in rows] == [6, 8, 10]


# -- beside them


async def test_a_free_place_is_found_behind_any_number_of_schedules_without_one(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    await app.schedule("s", "tell", every="1h", overlap="queue")
    job = (
        "id, due_at, schedule_id, shard, state, attempt, priority, guarantee, max_attempts, namespace, "
        "lane, task, payload"
    )
    rest = "0, 1, 5, 'default', 'default/default', 'tell', '{}'"
    async with hot.connection() as connection:
        await connection.execute(f"set search_path = {hot.schema}")
        await connection.execute(
            "insert into schedule (id, namespace, name, shard, cursor, overlap, max_queued, priority,"
            " guarantee, max_attempts, lane, task, payload, spec)"
            " select gen_random_uuid(), namespace, 'n' || n, 0, cursor, 3, 9, 0, 1, 5, lane, task,"
            " payload, spec from schedule, generate_series(1, 600) as n"
        )
        await connection.execute(
            f"insert into future ({job}) select gen_random_uuid(), now(), id, 0, 1, 0, {rest}"
            " from schedule where name like 'n%'"
        )
        # All but one of them have their place taken by a job that waits for a retry.
        await connection.execute(
            f"insert into future ({job}) select id, now() + interval '1h', id, 0, 2, 1, {rest}"
            " from schedule where name like 'n%' order by id limit 599"
        )
        await connection.execute(
            "insert into gate (schedule_id, job_id) select schedule_id, id from future where state = 2"
        )
    # One statement looks at 250 of the 600: the next one goes on after them.
    promoted, after, looks = 0, NIL, 0
    while looks == 0 or after != NIL:
        count, after = await ScheduleStore(hot).promote_waiting(500, after, 250)
        promoted, looks = promoted + count, looks + 1
    assert (promoted, looks) == (1, 3)


async def test_a_triggered_run_is_told_the_local_time_of_its_schedule(
    app: App, sandbox: rota.testing.Sandbox, seen: list[Any]
) -> None:
    await app.schedule("s", "tell", cron="0 0 * * *", tz="Asia/Tokyo")
    await app.schedules.trigger("s")
    await sandbox.run_due()
    assert [occurrence.local for occurrence, _ in seen] == [datetime(2026, 3, 1, 21, 0)]


async def test_fired_jobs_are_put_where_submitted_ones_would_be(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    """What is due beyond the horizon waits in the future, with the setting's horizon."""
    await app.schedule("s", "tell", every="1m", jitter="30s")
    async with hot.connection() as connection:
        await connection.execute(
            f"update {hot.schema}.setting set value = 60000 where name = 'horizon_ms'"
        )
        await sandbox.advance(minutes=1)
        await fire(hot)
        placed = await connection.fetchval(f"select count(*) from {hot.schema}.present")
    assert placed == 1  # though it is due only some seconds later


async def test_the_dashboard_has_words_for_every_reason_of_the_planner(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    await app.schedule("s", "tell", every="1h")
    await sandbox.advance(hours=3, minutes=30)
    await sandbox.run_due()
    rows = await app.schedules.occurrences("s", START, START + timedelta(days=1))
    assert {row.reason for row in rows} == {"catch_up"}
    store = ScheduleStore((await app.store()).database)
    cells = to_cells(
        await store.occurrences(
            (await app.schedules.get("s")).id, START, START + timedelta(days=1), 10
        )
    )
    assert all("it was missed" in cell.why for cell in cells)


async def test_a_backfill_from_before_the_ledger_is_refused(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    await app.schedule("s", "tell", cron="0 0 * * *", overlap="allow")
    long_ago, end = START - timedelta(days=12), START - timedelta(days=9)
    assert (await app.schedules.backfill("s", long_ago, end)).count == 3
    assert len(await sandbox.run_due()) == 3
    settings = app.settings.replace(ledger_days=10)
    await Janitor(UpkeepStore(hot), settings, AllShards(1)).clean()
    for dry_run in (True, False):
        with pytest.raises(rota.InvalidArguments, match=r"before 2026-02-20"):
            await app.schedules.backfill("s", long_ago, end, dry_run=dry_run)
    assert (await app.schedules.backfill("s", datetime(2026, 2, 20, tzinfo=UTC), end)).count == 0
    assert await sandbox.run_due() == []


async def test_who_changes_and_deletes_schedules_locks_them_in_one_order(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    """Else two who change what the other deletes would wait for each other."""
    for name in ("a", "b"):
        await app.schedule(name, "tell", every="1h")
    changed = make_spec("b", "tell", every="2h")
    lock = f"select from {hot.schema}.schedule where name = $1 for update nowait"
    async with hot.connection() as other:
        holding = other.transaction()
        await holding.start()
        await other.execute(lock, "a")
        changing = asyncio.create_task(app.schedules.put_all([changed], delete=["a"]))
        waits = (
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
            " and pg_backend_pid() = any(pg_blocking_pids(pid))"
        )
        await eventually(lambda: other.fetchval(waits), what="the wait for a")
        await other.execute(lock, "b")  # whoever waits for the first one holds no other
        await holding.rollback()
    await changing
    assert [each.name for each in await app.schedules.list()] == ["b"]


async def test_changes_need_no_second_connection_while_they_hold_a_lock(make_app):
    """Eight racing changes could take all eight connections: seven wait for the lock of the eighth."""
    app = make_app(pool_size=2, connect_timeout=1.0)
    await app.schedule("nightly", "greet", cron="0 3 * * *")
    async with (await app.store()).database.connection():  # one of two is taken
        await app.schedule("nightly", "greet", cron="0 4 * * *")
        await app.schedules.trigger("nightly")
        await app.schedules.delete("nightly")
    assert await app.schedules.list() == []
