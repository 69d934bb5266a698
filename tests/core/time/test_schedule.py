from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.time.calendars import NamedCalendar
from rota.core.time.interval import duration_text, next_tick, seconds_of
from rota.core.time.recurrence import Recurrence
from rota.core.time.schedule import (
    All,
    Calendar,
    CatchUp,
    Cron,
    Every,
    Latest,
    NoCatchUp,
    RRule,
    ScheduleSpec,
    compile_schedule,
    make_spec,
)
from rota.core.time.words import describe
from rota.errors import ConfigError

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
RULES = [
    Cron("30 2 * * *"),
    Cron("*/7 * * * *"),
    Cron("0 0 L * FRI"),
    Cron("*/20 1-3 * * *"),
    Cron("15 30 4 * * MON-FRI"),
    Every(5400),
    Every(61),
    Calendar("last business day of the month at 02:30"),
    Calendar("every second tuesday at 01:30 and 02:15"),
    RRule("FREQ=WEEKLY;BYDAY=SU;BYHOUR=1,2;BYMINUTE=30"),
    RRule("FREQ=MINUTELY;INTERVAL=50"),
]
ZONES = ["UTC", "Europe/Paris", "Australia/Lord_Howe", "Pacific/Apia", "America/Santiago"]


def spec(rule: Any, **given: Any) -> ScheduleSpec:
    return ScheduleSpec(**{"name": "nightly", "task": "clean", "rule": rule, **given})


def due(recurrence: Recurrence, after: datetime, count: int) -> list[str]:
    return [f"{found.nominal:%m-%d %H:%M}" for found in recurrence.after(after, count)]


@st.composite
def recurrences(draw: st.DrawFn) -> Recurrence:
    given = {
        "tz": draw(st.sampled_from(ZONES)),
        "gap": draw(st.sampled_from(["next", "skip", "shift"])),
        "fold": draw(st.sampled_from(["first", "second", "both"])),
        "spread": draw(st.sampled_from([0, 300])),
        "exclude": draw(st.sampled_from([(), ("weekend",)])),
    }
    weekend = NamedCalendar(name="weekend", weekdays=frozenset({5, 6}))
    return compile_schedule(spec(draw(st.sampled_from(RULES)), **given), {"weekend": weekend})


moments = st.datetimes(datetime(1971, 1, 1), datetime(2099, 1, 1), timezones=st.just(UTC))
near_jumps = st.sampled_from(
    [
        datetime(2026, 3, 29, tzinfo=UTC),
        datetime(2026, 10, 24, 23, tzinfo=UTC),
        datetime(2011, 12, 30, tzinfo=UTC),
        datetime(2026, 9, 6, tzinfo=UTC),
        datetime(2026, 4, 4, 12, tzinfo=UTC),
    ]
)


@settings(max_examples=150)
@given(recurrences(), st.one_of(moments, near_jumps))
def test_occurrences_rise_strictly_and_are_the_same_wherever_one_begins(recurrence, start):
    found = list(recurrence.after(start, 12))
    assert all(a.nominal < b.nominal for a, b in pairwise(found))
    assert all(one.nominal > start for one in found)
    for index, one in enumerate(found[:-1]):
        assert next(recurrence.after(one.nominal)) == found[index + 1]


@settings(max_examples=100)
@given(recurrences(), st.one_of(moments, near_jumps), st.integers(1, 40), st.integers(1, 40))
def test_between_is_cut_from_after_and_two_halves_make_a_whole(recurrence, start, first, second):
    middle, end = start + first * HOUR / 4, start + (first + second) * HOUR / 4
    whole = list(recurrence.between(start, end))
    assert whole == [*recurrence.between(start, middle), *recurrence.between(middle, end)]
    assert whole == list(islice(recurrence.after(start - timedelta.resolution), len(whole)))


@settings(max_examples=60)
@given(recurrences(), moments)
def test_kept_occurrences_are_those_that_are_not_excluded(recurrence, start):
    kept = [one for one in recurrence.after(start, 30) if one.excluded_by is None]
    assert list(islice(recurrence.kept_after(start), len(kept))) == kept


