"""Why an occurrence was skipped, or ran beside its rule: every reason that the ledger may hold."""

from __future__ import annotations

REASONS = {
    "catch_up": "it was missed, and the catch-up policy does not make up for it",
    "paused": "the schedule was paused",
    "excluded": "its day is excluded",
    "overlap": "the run before it had not ended",
    "overlap_queue_full": "as many as allowed were already waiting for the run before them to end",
    "deleted": "the schedule was deleted before it could start",
    "triggered": "started by hand",
    "backfilled": "filled in by hand",
}
