from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rota.core.time.forecast import Load, forecast
from rota.core.time.lint import Warned, Watched, lint
from rota.core.time.schedule import Cron, Every, ScheduleSpec, compile_schedule
from rota.errors import ConfigError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def watched(rule: Any, usual: float | None = None, **given: Any) -> Watched:
    spec = ScheduleSpec(**{"name": "nightly", "task": "clean", "rule": rule, **given})
    return Watched(spec, compile_schedule(spec), usual)


def warnings(*schedules: Watched, **given: Any) -> dict[str, Warned]:
    return {one.code: one for one in lint(schedules, NOW, **given)}


def test_a_rule_that_meets_a_gap_and_a_fold_is_named_with_what_will_happen():
    found = warnings(watched(Cron("30 2 * * *"), tz="Europe/Paris"))
    assert found["gap"].message == (
        "nightly is due at 02:30 on 2026-03-29 in Europe/Paris, which doesn't exist: "
        "it runs at 2026-03-29 03:00 instead (gap='next')"
    )
    assert "02:30 on 2026-10-25 in Europe/Paris, which exists twice" in found["fold"].message
    skipping = warnings(watched(Cron("30 2 * * *"), tz="Europe/Paris", gap="skip"))
    assert "it doesn't run (gap='skip')" in skipping["gap"].message


@pytest.mark.parametrize("rule", [Cron("30 4 * * *"), Cron("*/5 * * * *"), Every(60)])
def test_a_rule_that_no_jump_touches_is_left_in_peace(rule):
    assert warnings(watched(rule, tz="Europe/Paris")) == {}


def test_a_rule_that_ends_soon_or_never_fires_again():
    soon = warnings(watched(Cron("0 0 * * *"), ends=NOW + 5 * DAY))
    assert soon["ends_soon"].at == NOW + 4 * DAY
    over = warnings(watched(Cron("0 0 * * *"), ends=NOW - DAY))
    assert over["never_again"].message == "nightly never fires again"
    assert "ends_soon" not in warnings(watched(Cron("0 0 1 1 *")))


def test_an_interval_that_is_shorter_than_a_run_usually_takes():
    found = warnings(watched(Every(60), usual=90))
    assert "due 1m after the last time, but usually takes 1m30s" in found["too_often"].message
    assert "too_often" not in warnings(watched(Every(60), usual=30))


def test_jitter_that_is_longer_than_the_rule_s_rhythm():
    assert "may change places" in warnings(watched(Cron("* * * * *"), jitter=90))["jitter"].message


def test_many_schedules_at_the_same_minute():
    herd = [watched(Cron("0 0 * * *"), name=f"s{n}") for n in range(12)]
    spread = [watched(Cron("H H * * *"), name=f"s{n}") for n in range(12)]
    found = warnings(*herd, herd=10)
    assert found["herd"].at == NOW
    assert "12 schedules are due in the minute of" in found["herd"].message
    assert warnings(*spread, herd=10) == {}


def test_a_forecast_of_work_that_fits():
    load = Load(watched(Cron("0 * * * *")).recurrence, 600.0)
    found = forecast([load], NOW, NOW + DAY, slots=1, bucket=3600)
    assert (found.runs, found.max_wait, found.pile_ups) == (24, 0, [])
    assert [one.due for one in found.buckets] == [1] * 24
    assert {one.busy for one in found.buckets} == {600}
    assert found.use == pytest.approx(1 / 6)


def test_a_forecast_of_a_pile_up():
    loads = [Load(watched(Cron("0 3 * * *"), name=f"s{n}").recurrence, 1800.0) for n in range(4)]
    found = forecast(loads, NOW, NOW + DAY, slots=2, bucket=3600)
    assert (found.runs, found.max_wait, found.mean_wait) == (4, 1800, 900)
    (pile,) = found.pile_ups
    three = NOW + timedelta(hours=3)
    assert (pile.start, pile.end, pile.runs) == (three, three + timedelta(minutes=30), 2)
    assert found.peak is not None
    assert (found.peak.start, found.peak.busy, found.peak.due) == (three, 7200, 4)


def test_a_forecast_needs_slots_and_time():
    with pytest.raises(ConfigError, match="needs slots"):
        forecast([], NOW, NOW + DAY, slots=0)
