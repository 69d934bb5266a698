"""Schedules on a real database, with time that the test moves: every occurrence is accounted for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

import rota.testing
from rota import All, App, ConfigError, Context, Latest, NotFound
from rota.scheduler.firer import Firer
from rota.scheduler.shards import AllShards
from rota.store.schedules import ScheduleStore
from rota.store.work import LaneClaim, Succeeded, WorkStore
from tests.support.sandboxes import isolated

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def app(database_url: str) -> App:
    app = App(database_url=database_url, node_name="test")
    app_seen: list[Any] = []
    app.seen = app_seen  # type: ignore[attr-defined]

    @app.task
    async def tell(ctx: Context, note: str = "") -> str:
        app_seen.append(ctx.occurrence)
        return note

    return app


@pytest.fixture
async def sandbox(app: App) -> AsyncIterator[rota.testing.Sandbox]:
    async with isolated(app, now=START) as sandbox:
        yield sandbox


async def ledger(app: App, name: str, hours: float = 48) -> list[tuple[str, str | None]]:
    rows = await app.schedules.occurrences(name, START, START + timedelta(hours=hours), 100_000)
    return [(row.state, row.reason) for row in rows]


async def run_through(sandbox: rota.testing.Sandbox, steps: int, **step: float) -> int:
    """How many jobs ended while time moved in steps."""
    ended = 0
    for _ in range(steps):
        await sandbox.advance(**step)
        ended += len(await sandbox.run_due())
    return ended


async def is_clean(app: App, name: str) -> bool:
    audit = await app.schedules.audit(name, START - timedelta(days=2), START + timedelta(days=400))
    return audit.is_clean


async def test_a_schedule_fires_once_per_occurrence_and_tells_its_handler_which(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    assert (
        await app.schedule("hourly", "tell", cron="0 * * * *", payload={"note": "x"}) == "created"
    )
    assert await run_through(sandbox, 5, hours=1) == 5
    assert [o.due_at.hour for o in app.seen] == [13, 14, 15, 16, 17]  # type: ignore[attr-defined]
    assert [o.previous and o.previous.hour for o in app.seen] == [None, 13, 14, 15, 16]  # type: ignore[attr-defined]
    assert await ledger(app, "hourly") == [("fired", None)] * 5
    assert await is_clean(app, "hourly")


async def test_the_same_schedule_again_changes_nothing_and_another_one_is_a_new_version(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    await app.schedule("s", "tell", every="1h")
    assert await app.schedule("s", "tell", every="1h") == "unchanged"
    await run_through(sandbox, 2, hours=1)
    assert await app.schedule("s", "tell", every="30m") == "updated"
    status = await app.schedules.get("s")
    assert (status.version, status.in_words) == (2, "every 30m")
    assert await run_through(sandbox, 4, minutes=30) == 4
    assert await ledger(app, "s") == [("fired", None)] * 6
    assert await is_clean(app, "s")


async def test_an_update_leaves_what_was_due_before_it_to_the_old_version(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    await app.schedule("s", "tell", every="10m", catch_up=All())
    await sandbox.advance(hours=1)  # nobody fires meanwhile
    await app.schedule("s", "tell", every="1h", catch_up=All())
    assert len(await sandbox.run_due()) == 6
    assert await run_through(sandbox, 1, hours=1) == 1
    assert await is_clean(app, "s")


@pytest.mark.parametrize(
    ("catch_up", "fired"),
    [
        (None, 1),  # the newest is not missed: it is due right now
        (Latest(), 2),
        (Latest(within="30m"), 1),  # the newest missed one is an hour old
        (All(), 24),
        (All(within="6h"), 7),
    ],
)
async def test_after_a_day_of_outage_the_catch_up_policy_decides_exactly(
    app: App, sandbox: rota.testing.Sandbox, catch_up: Any, fired: int
) -> None:
    settings = {} if catch_up is None else {"catch_up": catch_up}
    await app.schedule("s", "tell", cron="0 * * * *", overlap="allow", **settings)
    await run_through(sandbox, 1, hours=1)
    await sandbox.advance(hours=24)
    ended = await sandbox.run_due()
    assert len(ended) == fired
    counts = Counter(await ledger(app, "s"))
    assert sum(counts.values()) == 25
    assert counts[("fired", None)] == fired + 1
    assert counts[("skipped", "catch_up")] == 24 - fired
    assert await is_clean(app, "s")


async def test_a_schedule_of_every_second_after_a_day_away_is_worked_off_in_bounded_steps(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    await app.schedule("s", "tell", every=1)
    await sandbox.advance(hours=3)
    store = ScheduleStore(hot)
    firer = Firer(store, AllShards(128))
    assert await firer.tick() == 0.0  # there is more
    assert len(await ledger(app, "s")) == 200
    while await firer.tick() == 0.0:
        pass
    counts = Counter(await ledger(app, "s"))
    assert sum(counts.values()) == 3 * 3600
    assert counts[("skipped", "catch_up")] == 3 * 3600 - 11
    assert await is_clean(app, "s")


@pytest.fixture
async def hot(sandbox: rota.testing.Sandbox) -> AsyncIterator[Any]:
    from rota.store.database import Database

    settings = sandbox.app.settings
    database = Database(settings.database_url or "", settings, hot=True)
    await database.open()
    yield database
    await database.close()


async def test_racing_firers_make_one_job_per_occurrence(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    for number in range(20):
        await app.schedule(f"s{number}", "tell", every="1m", overlap="allow", catch_up=All())
    firers = [Firer(ScheduleStore(hot), AllShards(128)) for _ in range(4)]
    for _ in range(5):
        await sandbox.advance(minutes=1)
        await asyncio.gather(*(firer.tick() for firer in firers))
    for firer in firers:
        await firer.tick()
    jobs = await app.jobs.list(limit=1000)
    assert len(jobs) == 100
    for number in range(20):
        assert await ledger(app, f"s{number}") == [("fired", None)] * 5
        assert await is_clean(app, f"s{number}")


async def test_a_crash_in_the_middle_of_firing_leaves_nothing_and_doubles_nothing(
    app: App, sandbox: rota.testing.Sandbox, hot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.schedule("s", "tell", every="1m")
    await sandbox.advance(minutes=1)
    real = ScheduleStore.fire

    async def crash_after_writing(self: Any, *arguments: Any) -> None:
        await real(self, *arguments)
        raise ConnectionError("died before the commit")

    firer = Firer(ScheduleStore(hot), AllShards(128))
    with monkeypatch.context() as patched:
        patched.setattr(ScheduleStore, "fire", crash_after_writing)
        with pytest.raises(Exception, match="died"):
            await firer.tick()
    assert await ledger(app, "s") == []
    await firer.tick()
    assert await ledger(app, "s") == [("fired", None)]
    assert len(await app.jobs.list()) == 1


async def test_pausing_skips_or_holds_by_the_catch_up_policy(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    await app.schedule("none", "tell", every="1h")
    await app.schedule("all", "tell", every="1h", catch_up=All(), overlap="allow")
    for name in ("none", "all"):
        await app.schedules.pause(name)
    assert await run_through(sandbox, 3, hours=1) == 0
    assert await ledger(app, "none") == [("skipped", "paused")] * 3
    assert await ledger(app, "all") == []
    for name in ("none", "all"):
        await app.schedules.resume(name)
    assert len(await sandbox.run_due()) == 3
    assert await ledger(app, "all") == [("fired", None)] * 3
    assert await is_clean(app, "none")
    assert await is_clean(app, "all")


async def test_a_pause_until_a_moment_ends_by_itself(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    await app.schedule("s", "tell", every="1h")
    await app.schedules.pause("s", until=START + timedelta(minutes=90))
    assert await run_through(sandbox, 3, hours=1) == 2


# -- overlap: a job that runs for three periods, claimed by hand and never finished


async def hold_next(hot: Any, namespace: str = "default") -> tuple[Any, dict[Any, str]]:
    """Claims what is ready as a worker would, and asks whether it may start."""
    store, node = WorkStore(hot), uuid4()
    rows = await store.claim(node, [LaneClaim(f"{namespace}/default", 10)], ["tell"])
    ids, tokens = [row["id"] for row in rows], [row["token"] for row in rows]
    return rows, await store.begin_scheduled(node, ids, tokens)


async def fire(hot: Any) -> None:
    firer = Firer(ScheduleStore(hot), AllShards(128))
    while await firer.tick() == 0.0:
        pass


OVERLAPS: dict[str, dict[str, Any]] = {
    "allowed": {"overlap": "allow"},
    "two": {"overlap": "allow", "max_running": 2},
    "skipping": {"overlap": "skip"},
    "skipping-two": {"overlap": "skip", "max_running": 2},
    "queued": {"overlap": "queue", "max_queued": 1},
    "queued-two": {"overlap": "queue", "max_running": 2, "max_queued": 2, "drop": "oldest"},
    "killing": {"overlap": "kill"},
}


async def test_jobs_that_begin_together_are_told_what_they_would_be_told_one_after_the_other(
    app: App, sandbox: Any, hot: Any
) -> None:
    """Several of each schedule, beside those that run, wait and have ended."""
    for name, overlap in OVERLAPS.items():
        for how in ("together", "apart"):
            options = {"overlap": overlap["overlap"], **overlap}
            await app.schedule(f"{name}-{how}", "tell", every="1m", catch_up=All(), **options)
    store, node = WorkStore(hot), uuid4()
    names = {schedule.id: schedule.name for schedule in await app.schedules.list()}
    told: dict[str, list[str]] = {name: [] for name in names.values()}
    for late in (1, 3, 2):
        await sandbox.advance(minutes=late)
        await fire(hot)
        rows = await store.claim(node, [LaneClaim("default/default", 1_000)], ["tell"])
        calls: list[list[Any]] = [[]]
        for row in rows:
            if names[row["schedule_id"]].endswith("together"):
                calls[0].append(row)
            else:
                calls.append([row])
        verdicts: dict[Any, str] = {}
        for call in calls:
            asked = [row["id"] for row in call], [row["token"] for row in call]
            verdicts.update(await store.begin_scheduled(node, *asked))
        for row in rows:
            told[names[row["schedule_id"]]].append(verdicts.get(row["id"], "no answer"))
        # The first that has started ends, so that there is a place for what comes next.
        first = {
            row["schedule_id"]: row for row in reversed(rows) if verdicts.get(row["id"]) == "start"
        }
        ended = [Succeeded(row["id"], row["token"], 0.0, 0.0) for row in first.values()]
        await store.finish_succeeded(node, ended, 0.0)
    for name in OVERLAPS:
        assert told[f"{name}-together"] == told[f"{name}-apart"], name
        assert await ledger(app, f"{name}-together") == await ledger(app, f"{name}-apart"), name
    assert told["allowed-apart"] == ["start"] * 6
    assert "skip" in told["skipping-together"]
    assert "wait" in told["queued-together"]


async def periods(sandbox: Any, hot: Any, count: int) -> list[str]:
    """The verdicts on the jobs of so many periods, none of which ever ends."""
    verdicts: list[str] = []
    for _ in range(count):
        await sandbox.advance(minutes=1)
        await fire(hot)
        verdicts += (await hold_next(hot))[1].values()
    return verdicts


async def test_overlap_skip(app: App, sandbox: Any, hot: Any) -> None:
    await app.schedule("s", "tell", every="1m", overlap="skip")
    assert await periods(sandbox, hot, 4) == ["start", "skip", "skip", "skip"]
    assert await ledger(app, "s") == [("fired", None)] + [("skipped", "overlap")] * 3
    states = Counter(job.state for job in await app.jobs.list())
    assert states == {"running": 1, "skipped": 3}


async def test_overlap_allow_and_allow_at_most(app: App, sandbox: Any, hot: Any) -> None:
    await app.schedule("s", "tell", every="1m", overlap="allow")
    assert await periods(sandbox, hot, 4) == ["start"] * 4
    await app.schedule("s", "tell", every="1m", overlap="allow", max_running=6)
    # The four that run were let in without being counted; six more may enter.
    assert await periods(sandbox, hot, 8) == ["start"] * 6 + ["skip"] * 2


@pytest.mark.parametrize(
    ("drop", "kept"), [("newest", [2, 3]), ("oldest", [4, 5])]
)  # minutes, of those that wait
async def test_overlap_queue_is_bounded(
    app: App, sandbox: Any, hot: Any, drop: str, kept: list[int]
) -> None:
    await app.schedule("s", "tell", every="1m", overlap="queue", max_queued=2, drop=drop)
    verdicts = await periods(sandbox, hot, 5)
    assert verdicts[:3] == ["start", "wait", "wait"]
    waiting = await app.jobs.list(state="waiting")
    assert sorted(job.due_at.minute for job in waiting) == kept
    assert Counter(await ledger(app, "s")) == {
        ("fired", None): 3, ("skipped", "overlap_queue_full"): 2,
    }  # fmt: skip


async def test_what_waits_starts_when_the_one_before_it_has_ended(
    app: App, sandbox: Any, hot: Any
) -> None:
    await app.schedule("s", "tell", every="1m", overlap="queue", max_queued=5)
    store, node = WorkStore(hot), uuid4()
    await sandbox.advance(minutes=1)
    await fire(hot)
    (row,) = await store.claim(node, [LaneClaim("default/default", 1)], ["tell"])
    assert await store.begin_scheduled(node, [row["id"]], [row["token"]]) == {row["id"]: "start"}
    await sandbox.advance(minutes=1)
    assert await sandbox.run_due() == []  # the second waits
    assert [job.state for job in await app.jobs.list()] == ["waiting", "running"]
    await store.finish_succeeded(node, [Succeeded(row["id"], row["token"], 0.0, 0.0)], 0.0)
    assert [job.state for job in await sandbox.run_due()] == ["succeeded"]
    assert await ledger(app, "s") == [("fired", None)] * 2


async def test_a_newer_job_lets_the_one_that_waits_go_first(
    app: App, sandbox: Any, hot: Any
) -> None:
    """As when the workers are late: there is always a newer one that is ready."""
    await app.schedule("s", "tell", every="1m", overlap="queue", max_queued=5)
    order: list[int] = []
    running: list[tuple[Any, Any]] = []
    node, store = uuid4(), WorkStore(hot)

    async def begin() -> None:
        rows = await store.claim(node, [LaneClaim("default/default", 1)], ["tell"])
        asked = [row["id"] for row in rows], [row["token"] for row in rows]
        verdicts = await store.begin_scheduled(node, *asked)
        for row in rows:
            if verdicts[row["id"]] == "start":
                order.append((await app.jobs.get(row["id"])).due_at.minute)
                running.append((row["id"], row["token"]))

    async def end() -> None:
        done = [Succeeded(id, token, 0.0, 0.0) for id, token in running]
        await store.finish_succeeded(node, done, 0.0)
        running.clear()

    for _ in range(2):
        await sandbox.advance(minutes=1)
        await fire(hot)
        await begin()  # the second waits
    for _ in range(4):
        await sandbox.advance(minutes=1)
        await fire(hot)
        await end()
        # Before anybody looks whether a place is free, the newer one begins.
        await begin()
        await begin()
    assert order == sorted(order)
    assert order[:3] == [1, 2, 3]


async def test_what_waits_is_let_through_though_a_newer_one_is_ready(
    app: App, sandbox: Any, hot: Any
) -> None:
    await app.schedule("s", "tell", every="1m", overlap="queue", max_queued=5)
    await sandbox.advance(minutes=1)
    await fire(hot)
    store, node = WorkStore(hot), uuid4()
    [first] = await store.claim(node, [LaneClaim("default/default", 1)], ["tell"])
    await store.begin_scheduled(node, [first["id"]], [first["token"]])
    await sandbox.advance(minutes=1)
    await fire(hot)
    await hold_next(hot)  # it waits
    await sandbox.advance(minutes=1)
    await fire(hot)  # one more, which no worker takes
    await store.finish_succeeded(node, [Succeeded(first["id"], first["token"], 0.0, 0.0)], 0.0)
    await fire(hot)
    assert await app.jobs.list(state="waiting") == []
    assert sorted(job.due_at.minute for job in await app.jobs.list(state="ready")) == [2, 3]


async def test_overlap_kill_asks_the_running_one_to_stop_and_waits_for_it(
    app: App, sandbox: Any, hot: Any
) -> None:
    await app.schedule("s", "tell", every="1m", overlap="kill")
    assert await periods(sandbox, hot, 2) == ["start", "wait"]
    running = (await app.jobs.list(state="running"))[0]
    assert running.cancel_requested_at is not None
    rows = await hot.fetch("signals_for", running.node)
    assert [(row["job_id"], row["kind"]) for row in rows] == [(running.id, "cancel")]


async def test_many_workers_racing_never_overlap_a_schedule_that_skips(
    app: App, sandbox: Any, hot: Any
) -> None:
    await app.schedule("s", "tell", every="1m", overlap="skip", catch_up=All())
    await sandbox.advance(minutes=30)
    await fire(hot)
    answers = await asyncio.gather(*(hold_next(hot) for _ in range(8)))
    verdicts = Counter(verdict for _, got in answers for verdict in got.values())
    assert verdicts == {"start": 1, "skip": 29}


# -- control


async def test_trigger_runs_now_beside_the_rule(app: App, sandbox: rota.testing.Sandbox) -> None:
    await app.schedule("s", "tell", every="1h")
    await sandbox.advance(minutes=7)
    job_id = (await app.schedules.trigger("s")).job_id
    assert [job.id for job in await sandbox.run_due()] == [job_id]
    assert await ledger(app, "s") == [("fired", "triggered")]
    assert await is_clean(app, "s")


async def test_a_single_need_or_tag_is_a_name_and_not_its_letters(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    await app.schedule(
        "s", "tell", every="1h", tags="mail", options={"needs": "gpu", "tags": "vip"}
    )
    job = await app.jobs.get((await app.schedules.trigger("s")).job_id)
    assert job.needs == ("gpu",)
    assert set((job.headers or {})["tags"]) == {"mail", "vip"}


async def test_backfill_runs_what_has_no_row_yet_and_never_twice(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    await app.schedule("s", "tell", every="1h", overlap="allow")
    await run_through(sandbox, 2, hours=1)
    first, end = START - timedelta(hours=5), START + timedelta(hours=3)
    assert (await app.schedules.backfill("s", first, end, dry_run=True)).count == 6
    assert await sandbox.run_due() == []
    assert (await app.schedules.backfill("s", first, end)).count == 6
    assert (await app.schedules.backfill("s", first, end)).count == 0
    assert len(await sandbox.run_due()) == 6


async def test_a_deleted_schedule_fires_no_more(app: App, sandbox: rota.testing.Sandbox) -> None:
    await app.schedule("s", "tell", every="1h")
    await app.schedules.delete("s")
    assert await run_through(sandbox, 2, hours=1) == 0
    with pytest.raises(NotFound, match="no schedule 's'"):
        await app.schedules.get("s")
    with pytest.raises(NotFound):
        await app.schedules.delete("s")


async def test_bad_schedules_are_refused_and_say_why(app: App, sandbox: Any) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({"cron": "61 * * * *"}, "minute"),
        ({"cron": "0 0 30 2 *"}, "never"),
        ({"every": "1h", "cron": "* * * * *"}, "exactly one rule"),
        ({}, "exactly one rule"),
        ({"cron": "* * * * *", "tz": "Europe/Pariss"}, "Europe/Paris"),
        ({"cron": "* * * * *", "overlap": "maybe"}, "overlap"),
        ({"cron": "* * * * *", "payload": {"wrong": 1}}, "wrong"),
        ({"cron": "* * * * *", "sometimes": True}, "sometimes"),
    ]
    for settings, message in bad:
        with pytest.raises((ConfigError, rota.InvalidArguments), match=message):
            await app.schedule("s", "tell", **settings)
    assert await app.schedules.list() == []


async def test_code_declares_schedules(make_app: Callable[..., App]) -> None:
    app = make_app()

    @app.cron("30 2 * * *", tz="Europe/Paris", gap="next", overlap="skip", catch_up=Latest("1h"))
    async def nightly(ctx: Context) -> None:
        pass

    await app.schedules.declare()
    await app.schedules.declare()
    (status,) = await app.schedules.list()
    assert (status.name, status.task, status.version, status.source) == (
        "nightly", "nightly", 1, "code",
    )  # fmt: skip
    assert status.next_due is not None
    with pytest.raises(ConfigError, match="minute"):
        app.cron("99 * * * *", name="other")(nightly)


async def test_a_backfill_runs_so_many_at_a_time_and_none_is_skipped(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    await app.schedule("s", "tell", every="1h", overlap="skip")
    first = START - timedelta(hours=10)
    assert (await app.schedules.backfill("s", first, START, max_parallel=3)).count == 10
    await fire(hot)
    verdicts = (await hold_next(hot))[1]
    assert sorted(verdicts.values()) == ["start"] * 3
    await fire(hot)
    assert (await hold_next(hot))[0] == []  # the three still run
    assert len(await app.jobs.list(state="waiting")) == 7
    assert [status.name for status in await app.schedules.list()] == ["s"]


async def test_a_backfill_of_a_schedule_that_never_overlaps_runs_one_by_one_to_the_end(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    await app.schedule("s", "tell", every="1h", overlap="skip")
    await app.schedules.backfill("s", START - timedelta(hours=5), START)
    ended: list[Any] = []
    while done := await sandbox.run_due():
        ended += done
    assert [job.state for job in ended] == ["succeeded"] * 5
    hours = [o.due_at.hour for o in app.seen]  # type: ignore[attr-defined]
    assert hours == [7, 8, 9, 10, 11]


async def test_explain_says_why_an_occurrence_was_skipped_or_waits(
    app: App, sandbox: rota.testing.Sandbox, hot: Any
) -> None:
    await app.schedule("s", "tell", every="1m", overlap="skip")
    await periods(sandbox, hot, 2)
    (skipped,) = await app.jobs.list(state="skipped")
    why = await app.jobs.explain(skipped.id)
    assert why.code == "skipped"
    assert why.sentence.endswith("the run before it had not ended.")
    await app.schedule("q", "tell", every="1m", overlap="queue")
    await periods(sandbox, hot, 2)
    (waiting,) = await app.jobs.list(state="waiting")
    why = await app.jobs.explain(waiting.id)
    assert why.sentence.startswith("It waits for the run before it of schedule 'q' to end.")


async def test_a_trigger_never_takes_the_place_of_an_occurrence_or_of_another_trigger(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    await app.schedule("s", "tell", every="1m", overlap="allow")
    await sandbox.advance(minutes=1)  # exactly on the rule's moment
    triggered = {(await app.schedules.trigger("s")).job_id for _ in range(3)}
    ended = await sandbox.run_due()
    assert len(ended) == 4
    assert triggered < {job.id for job in ended}
    assert await is_clean(app, "s")


async def test_an_update_leaves_a_pause_as_it_is(app: App, sandbox: rota.testing.Sandbox) -> None:
    await app.schedule("s", "tell", every="1m")
    await app.schedules.pause("s", until=START + timedelta(days=1))
    await app.schedule("s", "tell", every="2m")
    status = await app.schedules.get("s")
    assert status.paused_at is not None
    assert status.paused_until == START + timedelta(days=1)


async def test_the_jobs_of_a_schedule_carry_its_tags(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    await app.schedule("s", "tell", every="1m", tags=["nightly"])
    await run_through(sandbox, 1, minutes=1)
    (job,) = await app.jobs.list(tag="nightly")
    assert job.headers["occurrence"]["schedule"] == "s"


async def test_time_can_pass_with_all_that_is_due_on_the_way(
    app: App, sandbox: rota.testing.Sandbox
) -> None:
    await app.schedule("nightly", "tell", cron="0 3 * * *")
    await app.schedule("hourly", "tell", every="1h")
    await app.schedules.pause("hourly", until=START + timedelta(hours=20, minutes=30))
    ended = await sandbox.run_for(days=1)
    seen = [o.due_at for o in app.seen]  # type: ignore[attr-defined]
    assert seen == sorted([START + timedelta(hours=n) for n in (15, 21, 22, 23, 24)])
    assert [job.due_at for job in ended] == seen
    assert Counter(await ledger(app, "hourly", 25))[("skipped", "paused")] == 20
    assert await is_clean(app, "nightly")
    assert sandbox.now() == START + timedelta(days=1)
