"""The occurrences of a schedule, each the same whenever and wherever it is computed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import msgspec

from rota.core.time.calendars import NamedCalendar
from rota.core.time.interval import next_tick
from rota.core.time.zones import Fold, Gap, LocalRule, Mark, Moment, moments, wall_time

_TICK = timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)
_PATIENCE = 3660  # days


class Occurrence(msgspec.Struct, frozen=True):
    """One moment at which a schedule is due.

    `nominal` is its identity: what the rule says, in UTC. `due_at` is when the job is due, later
    by the schedule's spread and jitter. `local` is the wall time that the rule asked for, `mark`
    says how it became a moment where the zone's clocks jump. An excluded one isn't to be run.
    """

    due_at: datetime
    nominal: datetime
    local: datetime
    mark: Mark | None = None
    excluded_by: str | None = None


class Ticks(msgspec.Struct, frozen=True):
    """An interval by elapsed time."""

    seconds: float
    anchor: datetime


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds and shifts of a rule's occurrences. `starts` is included, `ends` is not."""

    starts: datetime | None = None
    ends: datetime | None = None
    spread: float = 0.0
    jitter: float = 0.0
    exclude: tuple[NamedCalendar, ...] = ()
    include: tuple[NamedCalendar, ...] = ()


class Recurrence:
    """A compiled schedule."""

    def __init__(
        self,
        name: str,
        rule: LocalRule | Ticks,
        tz: ZoneInfo,
        policies: tuple[Gap, Fold],
        limits: Limits,
    ) -> None:
        self.name = name
        self.rule = rule
        self.tz = tz
        self.gap, self.fold = policies
        self.limits = limits
        self.spread_offset = fraction(name, "spread") * limits.spread // 0.001 * _MILLISECOND

    def after(self, moment: datetime, limit: int | None = None) -> Iterator[Occurrence]:
        """Iterate over those with a nominal moment strictly after `moment`, at most `limit`."""
        return islice(self._walk(moment.astimezone(UTC)), limit)

    def between(self, first: datetime, end: datetime) -> Iterator[Occurrence]:
        """Iterate over those with ``first <= nominal < end``."""
        for found in self.after(first - _TICK):
            if found.nominal >= end:
                return
            yield found

    def up_to(self, last: datetime) -> Recurrence:
        """Return the same without the occurrences after `last`."""
        end = last.astimezone(UTC) + _TICK
        if self.limits.ends is not None:
            end = min(end, self.limits.ends)
        limits = msgspec.structs.replace(self.limits, ends=end)
        return Recurrence(self.name, self.rule, self.tz, (self.gap, self.fold), limits)

    def kept_after(self, moment: datetime) -> Iterator[Occurrence]:
        """Iterate as `after` does, without the excluded, at the cost of a step per excluded day.

        It gives up after some ten years in a row of them: there may be no end.
        """
        patience = _PATIENCE
        while patience:
            for found in self.after(moment):
                if found.excluded_by is not None:
                    moment = self._next_day(found.nominal) - _TICK
                    patience -= 1
                    break
                patience = _PATIENCE
                yield found
            else:
                return

    def occurrence(self, found: Moment) -> Occurrence:
        offset = self.spread_offset
        if self.limits.jitter:
            noise = fraction(self.name, "jitter", found.utc.isoformat())
            offset += noise * self.limits.jitter // 0.001 * _MILLISECOND
        due_at = found.utc + offset if offset else found.utc
        return Occurrence(due_at, found.utc, found.local, found.mark, self._excluded_by(found.utc))

    def _walk(self, moment: datetime) -> Iterator[Occurrence]:
        limits = self.limits
        if limits.starts is not None:
            moment = max(moment, limits.starts - _TICK)
        if isinstance(self.rule, Ticks):
            upcoming = self._ticks(self.rule, moment)
        else:
            upcoming = moments(self.rule, self.tz, moment, self.gap, self.fold)
        for found in upcoming:
            if limits.ends is not None and found.utc >= limits.ends:
                return
            yield self.occurrence(found)

    def _ticks(self, rule: Ticks, after: datetime) -> Iterator[Moment]:
        while after.year < 9990:
            after = next_tick(after, rule.seconds, rule.anchor)
            yield Moment(after, wall_time(after, self.tz), None)

    def _excluded_by(self, moment: datetime) -> str | None:
        """Return the calendar that excludes a moment, by its day in the schedule's zone."""
        if not self.limits.exclude and not self.limits.include:
            return None
        day = moment.astimezone(self.tz).date()
        for calendar in self.limits.exclude:
            if calendar.covers(day):
                return calendar.name
        if self.limits.include and not any(c.covers(day) for c in self.limits.include):
            return "not in " + ", ".join(calendar.name for calendar in self.limits.include)
        return None

    def _next_day(self, moment: datetime) -> datetime:
        """Return the first moment with a later date on the wall, or an earlier moment of that date."""
        day = moment.astimezone(self.tz).date() + timedelta(days=1)
        # fold=0: the first of two midnights; of a missing one, the moment of the jump.
        midnight = datetime.combine(day, time(), tzinfo=self.tz).astimezone(UTC)
        return max(midnight, moment + _TICK)


def fraction(*parts: str) -> float:
    """Return a number in [0, 1) that depends on nothing but the parts."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48