def test_intervals_count_elapsed_time_from_their_anchor():
    assert due(compile_schedule(spec(Every(5400))), START, 2) == ["01-01 01:30", "01-01 03:00"]
    anchored = spec(Every(5400, anchor=START + timedelta(minutes=10)))
    assert due(compile_schedule(anchored), START, 2) == ["01-01 00:10", "01-01 01:40"]
    started = spec(Every(5400), starts=START + timedelta(minutes=20))
    assert due(compile_schedule(started), START - HOUR, 2) == ["01-01 00:20", "01-01 01:50"]
    assert next_tick(START - timedelta(seconds=1), 3600, START) == START
    assert next_tick(START - 30 * HOUR, 7 * 3600, START) == START - 28 * HOUR


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900), ("1h30m", 5400), ("90s", 90), ("2d", 172800), (45, 45), ("45", 45), ("1w", 604800),
     ("0.5s", 0.5), (" 1h 5s ", 3605)],
)  # fmt: skip
def test_durations_are_read(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5x", "m5", "1m1h", "1m1m", "-5", -5, True])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ConfigError, match=r"every: .*write 90, 90s, 15m, 1h30m or 2d"):
        seconds_of(text, "every")


def test_durations_are_written_as_they_are_read():
    for seconds in (0, 1, 59, 90, 5400, 86400, 90061, 1.5):
        assert seconds_of(duration_text(seconds)) == seconds


def test_start_end_and_count_bound_the_occurrences():
    hourly = spec(Cron("0 * * * *"), starts=START + HOUR, ends=START + 4 * HOUR)
    assert due(compile_schedule(hourly), START - HOUR, 9) == [
        "01-01 01:00", "01-01 02:00", "01-01 03:00",
    ]  # fmt: skip
    counted = spec(Cron("0 0 * * *"), starts=START, max_occurrences=3, exclude=("party",))
    party = NamedCalendar(name="party", dates=frozenset({date(2026, 1, 2)}))
    found = list(compile_schedule(counted, {"party": party}).after(START - HOUR))
    assert [one.nominal.day for one in found] == [1, 2, 3, 4]  # the excluded one doesn't count
    assert [one.excluded_by for one in found] == [None, "party", None, None]


def test_a_count_that_is_never_reached_because_all_is_excluded_ends():
    never = NamedCalendar(name="never", weekdays=frozenset(range(7)))
    counted = spec(Cron("0 0 * * *"), starts=START, max_occurrences=3, exclude=("never",))
    assert next(compile_schedule(counted, {"never": never}).kept_after(START), None) is None


def test_excluded_and_not_included_occurrences_are_marked():
    weekend = NamedCalendar(name="weekend", weekdays=frozenset({5, 6}))
    # 23:30 UTC on a Friday is a Saturday in Paris.
    friday = datetime(2026, 1, 2, 23, tzinfo=UTC)
    excluded = spec(Every(1800), tz="Europe/Paris", exclude=("weekend",))
    included = spec(Every(1800), tz="Europe/Paris", include=("weekend",))
    calendars = {"weekend": weekend}
    assert next(compile_schedule(excluded, calendars).after(friday)).excluded_by == "weekend"
    assert next(compile_schedule(included, calendars).after(friday)).excluded_by is None
    assert next(compile_schedule(included, calendars).after(START)).excluded_by == "not in weekend"


def test_spread_and_jitter_are_stable_and_within_their_bounds():
    plain = compile_schedule(spec(Cron("0 * * * *"), spread=300, jitter=60))
    again = compile_schedule(spec(Cron("0 * * * *"), spread=300, jitter=60))
    other = compile_schedule(spec(Cron("0 * * * *"), spread=300, name="other"))
    found = list(plain.after(START, 50))
    assert found == list(again.after(START, 50))
    assert plain.spread_offset != other.spread_offset
    assert plain.spread_offset == timedelta(seconds=291, milliseconds=414)  # pinned
    noise = [(one.due_at - one.nominal - plain.spread_offset).total_seconds() for one in found]
    assert all(0 <= one < 60 for one in noise)
    assert len(set(noise)) > 40


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": ""}, "name: '' is not a schedule's name"),
        ({"task": ""}, "task: must not be empty"),
        ({"tz": "Europe/Pari"}, "tz: 'Europe/Pari' is not an IANA time zone"),
        ({"gap": "jump"}, "gap: 'jump' is none of next, skip, shift"),
        ({"fold": "third"}, "fold: 'third' is none of first, second, both"),
        ({"overlap": "maybe"}, "overlap: 'maybe' is none of skip, queue, allow, kill"),
        ({"drop": "all"}, "drop: 'all' is none of oldest, newest"),
        ({"catch_up": CatchUp("some")}, "catch_up: 'some' is none of none, latest, all"),
        (
            {"catch_up": "latest"},
            "catch_up: must be NoCatchUp, Latest() or All() of rota, not 'latest'",
        ),
        ({"name": None}, "name: must be a text, not None"),
        ({"tz": None}, "tz: must be a text, not None"),
        ({"starts": "2030-01-01"}, "starts: must be a datetime with a time zone, not '2030-01-01'"),
        ({"rule": Cron(5)}, "cron: must be a text, not 5"),
        ({"catch_up": CatchUp("all", 0)}, "catch_up.within: 0 is not a number of seconds above 0"),
        ({"jitter": -1}, "jitter: -1 is not in 0 to 86400 seconds"),
        ({"spread": 90000}, "spread: 90000 is not in 0 to 86400 seconds"),
        ({"max_queued": 0}, "max_queued: 0 is not in 1 to 1000000"),
        ({"max_running": 0}, "max_running: 0 is not in 1 to 1000000"),
        ({"options": {"colour": 1}}, "options: 'colour' is none of queue, priority"),
        ({"rule": Every(0)}, "every: 0 is not in 1 second to 10 years"),
        ({"rule": Every(60), "jitter": 60}, "jitter: 60 s must be shorter than the interval"),
        ({"starts": datetime(2026, 1, 1)}, "starts: 2026-01-01 00:00:00 has no time zone"),
        ({"starts": START, "ends": START}, "ends: 2026-01-01 00:00:00+00:00 is not after starts"),
        ({"max_occurrences": 3}, "max_occurrences: needs starts"),
        ({"max_occurrences": 20000, "starts": START}, "max_occurrences: over 10000; use ends"),
    ],
)
def test_a_wrong_schedule_is_refused_with_the_fields_name(given, message):
    with pytest.raises(ConfigError) as error:
        spec(**{"rule": Cron("* * * * *"), **given})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"every": 0}, "every: 0.0 is not in 1 second to 10 years"),
        ({"every": "0s"}, "every: 0.0 is not in 1 second to 10 years"),
        ({}, "needs exactly one rule"),
        ({"every": 5, "payload": [1]}, "payload: must be a mapping of argument names and values"),
    ],
)
def test_words_that_make_no_schedule_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        compile_schedule(make_spec("s", "greet", **given))


