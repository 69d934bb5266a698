"""Which rows of `bench.growth` may grow, why, and how far."""

from __future__ import annotations

import re
from typing import NamedTuple

from bench.growth_probes import Probe

_LOOK = "looks at 20,000 jobs at most, and goes on at a click"
_NAMES = "looks at 10,000 names at most, and goes on from there"
# A job that is looked at is an entry of an index and a row, each in a page of its own at worst.
_LOOKED_PAGES = 4 * 20_000


class Bound(NamedTuple):
    """What a row may grow to: so many pages at any size, or so many times; and why."""

    kind: str
    names: str  # a regular expression
    why: str
    pages: float | None = None  # at most so many, at any size
    ratio: float | None = None  # at most so many times with ten times as much

    def holds(self, probe: Probe) -> bool:
        return probe.kind == self.kind and re.fullmatch(self.names, probe.name) is not None


BOUNDS = (
    Bound("route", r"/v1/jobs(:whole)?(\?.*)?", _LOOK, pages=_LOOKED_PAGES),
    Bound("page", r"/(jobs|tasks/task0|endpoints/push|find)(\?.*)?", _LOOK, pages=_LOOKED_PAGES),
    Bound("route", r"/v1/tasks/.*/stats.*", _LOOK, pages=_LOOKED_PAGES),
    Bound("route", r"/v1/schedules\?.*", _NAMES, pages=2 * 10_000),
    Bound("page", r"/schedules\?.*", _NAMES, pages=2 * 10_000),
    Bound("page", r"/(calendar|forecast).*", "reads so many schedules, and the newest of the ledger",
          pages=60_000),
    Bound("page", r"/(dead|nodes/|jobs/changes).*", "reads the newest, up to a limit", pages=20_000),
    Bound("route", r"/v1/(dead|jobs/changes).*", "reads the newest, up to a limit", pages=20_000),
    Bound("route", "/v1/queues.*", "counts 2,000 jobs of a lane", pages=200_000),
    Bound("route", "/v1/schedules:lint", "checks every schedule, a page of them at a time", ratio=25),
    Bound("route", "/v1/schedules:latest", "reads 500 schedules", pages=20_000),
    Bound("route", r"/v1/history\?.*",
          "the first page passes over what ended earlier on the first day of the period", ratio=25),
    Bound("route", r"/v1/webhooks/.*/deliveries",
          "searches the jobs of a week, and is refused after a second", ratio=12),
    Bound("command", r"rota schedules (list|lint|forecast).*", "reads every schedule, page by page",
          ratio=25),
    Bound("command", r"rota jobs .*", _LOOK, pages=_LOOKED_PAGES),
    Bound("statement", "note_(missed_deadlines|queue_lag)",
          "reads what is ready, in a twentieth of the time", ratio=12),
    Bound("statement", "note_strays", "reads 20,000 jobs that are ready or run, the next ones each time",
          pages=60_000),
    Bound("statement", "sample_queues", "counts 2,000 jobs of a lane", pages=200_000),
    Bound("statement", "present_by_lane", "counts 2,000 jobs of a lane", pages=200_000),
    Bound("statement", "(future_by_queue|count_dead_by_task|newest_dead_by_task)",
          "up to 50,000 are counted; more are estimated", pages=60_000),
)  # fmt: skip


def bound_of(probe: Probe) -> Bound | None:
    return next((bound for bound in BOUNDS if bound.holds(probe)), None)
