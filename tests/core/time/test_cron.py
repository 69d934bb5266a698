from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest

from rota.core.time.cron import parse_cron
from rota.errors import ConfigError


def due(expression: str, start: str, count: int, seed: str = "x") -> list[str]:
    rule, wall, found = parse_cron(expression, seed), datetime.fromisoformat(start), []
    for _ in range(count):
        following = rule.next_after(wall)
        assert following is not None
        wall = following
        found.append(wall.isoformat(sep=" "))
    return found


@pytest.mark.parametrize(
    ("expression", "days"),
    [
        # January 2026 begins on a Thursday.
        ("0 0 13 * *", [13]),
        ("0 0 * * FRI", [2, 9, 16, 23, 30]),
        ("0 0 13 * FRI", [2, 9, 13, 16, 23, 30]),  # either
        ("0 0 1,15 * MON", [1, 5, 12, 15, 19, 26]),  # either
        ("0 0 */10 * FRI", []),  # both: the 1st, 11th, 21st, 31st are no Fridays
        ("0 0 */2 * FRI", [9, 23]),  # both: begins with a star
        ("0 0 1-31/2 * FRI", sorted({*range(1, 32, 2), 2, 9, 16, 23, 30})),  # either
        ("0 0 13 * */2", [13]),  # both: the 13th is a Tuesday
        ("0 0 12 * */2", []),  # both: the 12th is a Monday
        ("0 0 13 * *,FRI", [13]),  # begins with a star
        ("0 0 ? * FRI", [2, 9, 16, 23, 30]),
        ("0 0 13 * ?", [13]),
        ("0 0 L * *", [31]),
        ("0 0 L * FRI", [2, 9, 16, 23, 30, 31]),
        ("0 0 * * 5L", [30]),
        ("0 0 * * FRIL", [30]),
        ("0 0 * * MON#2", [12]),
        ("0 0 * * THU#5,MON#1", [5, 29]),
        ("0 0 * * 7", [4, 11, 18, 25]),
        ("0 0 * * 0", [4, 11, 18, 25]),
        ("0 0 * * sat-sun", [3, 4, 10, 11, 17, 18, 24, 25, 31]),
        ("0 0 29-31/2 * *", [29, 31]),
    ],
)
def test_day_of_month_and_day_of_week_combine_as_in_debian(expression, days):
    rule = parse_cron(expression)
    assert [d for d in rule.days_of(2026, 1) if 1 in rule.months] == days


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/20 9 * * *", ["2026-01-01 09:00:00", "2026-01-01 09:20:00", "2026-01-01 09:40:00"]),
        ("*/30 * * * * *", ["2026-01-01 00:00:30", "2026-01-01 00:01:00", "2026-01-01 00:01:30"]),
        ("5/20 0 * * *", ["2026-01-01 00:05:00", "2026-01-01 00:25:00", "2026-01-01 00:45:00"]),
        ("0 0 29 feb *", ["2028-02-29 00:00:00", "2032-02-29 00:00:00", "2036-02-29 00:00:00"]),
        ("@yearly", ["2027-01-01 00:00:00", "2028-01-01 00:00:00", "2029-01-01 00:00:00"]),
        ("@Monthly", ["2026-02-01 00:00:00", "2026-03-01 00:00:00", "2026-04-01 00:00:00"]),
        ("@weekly", ["2026-01-04 00:00:00", "2026-01-11 00:00:00", "2026-01-18 00:00:00"]),
        ("@midnight", ["2026-01-02 00:00:00", "2026-01-03 00:00:00", "2026-01-04 00:00:00"]),
        ("@hourly", ["2026-01-01 01:00:00", "2026-01-01 02:00:00", "2026-01-01 03:00:00"]),
    ],
)
def test_the_next_wall_times(expression, expected):
    assert due(expression, "2026-01-01 00:00:00", 3) == expected


def test_a_leap_day_on_a_given_weekday_is_found_forty_years_on():
    assert due("0 0 */28 2 MON#5", "2072-03-01", 1) == ["2112-02-29 00:00:00"]


