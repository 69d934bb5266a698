from __future__ import annotations

import random
import sys
from datetime import date, datetime, timedelta

import pytest

from rota.core.time.calendars import NamedCalendar, calendar_from_holidays, calendar_from_ics
from rota.core.time.phrases import parse_phrase
from rota.core.time.rrule import parse_rrule
from rota.core.time.zones import LocalRule, zone
from rota.errors import ConfigError

UTC_ZONE = zone("UTC")


def first(rule: LocalRule, count: int, start: str = "2026-01-01") -> str:
    wall, found = datetime.fromisoformat(start), []
    while len(found) < count and (following := rule.next_after(wall)) is not None:
        wall = following
        found.append(f"{wall:%m-%d %H:%M}")
    return ", ".join(found)


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [
        ("last business day of the month 18:00", "01-30 18:00, 02-27 18:00, 03-31 18:00"),
        ("first monday of the month 09:00", "01-05 09:00, 02-02 09:00, 03-02 09:00"),
        ("every second tuesday 10:00", "01-06 10:00, 01-20 10:00, 02-03 10:00"),
        (
            "Every other Tuesday at 10:00 starting 2026-01-13",
            "01-13 10:00, 01-27 10:00, 02-10 10:00",
        ),
        ("day 15 or next business day at 8am", "01-15 08:00, 02-16 08:00, 03-16 08:00"),
        ("day 15 or previous business day at 8am", "01-15 08:00, 02-13 08:00, 03-13 08:00"),
        ("day 15 or nearest business day at 8am", "01-15 08:00, 02-16 08:00, 03-16 08:00"),
        ("day 31 or next business day at 10:00", "02-02 10:00, 03-31 10:00, 06-01 10:00"),
        ("day 31 of the month at 10:00", "01-31 10:00, 03-31 10:00, 05-31 10:00"),
        ("day 1 and 15 of the month at 00:30", "01-01 00:30, 01-15 00:30, 02-01 00:30"),
        ("every weekday at noon and 18:30", "01-01 12:00, 01-01 18:30, 01-02 12:00"),
        ("every monday, wednesday and friday at 7am", "01-02 07:00, 01-05 07:00, 01-07 07:00"),
        ("on the last friday of march and june at 10:00", "03-27 10:00, 06-26 10:00, 03-26 10:00"),
        (
            "third to last business day of the quarter at 5pm",
            "03-27 17:00, 06-26 17:00, 09-28 17:00",
        ),
        ("second last day of the month at 09:00", "01-30 09:00, 02-27 09:00, 03-30 09:00"),
        ("60th day of the year at 09:00", "03-01 09:00, 03-01 09:00, 02-29 09:00"),
        ("last day of february at midnight", "02-28 00:00, 02-28 00:00, 02-29 00:00"),
        ("every day at 12am", "01-02 00:00, 01-03 00:00, 01-04 00:00"),
    ],
)
def test_phrases_mean_what_people_mean(phrase, expected):
    assert first(parse_phrase(phrase), 3) == expected


def test_business_days_leave_out_the_days_of_a_calendar():
    holidays = {"de": NamedCalendar(name="de", dates=frozenset({date(2026, 1, 30)}))}
    rule = parse_phrase("last business day of the month at 18:00 using de", holidays)
    assert first(rule, 2) == "01-29 18:00, 02-27 18:00"


