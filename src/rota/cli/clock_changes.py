"""Describe how clock changes of a time zone affect the local times of a rule. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from rota.core.time.recurrence import Occurrence, Recurrence, Ticks
from rota.core.time.zones import LocalRule, Mark, Piece, piece_at

_TICK = timedelta(microseconds=1)
_MOST = 4  # wall times named in one remark
_NOWHERE = datetime.max.replace(tzinfo=UTC)


class Previewed(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence to come, or a wall time that doesn't become one: then `utc` is None."""

    asked: datetime  # the wall time that the rule names
    local: datetime | None
    utc: datetime | None
    due_at: datetime | None  # with spread and jitter
    runs: bool
    mark: Mark | None = None
    excluded_by: str | None = None
    remark: str | None = None


class Lost(msgspec.Struct, frozen=True):
    """A wall time that doesn't exist, and the moment that its policy gives it instead."""

    wall: datetime
    jump: datetime
    moved_to: datetime | None


def previewed(recurrence: Recurrence, after: datetime, count: int) -> list[Previewed]:
    """Return the next occurrences, and between them the wall times that a clock change skips."""
    after = after.astimezone(UTC)
    found = list(recurrence.after(after, count))
    end = found[-1].nominal if found else after
    lost = list(lost_walls(recurrence, after, end))
    rows = [(each.nominal, _occurrence(recurrence, each, lost)) for each in found]
    rows += [(each.jump, _never(each)) for each in lost if each.moved_to is None]
    rows.sort(key=lambda row: row[0])
    return [row for _, row in rows][:count]


def lost_walls(recurrence: Recurrence, after: datetime, end: datetime) -> Iterator[Lost]:
    """Yield the rule's wall times that the clock changes of a period skip."""
    rule = recurrence.rule
    if isinstance(rule, Ticks) or rule.hourly:
        return
    limits = recurrence.limits
    piece = piece_at(recurrence.tz, max(after, limits.starts or after))
    while piece.end <= min(end, limits.ends or _NOWHERE):
        at = piece.end
        piece = piece_at(recurrence.tz, at)
        if piece.start == at and piece.offset > piece.before:
            yield from _of_gap(recurrence, rule, piece)


def _of_gap(recurrence: Recurrence, rule: LocalRule, piece: Piece) -> Iterator[Lost]:
    start = piece.start.replace(tzinfo=None)
    wall = rule.next_after(start + piece.before - _TICK)
    while wall is not None and wall < start + piece.offset:
        moved = {
            "next": piece.start,
            "shift": (wall - piece.before).replace(tzinfo=UTC),
            "skip": None,
        }[recurrence.gap]
        yield Lost(wall, piece.start, moved)
        wall = rule.next_after(wall)


def _occurrence(recurrence: Recurrence, found: Occurrence, lost: Sequence[Lost]) -> Previewed:
    local = found.nominal.astimezone(recurrence.tz)
    moved = [each.wall for each in lost if each.moved_to == found.nominal]
    remark = _remark(recurrence, found, local, moved)
    if found.excluded_by is not None:
        remark = f"excluded ({found.excluded_by}): doesn't run"
    return Previewed(
        asked=found.local, local=local, utc=found.nominal, due_at=found.due_at,
        runs=found.excluded_by is None, mark=found.mark, excluded_by=found.excluded_by,
        remark=remark,
    )  # fmt: skip


def _remark(
    recurrence: Recurrence, found: Occurrence, local: datetime, moved: list[datetime]
) -> str | None:
    if moved:
        return f"{_clocks(moved)}: runs {local:%H:%M}"
    if found.mark not in ("fold_first", "fold_second"):
        return None
    asked = f"{found.local:%H:%M} comes twice"
    nth = "first" if found.mark == "fold_first" else "second"
    hourly = not isinstance(recurrence.rule, Ticks) and recurrence.rule.hourly
    if hourly or recurrence.fold == "both":
        return f"{asked}: runs both times, this is the {nth}"
    return f"{asked}: runs the {nth} time"


def _never(lost: Lost) -> Previewed:
    return Previewed(
        asked=lost.wall, local=None, utc=None, due_at=None, runs=False,
        remark=f"{lost.wall:%Y-%m-%d %H:%M} doesn't exist: doesn't run",
    )  # fmt: skip


def _clocks(walls: Sequence[datetime]) -> str:
    """Write "02:30 doesn't exist" or "02:00 and 02:30 don't exist"."""
    if len(walls) == 1:
        return f"{walls[0]:%H:%M} doesn't exist"
    if len(walls) > _MOST:
        return f"{walls[0]:%H:%M} to {walls[-1]:%H:%M} ({len(walls)}) don't exist"
    names = [f"{wall:%H:%M}" for wall in walls]
    return f"{', '.join(names[:-1])} and {names[-1]} don't exist"