def test_h_is_stable_for_a_name_and_spread_over_names():
    pinned = {
        "nightly": ((59,), (0,), {22}, (14, 29, 44, 59), (9, 19, 29)),
        "invoices": ((40,), (0,), {22}, (10, 25, 40, 55), (0, 10, 20)),
        "report": ((35,), (3,), {15}, (5, 20, 35, 50), (5, 15, 25)),
    }
    for name, (minute, hour, days, quarters, tens) in pinned.items():
        rule = parse_cron("H H(0-5) H * *", name)
        assert (rule.minutes, rule.hours, set(rule.days.numbers)) == (minute, hour, days)
        assert parse_cron("H/15 * * * *", name).minutes == quarters
        assert parse_cron("H(0-29)/10 * * * *", name).minutes == tens
    many = [parse_cron("H * * * *", f"s{n}").minutes[0] for n in range(600)]
    assert set(many) == set(range(60))
    assert all(
        parse_cron("H(10-19) * * * *", f"s{n}").minutes[0] in range(10, 20) for n in range(99)
    )


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("61 * * * *", "cron '61 * * * *': minute: 61 is not in 0-59"),
        ("0 24 * * *", "hour: 24 is not in 0-23"),
        ("0 0 0 * *", "day of month: 0 is not in 1-31"),
        ("0 0 * 13 *", "month: 13 is not in 1-12"),
        ("0 0 * * 8", "day of week: 8 is not in 0-7"),
        ("60 0 0 * * *", "second: 60 is not in 0-59"),
        ("0 0 * * FOO", "day of week: 'FOO' is not in 0-7 or SUN-SAT"),
        ("0 0 * JAM *", "month: 'JAM' is not in 1-12 or JAN-DEC"),
        ("0 0 20-10 * *", "day of month: 20-10 runs backwards"),
        ("*/0 * * * *", "minute: */0 needs a step of 1 or more"),
        ("1,,2 * * * *", "minute: '1,,2' has an empty item"),
        ("0 0 * * MON#6", "day of week: MON#6 is not one of the 1st to 5th"),
        ("0 0 15W * *", "day of month: 15W has no meaning here"),
        ("0 L * * *", "hour: L has no meaning here"),
        ("? * * * *", "minute: ? has no meaning here"),
        ("H(5-70) * * * *", "minute: 70 is not in 0-59"),
        ("HH * * * *", "minute: HH is not H, H(0-29), H/15 or H(0-29)/10"),
        ("٣ * * * *", "is not in 0-59"),
        ("* * * *", "has 4 fields; write 5 (minute, hour, day of month, month, day of week)"),
        ("", "has 0 fields"),
        ("@every 15m", "is an interval: write every='15m'"),
        ("@fortnightly", "no such macro; there are @hourly, @daily"),
        ("0 0 30 2 *", "never fires: no day 30 in the given months, which have 29 at most"),
        ("0 0 31 4,6,9,11 *", "never fires: no day 31 in the given months, which have 30"),
        ("0 0 */29 2 MON#5", "never fires: no day matches both"),
    ],
)
def test_a_wrong_rule_is_refused_with_field_value_and_what_is_allowed(expression, message):
    with pytest.raises(ConfigError) as error:
        parse_cron(expression)
    assert message in str(error.value)


def test_random_rules_agree_with_cronsim():
    cronsim = pytest.importorskip("cronsim")
    rnd = random.Random(7)

    def field(low: int, high: int) -> str:
        a, b = sorted((rnd.randint(low, high), rnd.randint(low, high)))
        return rnd.choice(["*", "*", f"{a}", f"{a}-{b}", f"*/{rnd.randint(1, 9)}", f"{a},{b}"])

    for _ in range(400):
        day = rnd.choice([field(1, 31), field(1, 31), "L"])
        weekday = rnd.choice([field(0, 7), f"{rnd.randint(0, 6)}#{rnd.randint(1, 5)}", "5L"])
        text = f"{field(0, 59)} {field(0, 23)} {day} {field(1, 12)} {weekday}"
        start = datetime(2020, 1, 1) + timedelta(minutes=rnd.randint(0, 20_000_000))
        try:
            theirs = next(cronsim.CronSim(text, start))
        except (cronsim.CronSimError, StopIteration):
            continue
        assert parse_cron(text).next_after(start) == theirs, (text, start)
