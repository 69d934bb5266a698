"""Converts wall time to moments, for every zone, by a stated rule.

A recurring rule speaks of wall time. Where a zone's clocks jump, a wall time may not exist (a
*gap*: 02:30 in Paris on 2026-03-29) or exist twice (a *fold*: 02:30 on 2026-10-25). The rule:

gap
    ``"next"``   it runs at the first moment after the gap. All wall times of one gap collapse
                 into one occurrence, also with a regular one at that very moment.
    ``"skip"``   it doesn't run.
    ``"shift"``  it runs shifted by the gap's length: 02:30 becomes 03:30. Where a regular
                 occurrence is due at that moment anyway, there is only the regular one.
fold
    ``"first"``, ``"second"``: it runs the first or the second time. ``"both"``: both times.

*Hourly* rules are the exception. A rule that speaks of every hour (a cron rule whose hour field
matches all 24 hours, an RRULE of at most an hour's interval) means elapsed time, as in Debian's
cron: it runs whenever the clock on the wall shows a matching time. Wall times of a gap are left
out, both passes of a fold run, and ``*/5 * * * *`` stays every five real minutes; gap and fold
don't apply. Debian's cron treats any hour field that begins with ``*`` this way (``*/2``), and
any such minute field (``*/5 2 * * *``). Rota doesn't: those name particular hours, so that such
a rule would lose a run in spring and double one in autumn; the policies decide instead.

Moments come out in strictly increasing order, whatever the policies. A zone's jumps are found by
looking at its offset every 48 hours: the closest two of the tz database are 95 hours apart.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Literal, NamedTuple, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from rota.errors import ConfigError

Gap = Literal["next", "skip", "shift"]
Fold = Literal["first", "second", "both"]
Mark = Literal["gap_next", "gap_shift", "fold_first", "fold_second"]

_TICK = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_PROBE = timedelta(hours=48)
# Wider than any offset or jump: what is further away than this can't be moved past a moment.
_REACH = timedelta(days=3)
_LAST_YEAR = 9990  # datetime ends with 9999, and probing needs room


class LocalRule(Protocol):
    """A rule on wall time."""

    hourly: bool  # it means elapsed time (see the module's rule)

    def next_after(self, wall: datetime) -> datetime | None:
        """Return the first matching wall time strictly after `wall`. All are naive."""
        ...


class Moment(NamedTuple):
    utc: datetime
    local: datetime  # the wall time that the rule asked for
    mark: Mark | None


class _Remembering:
    """Caches the last answer of a rule: some rules have to search."""

    def __init__(self, rule: LocalRule) -> None:
        self.hourly = rule.hourly
        self._rule = rule
        self._since: datetime | None = None
        self._found: datetime | None = None

    def next_after(self, wall: datetime) -> datetime | None:
        known = self._since is not None and self._since <= wall
        if known and (self._found is None or wall < self._found):
            return self._found
        self._since, self._found = wall, self._rule.next_after(wall)
        return self._found


class Piece(NamedTuple):
    """A stretch of time with one offset from UTC. `before` and `after` are its neighbours'."""

    start: datetime
    end: datetime
    offset: timedelta
    before: timedelta
    after: timedelta


def zone(name: str) -> ZoneInfo:
    """Return the zone of an IANA name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"tz: {name!r} is not an IANA time zone{_near(name)}") from None


def _near(name: str) -> str:
    by_lower = {known.lower(): known for known in sorted(available_timezones())}
    wanted = name.strip().lower().replace(" ", "_")
    cities = [known for low, known in by_lower.items() if low.rpartition("/")[2] == wanted]
    near = [by_lower[low] for low in difflib.get_close_matches(wanted, by_lower, 3, 0.6)]
    found = list(dict.fromkeys(cities + near))[:3]
    return f"; did you mean {', '.join(found)}?" if found else "; write one such as Europe/Paris"


def wall_time(moment: datetime, tz: tzinfo) -> datetime:
    """Return what the clock on the wall shows, naive."""
    return moment.astimezone(tz).replace(tzinfo=None)


def piece_at(tz: ZoneInfo, moment: datetime) -> Piece:
    """Return the stretch of constant offset around a moment (cut off about a year away)."""
    year = moment.year
    jumps = _jumps(tz, year - 1) + _jumps(tz, year) + _jumps(tz, year + 1)
    start, end = _year(year - 1), _year(year + 2)
    before = after = offset = _offset(tz, moment)
    for at, earlier, later in jumps:
        if at <= moment:
            start, before = at, earlier
        else:
            end, after = at, later
            break
    return Piece(start, end, offset, before, after)


def moments(
    rule: LocalRule, tz: ZoneInfo, after: datetime, gap: Gap, fold: Fold
) -> Iterator[Moment]:
    """Iterate over the moments of a rule strictly after `after` (UTC), by the module's rule."""
    rule = _Remembering(rule)
    while after.year < _LAST_YEAR:
        piece = piece_at(tz, after + _TICK)
        for found in _of_piece(rule, piece, after, gap, fold):
            yield found
            after = found.utc
        after = max(after, piece.end - _TICK)
        # Nothing for years? Then don't walk through them.
        upcoming = rule.next_after(piece.end.replace(tzinfo=None) - _REACH)
        if upcoming is None:
            return
        after = max(after, upcoming.replace(tzinfo=UTC) - _REACH)


