"""A queue is hardly deeper than its limit, its depth is the number of its jobs, and it opens again."""

from __future__ import annotations

from proof import quota_tasks as quotas
from proof.checker.facts import DepthRow, Facts, JobRow
from proof.checker.report import Found, Tally, line

_ENDED = 5  # from this state on


def depths_are_kept(facts: Facts, tally: Tally) -> Found:
    """Of jobs that nobody has brought back from the dead, no more were there at once than the limit, and
    what may be stored at the same moment."""
    limits = _limits(facts)
    if not limits:
        return
    rows = [row for row in _rows(facts) if row.id not in facts.steered["retry"]]
    tally["jobs of limited queues"] += len(rows)
    # Clients begin when the limit is set.
    moments = [(row.created_at, 1, row) for row in rows]
    moments += [(row.finished_at, -1, row) for row in rows if row.finished_at is not None]
    depth, most = 0, limits[0].max_depth + quotas.AT_ONCE
    for at, change, row in sorted(moments, key=lambda each: (each[0], each[1])):
        depth += change
        if depth > most:
            sentence = (
                f"{depth} jobs were there at {at:.3f}, and max_depth is {limits[0].max_depth}"
            )
            yield f"queue {quotas.QUEUE}", sentence, (line("db-job", row),)
            return


def depths_are_right(facts: Facts, tally: Tally) -> Found:
    """At the end the depth, and what has not been added to it, is the number of jobs; and a queue with
    room is open, but for what has not been added yet."""
    for row in _limits(facts):
        tally["depths"] += 1
        left = sum(1 for job in _rows(facts) if job.state < _ENDED)
        if row.jobs + row.unfolded != left:
            sentence = f"its depth is {row.jobs} and {row.unfolded:+d}, and it has {left} jobs"
            yield f"queue {row.queue}", sentence, (line("db-depth", row),)
        if row.shut and row.unfolded == 0 and row.jobs <= row.max_depth * 0.8:
            yield f"queue {row.queue}", "has room, and is shut", (line("db-depth", row),)


def _limits(facts: Facts) -> list[DepthRow]:
    return [row for row in facts.depths if row.queue == quotas.QUEUE]


def _rows(facts: Facts) -> list[JobRow]:
    return [row for row in facts.jobs.values() if row.task in quotas.TASKS]
