"""What happens where clocks jump, as tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from rota.core.time.cron import parse_cron
from rota.core.time.zones import moments, zone
from rota.errors import ConfigError

GAPS = [
    # zone, rule, from, hours, then what is due by gap = next, skip, shift
    ("Europe/Paris", "30 2 * * *", "2026-03-29T00:00", 12, "01:00", "", "01:30"),
    ("Europe/Paris", "*/20 2 * * *", "2026-03-29T00:00", 12, "01:00", "", "01:00 01:20 01:40"),
    ("Europe/Paris", "0 2,3 * * *", "2026-03-29T00:00", 12, "01:00", "01:00", "01:00"),
    (
        "Europe/Paris",
        "15,45 2,3 * * *",
        "2026-03-29T00:00",
        12,
        "01:00 01:15 01:45",
        "01:15 01:45",
        "01:15 01:45",
    ),
    ("America/New_York", "30 2 * * *", "2026-03-08T00:00", 20, "07:00", "", "07:30"),
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00", 12, "15:30", "", "15:45"),
    ("Australia/Lord_Howe", "45 2 * * *", "2026-10-03T12:00", 12, "15:45", "15:45", "15:45"),
    # The 30th of December 2011 doesn't exist; 20:00 is 10:00 on the 31st.
    ("Pacific/Apia", "0 10 * * *", "2011-12-30T00:00", 22, "10:00 20:00", "20:00", "20:00"),
    ("Pacific/Apia", "0 6 30 12 *", "2011-12-30T00:00", 22, "10:00", "", "16:00"),
    # The gap is at midnight.
    ("America/Santiago", "0 0 * * *", "2026-09-06T00:00", 12, "04:00", "", "04:00"),
    ("Africa/Cairo", "30 0 * * *", "2026-04-23T12:00", 20, "22:00", "", "22:30"),
    # No jump at all.
    ("Asia/Kathmandu", "30 2 * * *", "2026-03-29T00:00", 24, "20:45", "20:45", "20:45"),
]
FOLDS = [
    # then what is due by fold = first, second, both
    ("Europe/Paris", "30 2 * * *", "2026-10-25T00:00", 12, "00:30", "01:30", "00:30 01:30"),
    (
        "Europe/Paris",
        "0,30 2 * * *",
        "2026-10-24T12:00",
        20,
        "00:00 00:30",
        "01:00 01:30",
        "00:00 00:30 01:00 01:30",
    ),
    ("Europe/Paris", "0 3 * * *", "2026-10-25T00:00", 12, "02:00", "02:00", "02:00"),
    ("America/New_York", "30 1 * * *", "2026-11-01T00:00", 20, "05:30", "06:30", "05:30 06:30"),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04T12:00", 12, "14:45", "15:15", "14:45 15:15"),
    ("Australia/Lord_Howe", "15 1 * * *", "2026-04-04T12:00", 12, "14:15", "14:15", "14:15"),
    ("Pacific/Apia", "30 3 * * *", "2012-03-31T06:00", 20, "13:30", "14:30", "13:30 14:30"),
]


def due(tz: str, rule: str, start: str, hours: int, gap: str = "next", fold: str = "first") -> str:
    begin = datetime.fromisoformat(start).replace(tzinfo=UTC)
    found = []
    for moment in moments(parse_cron(rule), zone(tz), begin - timedelta(seconds=1), gap, fold):
        if moment.utc >= begin + timedelta(hours=hours):
            break
        found.append(f"{moment.utc:%H:%M}")
    return " ".join(found)


@pytest.mark.parametrize("row", GAPS, ids=lambda row: f"{row[0]} {row[1]} {row[2]}")
def test_a_wall_time_that_does_not_exist_runs_as_the_gap_policy_says(row):
    *where, after_gap, skipped, shifted = row
    assert due(*where, gap="next") == after_gap
    assert due(*where, gap="skip") == skipped
    assert due(*where, gap="shift") == shifted


@pytest.mark.parametrize("row", FOLDS, ids=lambda row: f"{row[0]} {row[1]} {row[2]}")
def test_a_wall_time_that_exists_twice_runs_as_the_fold_policy_says(row):
    *where, first, second, both = row
    assert due(*where, fold="first") == first
    assert due(*where, fold="second") == second
    assert due(*where, fold="both") == both


@pytest.mark.parametrize("gap", ["next", "skip", "shift"])
@pytest.mark.parametrize("fold", ["first", "second", "both"])
@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_a_rule_of_every_hour_runs_by_elapsed_time_whatever_the_policies(gap, fold, day):
    found = due("Europe/Paris", "*/30 * * * *", f"{day}T00:00", 4, gap, fold)
    assert found == "00:00 00:30 01:00 01:30 02:00 02:30 03:00 03:30"


def test_a_rule_of_every_second_hour_names_hours_and_follows_the_policies():
    # 00:00, then 02:00, which is 03:00 here, then 04:00.
    where = ("Europe/Paris", "0 */2 * * *", "2026-03-28T23:00", 4)
    assert due(*where, gap="next") == "23:00 01:00 02:00"
    assert due(*where, gap="skip") == "23:00 02:00"


def marks(rule: str, tz: str, start: str, gap: str, fold: str) -> list[tuple[str, str | None]]:
    begin = datetime.fromisoformat(start).replace(tzinfo=UTC)
    found = moments(parse_cron(rule), zone(tz), begin, gap, fold)
    return [(f"{m.local:%H:%M}", m.mark) for m, _ in zip(found, range(2), strict=False)]


def test_what_the_zone_did_to_an_occurrence_is_marked():
    spring, autumn = "2026-03-29T00:00", "2026-10-25T00:00"
    at = ("30 2 * * *", "Europe/Paris")
    assert marks(*at, spring, "next", "first") == [("02:30", "gap_next"), ("02:30", None)]
    assert marks(*at, spring, "shift", "first") == [("02:30", "gap_shift"), ("02:30", None)]
    assert marks(*at, autumn, "next", "both") == [
        ("02:30", "fold_first"),
        ("02:30", "fold_second"),
    ]


def test_a_mark_does_not_depend_on_where_the_computation_began():
    tz, rule = zone("Europe/Paris"), parse_cron("*/15 1-4 * * *")
    start = datetime(2026, 3, 28, tzinfo=UTC)
    for gap in ("next", "shift"):
        whole = []
        for moment in moments(rule, tz, start, gap, "both"):
            if moment.utc > start + timedelta(days=2):
                break
            whole.append(moment)
        for index, moment in enumerate(whole[:-1]):
            assert next(moments(rule, tz, moment.utc, gap, "both")) == whole[index + 1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Europe/Pari", "tz: 'Europe/Pari' is not an IANA time zone; did you mean Europe/Paris"),
        ("berlin", "did you mean Europe/Berlin?"),
        ("../etc/passwd", "is not an IANA time zone"),
        ("", "write one such as Europe/Paris"),
        ("+05:45", "is not an IANA time zone"),
    ],
)
def test_an_unknown_zone_is_refused_with_near_matches(name, message):
    with pytest.raises(ConfigError) as error:
        zone(name)
    assert message in str(error.value)
