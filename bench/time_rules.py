"""Occurrences per second, the slowest next occurrence, and planning, of many kinds of rules.

Run: python -m bench.time_rules
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import available_timezones

from rota.core.time.plan import Outlook, plan
from rota.core.time.recurrence import Recurrence
from rota.core.time.schedule import (
    All,
    Calendar,
    Cron,
    Every,
    RRule,
    ScheduleSpec,
    compile_schedule,
)
from rota.core.time.zones import _jumps
from rota.errors import ConfigError

START = datetime(2026, 1, 1, tzinfo=UTC)
RULES = [
    Every(1),
    Cron("* * * * * *"),
    Cron("*/5 * * * *"),
    Cron("30 2 * * *"),
    Cron("0 9 * * MON-FRI"),
    Cron("0 0 L * *"),
    Cron("0 0 29 2 *"),
    Cron("0 0 */28 2 MON#5"),
    Calendar("last business day of the month at 18:00"),
    Calendar("every second tuesday at 10:00"),
    Calendar("60th day of the year at 09:00"),
    Calendar("fifth friday of february at 10:00"),
    RRule("FREQ=WEEKLY;INTERVAL=2;BYDAY=TU;BYHOUR=10"),
    RRule("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1"),
    RRule("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO"),
    RRule("FREQ=YEARLY;BYWEEKNO=53;BYDAY=MO"),
]


def main() -> None:
    print(f"{'rule':52} {'a second':>9} {'next, ms: usual':>16} {'worst':>7}")
    for rule in RULES:
        _report(rule)
    _random_rules()
    _planning()


def _compiled(rule: Any, tz: str = "Europe/Paris") -> Recurrence:
    return compile_schedule(ScheduleSpec(name="bench", task="t", rule=rule, tz=tz))


def _report(rule: Any) -> None:
    recurrence = _compiled(rule)
    list(recurrence.after(START, 5))
    begin = time.thread_time()
    count = 0
    for _ in recurrence.after(START):
        count += 1
        if count == 5000 or time.thread_time() - begin > 0.5:
            break
    rate = count / (time.thread_time() - begin)
    nexts = sorted(_cold(recurrence, START + timedelta(days=97 * n)) for n in range(150))
    print(f"{str(rule)[:52]:52} {rate:9,.0f} {nexts[75] * 1000:16.3f} {nexts[-1] * 1000:7.3f}")


def _cold(recurrence: Recurrence, moment: datetime) -> float:
    """CPU seconds of a next occurrence when nothing is known yet of the zone's jumps."""
    return min(_once(lambda: next(recurrence.after(moment), None)) for _ in range(3))


def _once(call: Callable[[], object]) -> float:
    _jumps.cache_clear()
    begin = time.thread_time()
    call()
    return time.thread_time() - begin


def _random_rules(count: int = 3000) -> None:
    """Accepted rules of all kinds at random, each in a random zone, at a random moment."""
    rnd = random.Random(1)
    zones = sorted(available_timezones() - {"localtime"})
    worst: tuple[float, str] = (0.0, "")
    accepted = 0
    for _ in range(count):
        rule = rnd.choice([_some_cron, _some_rrule])(rnd)
        try:
            recurrence = _compiled(rule, rnd.choice(zones))
        except ConfigError:
            continue
        accepted += 1
        moment = START + timedelta(days=rnd.randint(-20000, 27000))
        worst = max(worst, (_cold(recurrence, moment), f"{rule} in {recurrence.tz.key}"))
    print(f"\n{accepted} random rules: worst next {worst[0] * 1000:.2f} ms: {worst[1]}")


def _some_cron(rnd: random.Random) -> Cron:
    def field(low: int, high: int) -> str:
        a, b = sorted((rnd.randint(low, high), rnd.randint(low, high)))
        return rnd.choice(["*", f"{a}", f"{a}-{b}", f"*/{rnd.randint(1, high)}", f"{a},{b}"])

    weekday = rnd.choice([field(0, 7), f"{rnd.randint(0, 6)}#{rnd.randint(1, 5)}", "5L"])
    return Cron(f"{field(0, 59)} {field(0, 23)} {field(1, 31)} {field(1, 12)} {weekday}")


def _some_rrule(rnd: random.Random) -> RRule:
    def some(values: list[int]) -> str:
        return ",".join(str(n) for n in rnd.sample(values, rnd.randint(1, 3)))

    parts = [
        f"INTERVAL={rnd.randint(1, 9)}",
        f"BYMONTH={some(list(range(1, 13)))}",
        f"BYMONTHDAY={some([*range(1, 32), -1])}",
        f"BYDAY={rnd.choice(['MO', 'TU,WE', '2MO', '-1FR', '5SU'])}",
        f"BYSETPOS={some([1, 2, -1])}",
        f"BYHOUR={some(list(range(24)))}",
    ]
    freq = rnd.choice(["YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY"])
    return RRule(";".join([f"FREQ={freq}", *(part for part in parts if rnd.random() < 0.4)]))


def _planning() -> None:
    recurrence = _compiled(Every(1), "UTC")
    begin = time.thread_time()
    outlook = Outlook(now=START + timedelta(days=1), horizon=1.0, catch_up=All())
    cursor, entries = START, 0
    while True:
        batch = plan(recurrence, outlook, cursor)
        cursor, entries = batch.cursor, entries + len(batch.decisions)
        if not batch.more:
            break
    print(f"planned a second, per core: {entries / (time.thread_time() - begin):,.0f}")


if __name__ == "__main__":
    main()