def _of_piece(
    rule: LocalRule, piece: Piece, after: datetime, gap: Gap, fold: Fold
) -> Iterator[Moment]:
    regular = _regular(rule, piece, after, fold)
    if rule.hourly or gap == "skip" or piece.offset <= piece.before:
        return regular
    moved = _shifted(rule, piece, after) if gap == "shift" else _first_after(rule, piece, after)
    return _merge(regular, moved)


def _regular(rule: LocalRule, piece: Piece, after: datetime, fold: Fold) -> Iterator[Moment]:
    """Iterate over those whose wall time exists in this piece, in the pass that `fold` chooses."""
    offset, end = piece.offset, _wall(piece.end, piece.offset)
    second_until = _wall(piece.start, piece.before)  # ambiguous before: the second pass
    first_from = _wall(piece.end, piece.after)  # ambiguous from here on: the first pass
    wall = max(_wall(after, offset), _wall(piece.start, offset) - _TICK)
    while (found := rule.next_after(wall)) is not None and found < end:
        wall = found
        mark: Mark | None = None
        if found < second_until:
            if fold == "first" and not rule.hourly:
                continue
            mark = "fold_second"
        elif found >= first_from:
            if fold == "second" and not rule.hourly:
                continue
            mark = "fold_first"
        yield Moment((found - offset).replace(tzinfo=UTC), found, mark)


def _first_after(rule: LocalRule, piece: Piece, after: datetime) -> Iterator[Moment]:
    if piece.start <= after:
        return
    found = rule.next_after(_wall(piece.start, piece.before) - _TICK)
    if found is not None and found < _wall(piece.start, piece.offset):
        yield Moment(piece.start, found, "gap_next")


def _shifted(rule: LocalRule, piece: Piece, after: datetime) -> Iterator[Moment]:
    end = _wall(piece.start, piece.offset)
    wall = _wall(max(after, piece.start - _TICK), piece.before)
    while (found := rule.next_after(wall)) is not None and found < end:
        wall = found
        yield Moment((found - piece.before).replace(tzinfo=UTC), found, "gap_shift")


def _merge(regular: Iterator[Moment], moved: Iterator[Moment]) -> Iterator[Moment]:
    """Merge in order; where both are due at the same moment the regular one stands."""
    late = next(moved, None)
    for usual in regular:
        while late is not None and late.utc < usual.utc:
            yield late
            late = next(moved, None)
        if late is not None and late.utc == usual.utc:
            late = next(moved, None)
        yield usual
    if late is not None:
        yield late
        yield from moved


def _wall(moment: datetime, offset: timedelta) -> datetime:
    return moment.replace(tzinfo=None) + offset


def _year(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC)


def _offset(tz: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(tz).utcoffset() or timedelta()


@lru_cache(maxsize=16384)
def _jumps(tz: ZoneInfo, year: int) -> tuple[tuple[datetime, timedelta, timedelta], ...]:
    """Return the moments of a year (UTC) from which on another offset holds, with both offsets."""
    found = []
    low, end = _year(year) - _SECOND, _year(year + 1) - _SECOND
    earlier = _offset(tz, low)
    while low < end:
        high = min(low + _PROBE, end)
        later = _offset(tz, high)
        if later != earlier:
            found.append((_bisect(tz, low, high, earlier), earlier, later))
        low, earlier = high, later
    return tuple(found)


def _bisect(tz: ZoneInfo, low: datetime, high: datetime, earlier: timedelta) -> datetime:
    while high - low > _SECOND:
        middle = low + timedelta(seconds=(high - low) // _SECOND // 2)
        if _offset(tz, middle) == earlier:
            low = middle
        else:
            high = middle
    return high