def test_a_calendar_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="exclude: no calendar 'de'; there are: none"):
        compile_schedule(spec(Cron("* * * * *"), exclude=("de",)))


def test_a_schedule_survives_its_way_through_json():
    whole = spec(Every(60, START), starts=START, catch_up=Latest(within="1h"), tags=("a",))
    assert msgspec.json.decode(msgspec.json.encode(whole), type=ScheduleSpec) == whole
    assert (All("2h").within, Latest().within, NoCatchUp.kind) == (7200, None, "none")


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Cron("0 9 * * MON-FRI"), "every weekday at 09:00 in Europe/Berlin"),
        (Cron("30 2 * * *"), "every day at 02:30 in Europe/Berlin"),
        (Cron("*/5 * * * *"), "every 5 minutes in Europe/Berlin"),
        (Cron("* * * * *"), "every minute in Europe/Berlin"),
        (Cron("*/10 * * * * *"), "every 10 seconds in Europe/Berlin"),
        (Cron("@hourly"), "every hour in Europe/Berlin"),
        (Cron("15 * * * MON"), "every hour at 15 past, every Monday in Europe/Berlin"),
        (Cron("*/15 9-17 * * *"), "every day every 15 minutes from 09:00 to 17:45 in Europe/Berlin"),
        (Cron("0 8,20 * * SAT,SUN"), "every Saturday and Sunday at 08:00 and 20:00 in Europe/Berlin"),
        (Cron("0 0 1,15 * *"), "on day 1 and 15 of the month at 00:00 in Europe/Berlin"),
        (Cron("0 0 L JAN *"), "on the last day of the month in January at 00:00 in Europe/Berlin"),
        (Cron("0 9 * * MON#2"), "the second Monday of the month at 09:00 in Europe/Berlin"),
        (Cron("0 9 * * FRIL"), "the last Friday of the month at 09:00 in Europe/Berlin"),
        (Cron("H 3 * * *"), "every day at 03:59 in Europe/Berlin"),
        (Cron("0 0 13 * FRI"), "cron 0 0 13 * FRI in Europe/Berlin"),
        (Cron("7/9 1,5 * * *"), "cron 7/9 1,5 * * * in Europe/Berlin"),
        (Every(5400), "every 1h30m"),
        (Calendar("last  day of may at 18:00"), "last day of may at 18:00 in Europe/Berlin"),
        (RRule("FREQ=DAILY"), "RRULE FREQ=DAILY in Europe/Berlin"),
    ],
)  # fmt: skip
def test_rules_in_words(rule, words):
    assert describe(spec(rule, tz="Europe/Berlin")) == words
