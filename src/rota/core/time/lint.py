"""Warns of what will go wrong with schedules in the coming time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Literal

import msgspec

from rota.core.time.interval import duration_text
from rota.core.time.recurrence import Recurrence, Ticks
from rota.core.time.schedule import ScheduleSpec
from rota.core.time.zones import LocalRule, Piece, piece_at

_TICK = timedelta(microseconds=1)
_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)
_LOOK = 2 * 366 * _DAY
_SOON = 30 * _DAY
_SAMPLE = 50

Code = Literal["gap", "fold", "herd", "too_often", "ends_soon", "never_again", "jitter", "unknown_task",
               "wrong_arguments", "broken"]  # fmt: skip


class Warned(msgspec.Struct, frozen=True):
    """One warning; `schedule` is None when it is about several."""

    code: Code
    schedule: str | None
    message: str
    at: datetime | None = None


class Watched(msgspec.Struct, frozen=True):
    """A compiled schedule. `usual_duration` of its runs is in seconds."""

    spec: ScheduleSpec
    recurrence: Recurrence
    usual_duration: float | None = None


class Linter:
    """Checks schedules, some at a time, and keeps nothing of them but how many are due in a minute."""

    def __init__(self, now: datetime, herd: int = 100) -> None:
        self._now = now.astimezone(UTC)
        self._herd = herd
        self._due: Counter[datetime] = Counter()

    def check(self, schedules: Iterable[Watched]) -> list[Warned]:
        """Return each schedule's own warnings."""
        found: list[Warned] = []
        for one in schedules:
            for check in (_ending, _jumps, _too_often):
                found += check(one, self._now)
            self._due.update(_minutes(one.recurrence, self._now))
        return found

    def herds(self) -> Iterator[Warned]:
        """Warn of the three worst minutes of the coming day, of all schedules that were checked."""
        for minute, count in sorted(self._due.items(), key=lambda item: (-item[1], item[0]))[:3]:
            if count >= self._herd:
                text = f"{count} schedules are due in the minute of {_when(minute)}; "
                text += "spread them (H, spread)"
                yield Warned("herd", None, text, minute)


def lint(schedules: Iterable[Watched], now: datetime, herd: int = 100) -> list[Warned]:
    """Return each schedule's own warnings, then the minutes at which `herd` or more of them are due."""
    linter = Linter(now, herd)
    return [*linter.check(schedules), *linter.herds()]


def _ending(watched: Watched, now: datetime) -> Iterator[Warned]:
    name = watched.spec.name
    upcoming = next(watched.recurrence.kept_after(now), None)
    if upcoming is None:
        yield Warned("never_again", name, f"{name} never fires again")
    elif next(watched.recurrence.after(max(now + _SOON, upcoming.nominal)), None) is None:
        last = upcoming.nominal
        for found in watched.recurrence.between(last, now + _SOON):
            last = found.nominal
        yield Warned("ends_soon", name, f"{name} fires for the last time at {_when(last)}", last)


def _jumps(watched: Watched, now: datetime) -> Iterator[Warned]:
    """Warn of the first gap and the first fold that the rule meets."""
    recurrence, rule = watched.recurrence, watched.recurrence.rule
    if isinstance(rule, Ticks) or rule.hourly:
        return
    end = min(now + _LOOK, recurrence.limits.ends or now + _LOOK)
    seen: set[Code] = set()
    piece = piece_at(recurrence.tz, max(now, recurrence.limits.starts or now))
    while piece.end < end:
        piece = piece_at(recurrence.tz, piece.end)
        warning = _jump(watched, rule, piece)
        if warning is not None and warning.code not in seen:
            seen.add(warning.code)
            yield warning


def _jump(watched: Watched, rule: LocalRule, piece: Piece) -> Warned | None:
    """Warn of the start of a piece, if the rule has a wall time in its gap or fold."""
    start = piece.start.replace(tzinfo=None)
    low, high = sorted((start + piece.before, start + piece.offset))
    wall = rule.next_after(low - _TICK)
    if wall is None or wall >= high:
        return None
    spec, at = watched.spec, f"{wall:%H:%M} on {wall:%Y-%m-%d} in {watched.spec.tz}"
    if piece.offset > piece.before:
        says = {
            "next": f"it runs at {start + piece.offset:%Y-%m-%d %H:%M} instead",
            "skip": "it doesn't run",
            "shift": f"it runs at {wall + piece.offset - piece.before:%Y-%m-%d %H:%M} instead",
        }[spec.gap]
        text = f"{spec.name} is due at {at}, which doesn't exist: {says} (gap={spec.gap!r})"
        return Warned("gap", spec.name, text, piece.start)
    says = "both times" if spec.fold == "both" else f"the {spec.fold} time"
    text = f"{spec.name} is due at {at}, which exists twice: it runs {says} (fold={spec.fold!r})"
    return Warned("fold", spec.name, text, piece.start)


def _too_often(watched: Watched, now: datetime) -> Iterator[Warned]:
    spec, usual = watched.spec, watched.usual_duration
    sample = [found.nominal for found in watched.recurrence.after(now, _SAMPLE)]
    gaps = [(b - a).total_seconds() for a, b in pairwise(sample)]
    if not gaps:
        return
    shortest = min(gaps)
    if usual is not None and shortest < usual:
        text = (
            f"{spec.name} is due {duration_text(shortest)} after the last time, but usually takes "
        )
        text += f"{duration_text(usual)} (overlap={spec.overlap!r})"
        yield Warned("too_often", spec.name, text)
    if spec.jitter > shortest:
        text = f"{spec.name}: jitter is longer than the {duration_text(shortest)} between two"
        yield Warned("jitter", spec.name, f"{text}, which may change places")


def _minutes(recurrence: Recurrence, now: datetime) -> set[datetime]:
    """Return the minutes of the coming day in which it is due, at a step per minute at most."""
    found: set[datetime] = set()
    moment = now - _TICK
    while (occurrence := next(recurrence.after(moment), None)) is not None:
        if occurrence.nominal >= now + _DAY:
            break
        if occurrence.excluded_by is None:
            found.add(occurrence.due_at.replace(second=0, microsecond=0))
        moment = occurrence.nominal.replace(second=0, microsecond=0) + _MINUTE - _TICK
    return found


def _when(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