@pytest.mark.parametrize(
    ("phrase", "message"),
    [
        ("every monday", "no time of day at the end; write for example"),
        ("every blue moon at 10:00", "'blue moon' is not a weekday's name"),
        ("first monday of the month at 25:00", "25:00 is not a time of day"),
        ("first monday of the month at 13pm", "hours with am or pm are 1-12"),
        ("first monday of smarch at 10:00", "'smarch' is not a month's name"),
        ("day 32 at 10:00", "day 32 is not in 1-31"),
        ("day 30 of february at 10:00", "never fires: no month has such a day"),
        ("day 15 or tomorrow at 10:00", "'or tomorrow' is not understood"),
        ("every monday or next business day at 9am", "goes with days of a month"),
        ("monday at 10:00", "'monday' is not understood"),
        ("every second tuesday at 10:00 starting soon", "starting soon: write a date"),
        ("every weekday at 10:00 using nope", "no calendar 'nope'; there are: none"),
    ],
)
def test_a_phrase_that_is_not_understood_is_refused_with_its_words(phrase, message):
    with pytest.raises(ConfigError) as error:
        parse_phrase(phrase)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=18", "01-30 18:00, 02-27 18:00, 03-27 18:00"),
        (
            "DTSTART:20260106T100000\nRRULE:FREQ=WEEKLY;INTERVAL=2",
            "01-06 10:00, 01-20 10:00, 02-03 10:00",
        ),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", "01-30 00:00, 02-27 00:00, 03-31 00:00"),
        ("DTSTART:20260101T090000\nFREQ=DAILY;COUNT=2", "01-01 09:00, 01-02 09:00"),
        ("FREQ=DAILY;UNTIL=20260103", "01-02 00:00, 01-03 00:00"),
        ("FREQ=HOURLY;INTERVAL=6;UNTIL=20260101T120000Z", "01-01 06:00, 01-01 12:00"),
        ("FREQ=YEARLY;BYMONTH=11;BYDAY=4TH", "11-26 00:00, 11-25 00:00, 11-23 00:00"),
    ],
)
def test_recurrence_rules_of_rfc_5545(text, expected):
    assert first(parse_rrule(text, UTC_ZONE), 3) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FREQ=SOMETIMES", "FREQ must be one of YEARLY"),
        ("FREQ=MINUTELY;BYMONTH=2", "may search without bound; write a cron rule"),
        ("FREQ=DAILY;INTERVAL=3;BYMONTHDAY=31", "may search without bound"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "never fires"),
        ("FREQ=DAILY;INTERVAL=7;BYDAY=MO", "never fires"),
        ("FREQ=DAILY;COUNT=5000", "COUNT=5000 is over 1000"),
        ("FREQ=DAILY;COUNT=5;UNTIL=20300101", "exclude each other"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR: 24 is not in 0-23"),
        ("FREQ=MONTHLY;BYDAY=XX", "BYDAY: XX is not a weekday"),
        ("FREQ=WEEKLY;BYDAY=2MO", "BYDAY with a number needs FREQ=MONTHLY or YEARLY"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL: 0 is not in 1-999999"),
        ("FREQ=DAILY\nEXDATE:20260101", "EXDATE is not supported; exclude"),
        ("DTSTART;TZID=Asia/Tokyo:20260101T090000\nFREQ=DAILY", "give tz='Asia/Tokyo'"),
        ("FREQ=DAILY;UNTIL=20261301", "UNTIL 20261301: month must be in 1..12"),
        ("HELLO", "HELLO is not understood"),
    ],
)
def test_an_rrule_that_is_wrong_or_unbounded_is_refused(text, message):
    with pytest.raises(ConfigError) as error:
        parse_rrule(text, UTC_ZONE)
    assert message in str(error.value)


def test_random_rrules_agree_with_dateutil():
    rrulestr = pytest.importorskip("dateutil.rrule").rrulestr
    rnd = random.Random(11)
    compared = 0
    for _ in range(400):
        text = _some_rrule(rnd)
        start = datetime(rnd.randint(1970, 2050), rnd.randint(1, 12), rnd.randint(1, 28), 9, 5)
        try:
            rule = parse_rrule(text, UTC_ZONE, start)
        except ConfigError:
            continue
        wall = start + timedelta(days=rnd.randint(-50, 5000))
        theirs = list(rrulestr(text, dtstart=start).xafter(wall, count=3))
        assert first(rule, 3, wall.isoformat()) == ", ".join(f"{t:%m-%d %H:%M}" for t in theirs)
        compared += 1
    assert compared > 200


