"""What to do about the occurrences of a schedule that are due by now.

`plan` looks at the occurrences after the cursor whose moment (nominal plus spread) is within
`horizon` from now, and gives a verdict on each: nothing is passed over in silence.

An occurrence is *missed* when, as it is first looked at, it is overdue by more than `grace`
(10 seconds unless told): there was an outage, or a pause. Otherwise it fires. A missed one is

- with catch-up ``none``: skipped;
- with ``all``: fired if it was due within the window (`within` seconds before now; no window:
  ever), skipped otherwise;
- with ``latest``: fired if it is the newest of the missed ones due within the window that are not
  excluded, skipped otherwise. Occurrences that are on time fire beside it.

Excluded occurrences are skipped as such, and don't count as the latest.

While a schedule is paused (`paused_since`), its occurrences from then on are skipped as paused
when catch-up is ``none``. With the other policies they are left alone, and the cursor stays before
them: after the resume they are missed ones, and the policy decides.

At most `limit` occurrences are looked at in one call; `more` says that others wait. Calling again
with the returned cursor and the same `now` gives what one call without a limit would have given.
For ``latest`` this takes a look ahead: the newest missed occurrence of a batch is fired only if
no later one, beyond the batch, is missed and could be fired.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec

from rota.core.time.recurrence import Occurrence, Recurrence
from rota.core.time.schedule import CatchUp
from rota.core.time.zones import Mark

GRACE = 10.0

Reason = Literal["catch_up", "excluded", "paused"]


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on one occurrence. `lag` is how many seconds overdue it was."""

    nominal: datetime
    due_at: datetime
    local: datetime
    mark: Mark | None = None
    verdict: Literal["fire", "skip"]
    reason: Reason | None = None
    detail: str | None = None  # the calendar that excludes it
    caught_up: bool = False
    lag: float = 0.0


class Plan(msgspec.Struct, frozen=True):
    """Verdicts, and where to go on.

    `next_due` is when the next occurrence has to be planned (less the horizon); None if there is
    none, or if it waits for a resume.
    """

    entries: list[LedgerEntry]
    cursor: datetime
    next_due: datetime | None
    more: bool


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """The moment and the policy by which occurrences are judged."""

    now: datetime
    horizon: float
    catch_up: CatchUp
    paused_since: datetime | None = None
    grace: float = GRACE

    def missed(self, found: Occurrence) -> bool:
        return found.due_at < self.now - timedelta(seconds=self.grace)

    def paused(self, found: Occurrence) -> bool:
        return self.paused_since is not None and found.nominal >= self.paused_since

    def held(self, found: Occurrence) -> bool:
        return self.catch_up.kind != "none" and self.paused(found)

    def within(self, found: Occurrence) -> bool:
        window = self.catch_up.within
        return window is None or found.due_at >= self.now - timedelta(seconds=window)

    def may_be_latest(self, found: Occurrence) -> bool:
        return (
            found.excluded_by is None
            and self.missed(found)
            and self.within(found)
            and not self.paused(found)
        )


def plan(
    recurrence: Recurrence,
    *,
    cursor: datetime,
    now: datetime,
    horizon: float,
    catch_up: CatchUp,
    paused_since: datetime | None = None,
    limit: int = 1000,
    grace: float = GRACE,
    superseded: bool = False,
) -> Plan:
    """The verdicts on at most `limit` occurrences after the cursor; see the module.

    `superseded` says that a later version of the schedule has missed ones of its own that may run:
    then none of these is the latest.
    """
    outlook = Outlook(
        now=now, horizon=horizon, catch_up=catch_up, paused_since=paused_since, grace=grace
    )
    batch, next_due, more = _batch(recurrence, cursor, outlook, limit)
    latest = None
    if catch_up.kind == "latest" and not superseded:
        latest = _latest(recurrence, batch, outlook, more)
    entries = [_entry(found, outlook, latest) for found in batch]
    return Plan(entries, batch[-1].nominal if batch else cursor, next_due, more)


def _batch(
    recurrence: Recurrence, cursor: datetime, outlook: Outlook, limit: int
) -> tuple[list[Occurrence], datetime | None, bool]:
    until = outlook.now + timedelta(seconds=outlook.horizon)
    batch: list[Occurrence] = []
    for found in recurrence.after(cursor):
        # Not by due_at: jitter may put a later occurrence first, and none may wait for another.
        at = found.nominal + recurrence.spread_offset
        if outlook.held(found):
            return batch, None, False
        if at > until:
            return batch, at, False
        if len(batch) == limit:
            return batch, at, True
        batch.append(found)
    return batch, None, False


def _latest(
    recurrence: Recurrence, batch: list[Occurrence], outlook: Outlook, more: bool
) -> datetime | None:
    """The nominal moment of the newest missed occurrence that may fire, if it is in the batch."""
    found = next((o for o in reversed(batch) if outlook.may_be_latest(o)), None)
    if found is None:
        return None
    if not more:
        return found.nominal
    # Missed ones have due_at, and so nominal plus spread, before this: the search ends here.
    end = outlook.now - timedelta(seconds=outlook.grace) - recurrence.spread_offset
    for later in recurrence.kept_after(batch[-1].nominal):
        if later.nominal >= end:
            break
        if outlook.may_be_latest(later):
            return None
    return found.nominal


def _entry(found: Occurrence, outlook: Outlook, latest: datetime | None) -> LedgerEntry:
    missed = outlook.missed(found)
    reason = _reason(found, outlook, latest, missed)
    return LedgerEntry(
        nominal=found.nominal,
        due_at=found.due_at,
        local=found.local,
        mark=found.mark,
        verdict="fire" if reason is None else "skip",
        reason=reason,
        detail=found.excluded_by,
        caught_up=missed and reason is None,
        lag=max(0.0, (outlook.now - found.due_at).total_seconds()),
    )


def _reason(
    found: Occurrence, outlook: Outlook, latest: datetime | None, missed: bool
) -> Reason | None:
    """Why it doesn't fire, or None."""
    if found.excluded_by is not None:
        return "excluded"
    if outlook.paused(found):
        return "paused"
    if not missed:
        return None
    match outlook.catch_up.kind:
        case "none":
            return "catch_up"
        case "latest":
            return None if found.nominal == latest else "catch_up"
        case _:
            return None if outlook.within(found) else "catch_up"
