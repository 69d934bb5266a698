from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.time.calendars import NamedCalendar
from rota.core.time.plan import Decision, Outlook, Plan, plan
from rota.core.time.recurrence import Recurrence
from rota.core.time.schedule import (
    All,
    CatchUp,
    Cron,
    Every,
    Latest,
    NoCatchUp,
    ScheduleSpec,
    compile_schedule,
)

NOW = datetime(2026, 1, 5, 12, 0, 30, tzinfo=UTC)  # a Monday
SECOND, MINUTE, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(days=1)
WEEKEND = NamedCalendar(name="weekend", weekdays=frozenset({5, 6}))


def schedule(rule: Any, **given: Any) -> Recurrence:
    spec = ScheduleSpec(name="nightly", task="clean", rule=rule, **given)
    return compile_schedule(spec, {"weekend": WEEKEND})


def planned(recurrence: Recurrence, catch_up: CatchUp, **given: Any) -> Plan:
    cursor, limit = given.pop("cursor", NOW - DAY), given.pop("limit", 10**6)
    outlook = Outlook(**{"now": NOW, "horizon": 1.0, "catch_up": catch_up, **given})
    return plan(recurrence, outlook, cursor, limit)


def fired(decisions: list[Decision]) -> list[str]:
    return [f"{one.found.nominal:%H:%M:%S}" for one in decisions if one.fires]


def test_an_occurrence_on_time_fires_within_the_horizon_and_no_earlier():
    minutely = schedule(Cron("* * * * *"))
    early = planned(minutely, NoCatchUp, cursor=NOW, now=NOW + 28 * SECOND)
    assert early == Plan([], NOW, NOW + 30 * SECOND, False)
    ready = planned(minutely, NoCatchUp, cursor=NOW, now=NOW + 29 * SECOND)
    assert fired(ready.decisions) == ["12:01:00"]
    assert ready.cursor == NOW + 30 * SECOND
    assert ready.next_due == NOW + 90 * SECOND
    assert not ready.decisions[0].caught_up


def test_a_day_of_outage_of_a_rule_of_every_second():
    every_second = schedule(Every(1))
    none = planned(every_second, NoCatchUp)
    assert len(none.decisions) == 86401  # one of them within the horizon
    assert len(fired(none.decisions)) == 12  # 12:00:20 to 12:00:31: not overdue by more than 10 s
    latest = planned(every_second, Latest(within="1h"))
    assert len(fired(latest.decisions)) == 13
    assert [f"{one.found.nominal:%H:%M:%S}" for one in latest.decisions if one.caught_up] == [
        "12:00:19"
    ]
    within = planned(every_second, All(within="1h"))
    assert len(fired(within.decisions)) == 3602
    assert len(fired(planned(every_second, All()).decisions)) == 86401
    skipped = {one.reason for one in within.decisions if not one.fires}
    assert skipped == {"catch_up"}


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [
        (NoCatchUp, []),
        (Latest(), ["12:00:00"]),
        (Latest(within="20s"), []),
        (Latest(within="30s"), ["12:00:00"]),
        (All(within="3h"), ["10:00:00", "11:00:00", "12:00:00"]),
    ],
)
def test_catch_up_of_an_hourly_rule(catch_up, expected):
    given = planned(schedule(Cron("0 * * * *")), catch_up)
    assert len(given.decisions) == 24
    assert fired(given.decisions) == expected
    assert all(one.caught_up for one in given.decisions if one.fires)


def test_an_excluded_occurrence_is_recorded_and_is_never_the_latest():
    daily = schedule(Cron("0 6 * * *"), exclude=("weekend",))
    sunday = datetime(2026, 1, 4, 20, tzinfo=UTC)
    given = planned(daily, Latest(), now=sunday, cursor=sunday - 4 * DAY)
    assert [
        (one.found.nominal.day, one.reason, one.found.excluded_by) for one in given.decisions
    ] == [
        (1, "catch_up", None),
        (2, None, None),
        (3, "excluded", "weekend"),
        (4, "excluded", "weekend"),
    ]


def test_a_pause_is_recorded_without_catch_up_and_waits_for_the_resume_with_it():
    hourly, since = schedule(Cron("0 * * * *")), NOW - timedelta(hours=3)
    none = planned(hourly, NoCatchUp, paused_since=since, cursor=NOW - timedelta(hours=5))
    assert [one.reason for one in none.decisions] == ["catch_up"] * 2 + ["paused"] * 3
    held = planned(hourly, Latest(), paused_since=since, cursor=NOW - timedelta(hours=5))
    assert fired(held.decisions) == ["09:00:00"]  # missed before the pause
    assert (held.next_due, held.more) == (None, False)
    resumed = planned(hourly, Latest(), cursor=held.cursor)
    assert fired(resumed.decisions) == ["12:00:00"]
    assert len(resumed.decisions) == 3


def test_jitter_does_not_hold_back_a_later_occurrence():
    jittered = schedule(Cron("* * * * *"), jitter=300)
    given = planned(jittered, NoCatchUp, cursor=NOW - 30 * SECOND, now=NOW + 90 * SECOND)
    assert [one.found.nominal for one in given.decisions] == [NOW + 30 * SECOND, NOW + 90 * SECOND]


def test_a_schedule_that_has_ended_has_no_next():
    ended = schedule(Cron("* * * * *"), ends=NOW - DAY)
    assert planned(ended, All()) == Plan([], NOW - DAY, None, False)


policies = st.builds(
    CatchUp,
    st.sampled_from(["none", "latest", "all"]),
    st.one_of(st.none(), st.sampled_from([5.0, 20.0, 600.0, 7200.0, 200_000.0])),
)
rules = st.sampled_from(
    [Cron("*/7 * * * *"), Cron("0 */2 * * *"), Every(600), Cron("30 2 * * *"), Cron("*/20 2 * * *")]
)


@settings(max_examples=200)
@given(
    rule=rules,
    catch_up=policies,
    limit=st.integers(1, 40),
    jitter=st.sampled_from([0, 0, 30, 590]),
    spread=st.sampled_from([0, 900]),
    exclude=st.sampled_from([(), ("weekend",)]),
    tz=st.sampled_from(["UTC", "Europe/Paris", "Australia/Lord_Howe"]),
    hours=st.integers(0, 100),
    paused=st.one_of(st.none(), st.integers(-50, 100)),
    now=st.sampled_from([NOW, datetime(2026, 3, 30, 1, tzinfo=UTC), datetime(2026, 10, 26, tzinfo=UTC)]),
)  # fmt: skip
def test_batches_give_what_one_unbounded_call_gives(
    rule, catch_up, limit, jitter, spread, exclude, tz, hours, paused, now
):
    recurrence = schedule(rule, jitter=jitter, spread=spread, exclude=exclude, tz=tz)
    cursor = now - timedelta(hours=hours)
    since = None if paused is None else now - timedelta(hours=paused)
    given = {"catch_up": catch_up, "now": now, "paused_since": since}
    whole = planned(recurrence, cursor=cursor, **given)
    decisions: list[Decision] = []
    while True:
        batch = planned(recurrence, cursor=cursor, limit=limit, **given)
        assert len(batch.decisions) <= limit
        decisions += batch.decisions
        cursor = batch.cursor
        if not batch.more:
            break
    assert decisions == whole.decisions
    assert (cursor, batch.next_due) == (whole.cursor, whole.next_due)
    if catch_up.kind == "latest":
        assert sum(one.caught_up for one in decisions) <= 1