def _some_rrule(rnd: random.Random) -> str:
    def some(values: list[int]) -> str:
        return ",".join(str(n) for n in rnd.sample(values, rnd.randint(1, 3)))

    freq = rnd.choice(["YEARLY", "MONTHLY", "WEEKLY", "DAILY"])
    nth = freq in ("YEARLY", "MONTHLY") and rnd.random() < 0.5
    days = rnd.sample(["MO", "TU", "WE", "TH", "FR", "SA", "SU"], 2)
    chance = {
        f"INTERVAL={rnd.randint(1, 5)}": 0.5,
        f"BYMONTH={some(list(range(1, 13)))}": 0.3,
        f"BYMONTHDAY={some([*range(1, 32), -1, -2])}": 0.3,
        f"BYDAY={','.join((str(rnd.choice([1, 2, -1])) if nth else '') + d for d in days)}": 0.4,
        f"BYSETPOS={some([1, 2, -1])}": 0.15,
        f"BYHOUR={some(list(range(24)))}": 0.4,
        f"WKST={rnd.choice(['MO', 'SU', 'TH'])}": 0.2,
        f"COUNT={rnd.randint(1, 30)}": 0.15,
    }
    return ";".join(
        [f"FREQ={freq}", *(part for part, odds in chance.items() if rnd.random() < odds)]
    )


ICS = """BEGIN:VCALENDAR\r
BEGIN:VEVENT\r
SUMMARY:Works\r
 outing\r
DTSTART;VALUE=DATE:20260601\r
DTEND;VALUE=DATE:20260604\r
BEGIN:VALARM\r
DTSTART:20200101T000000Z\r
END:VALARM\r
END:VEVENT\r
BEGIN:VEVENT\r
SUMMARY:New Year\r
DTSTART;VALUE=DATE:20200101\r
RRULE:FREQ=YEARLY\r
EXDATE;VALUE=DATE:20270101\r
END:VEVENT\r
BEGIN:VEVENT\r
SUMMARY:Thanksgiving\r
DTSTART;VALUE=DATE:20201126\r
RRULE:FREQ=YEARLY;BYMONTH=11;BYDAY=4TH;UNTIL=20281231\r
END:VEVENT\r
END:VCALENDAR\r
"""


def test_the_all_day_events_of_an_ics_file_make_a_calendar():
    calendar = calendar_from_ics("work", ICS)
    covered = [
        date(2026, 6, 1),
        date(2026, 6, 3),
        date(2026, 1, 1),
        date(2028, 11, 23),
        date(2099, 1, 1),
    ]
    assert all(calendar.covers(day) for day in covered)
    left_out = [date(2026, 6, 4), date(2027, 1, 1), date(2029, 11, 22), date(2020, 1, 2)]
    assert not any(calendar.covers(day) for day in left_out)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("DTSTART:20260101T090000Z", "only all-day events make a calendar"),
        ("DTSTART:20260101\nRRULE:FREQ=WEEKLY", "only yearly rules are understood"),
        ("DTSTART:20260230", "DTSTART 20260230"),
        ("DTSTART:20260105\nDTEND:20260101", "ends before it starts"),
        ("SUMMARY:x", "has no DTSTART"),
    ],
)
def test_an_event_that_is_no_set_of_days_is_refused(lines, message):
    with pytest.raises(ConfigError) as error:
        calendar_from_ics("work", f"BEGIN:VEVENT\n{lines}\nEND:VEVENT")
    assert message in str(error.value)


def test_an_ics_text_without_events_is_refused():
    with pytest.raises(ConfigError, match="has no VEVENT"):
        calendar_from_ics("work", "hello")


def test_public_holidays_make_a_calendar():
    pytest.importorskip("holidays")
    calendar = calendar_from_holidays("de", "DE", range(2026, 2028))
    assert calendar.covers(date(2026, 10, 3))
    assert not calendar.covers(date(2026, 10, 5))
    with pytest.raises(ConfigError, match="no holidays of 'XX'"):
        calendar_from_holidays("xx", "XX", [2026])


def test_without_the_holidays_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "holidays", None)
    with pytest.raises(ConfigError, match=r"pip install 'rota\[holidays\]'"):
        calendar_from_holidays("de", "DE", [2026])


def test_a_calendar_that_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match="7 is not in 0-6"):
        NamedCalendar(name="x", weekdays=frozenset({7}))
    with pytest.raises(ConfigError, match="runs backwards"):
        NamedCalendar(name="x", ranges=((date(2026, 1, 2), date(2026, 1, 1)),))
