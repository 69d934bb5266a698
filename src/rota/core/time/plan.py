"""Decides about the occurrences of a schedule that are due by now.

`plan` takes the occurrences after the cursor whose moment (nominal plus spread) is within `horizon`
from now, and decides about each: none is left out.

An occurrence is *missed* when, as it is first looked at, it is overdue by more than 10 seconds: there
was an outage, or a pause. Otherwise it fires. A missed one is

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

_GRACE = timedelta(seconds=10)

Reason = Literal["catch_up", "excluded", "paused"]

# All reasons that the ledger may hold, in words: why an occurrence was skipped, or ran beside its rule.
REASONS = {
    "catch_up": "it was missed, and the catch-up policy does not make up for it",
    "paused": "the schedule was paused",
    "excluded": "its day is excluded",
    "overlap": "the run before it had not ended",
    "overlap_queue_full": "as many as allowed were already waiting for the run before them to end",
    "deleted": "the schedule was deleted before it could start",
    "triggered": "triggered by a user or a program",
    "backfilled": "backfilled by a user or a program",
}


class Decision(msgspec.Struct, frozen=True):
    """The decision about an occurrence: it fires, unless there is a reason to skip it."""

    found: Occurrence
    reason: Reason | None = None
    caught_up: bool = False

    @property
    def fires(self) -> bool:
        return self.reason is None


class Plan(msgspec.Struct, frozen=True):
    """The decisions, and where to go on.

    `next_due` is when the next occurrence has to be planned (less the horizon); None if there is
    none, or if it waits for a resume.
    """

    decisions: list[Decision]
    cursor: datetime
    next_due: datetime | None
    more: bool


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """The moment and the policy by which occurrences are judged. `horizon` is in seconds."""

    now: datetime
    horizon: float
    catch_up: CatchUp
    paused_since: datetime | None = None

    def missed(self, found: Occurrence) -> bool:
        return found.due_at < self.now - _GRACE

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
    recurrence: Recurrence, outlook: Outlook, cursor: datetime, limit: int = 1000, *,
    superseded: bool = False,
) -> Plan:  # fmt: skip
    """Decide about at most `limit` occurrences after the cursor; see the module.

    `superseded`: a later version of the schedule has missed ones of its own that may run, so that
    none of these is the latest.
    """
    batch, next_due, more = _batch(recurrence, cursor, outlook, limit)
    latest = None
    if outlook.catch_up.kind == "latest" and not superseded:
        latest = _latest(recurrence, batch, outlook, more)
    decisions = [_decide(found, outlook, latest) for found in batch]
    return Plan(decisions, batch[-1].nominal if batch else cursor, next_due, more)


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
    """Return the nominal moment of the newest missed occurrence that may fire, if it is in the batch."""
    found = next((o for o in reversed(batch) if outlook.may_be_latest(o)), None)
    if found is None:
        return None
    if not more:
        return found.nominal
    # Missed ones have due_at, and so nominal plus spread, before this: the search ends here.
    end = outlook.now - _GRACE - recurrence.spread_offset
    for later in recurrence.kept_after(batch[-1].nominal):
        if later.nominal >= end:
            break
        if outlook.may_be_latest(later):
            return None
    return found.nominal


def _decide(found: Occurrence, outlook: Outlook, latest: datetime | None) -> Decision:
    missed = outlook.missed(found)
    reason = _reason(found, outlook, latest, missed)
    return Decision(found, reason, caught_up=missed and reason is None)


def _reason(
    found: Occurrence, outlook: Outlook, latest: datetime | None, missed: bool
) -> Reason | None:
    """Return why it doesn't fire, or None."""
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
