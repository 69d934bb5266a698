"""How many jobs each queue holds, read in the same time however many there are.

Protocol. Reads only. Each lane's jobs are read by its index up to a limit: what has no more is counted
exactly, with how late it is. Beyond it, and where the future is large, the numbers are the planner's
estimates, and marked so: as good as the last analyze, which autovacuum sees to. (The future has no index
by lane: that would cost every delayed job something.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from rota.store import session
from rota.store.database import Store
from rota.store.estimates import estimated_rows, estimated_rows_of_each

HELD = 2_000  # jobs of a lane that are read one by one
WAITING = 50_000  # jobs of the future, and dead letters, that are counted one by one


class QueueCount(msgspec.Struct, kw_only=True):
    """The jobs of a queue. Not `exact`: some of the numbers are estimates, since there are many."""

    ready: int = 0
    running: int = 0
    scheduled: int = 0
    waiting: int = 0
    lag: float | None = None  # seconds that the oldest ready job has been due
    exact: bool = True


QueueCounts = dict[tuple[str, str], QueueCount]


class QueueCountStore(Store):
    async def read(
        self, namespace: str | None = None, queues: Sequence[str] | None = None, *,
        held: int = HELD, waiting: int = WAITING,
    ) -> QueueCounts:  # fmt: skip
        """Count the jobs of queues by namespace and name: of all, or of some. Those without any are
        left out."""
        lanes = await self._lanes(namespace, queues, held)
        found: QueueCounts = {}
        all_of = None if queues is not None else namespace or ""
        await self._present(found, lanes, held, all_of)
        whole = await estimated_rows(self.database, self.database.queries["all_future"])
        if whole <= waiting:
            for row in await self.database.fetch("future_by_queue", namespace, queues):
                count = found.setdefault((row["namespace"], row["queue"]), QueueCount())
                count.scheduled += row["scheduled"]
                count.waiting += row["waiting"]
        else:
            await self._future(found, lanes)
        return found

    async def _lanes(self, namespace: str | None, queues: Sequence[str] | None, held: int) -> Any:
        """Return what each lane holds, up to a limit.

        Always by the index: a planner that knows the table as it was when it was empty would read all
        of it for each lane.
        """
        async with self.database.transaction("estimate") as connection:
            await connection.execute(session.pinned_for_one_transaction())
            return await self.database.fetch(
                "present_by_lane", namespace, queues, held, on=connection
            )

    async def _present(
        self, found: QueueCounts, lanes: Sequence[Any], held: int, all_of: str | None
    ) -> None:
        """Count what is ready and runs. `all_of`: these are all lanes of a namespace ('': of all)."""
        crowded = [row["lane"] for row in lanes if row["held"] >= held]
        guesses = await self._guesses("ready_of_lane", "ready_of_sublanes", crowded)
        if crowded and all_of is not None:
            # How large the table is, the planner knows from its pages; which lanes its rows are in,
            # only from the last analyze. So what isn't in the other lanes is shared out among these.
            whole = await estimated_rows(
                self.database, self.database.queries["ready_of_namespace"], all_of
            )
            left = max(whole - sum(row["held"] for row in lanes if row["held"] < held), 0)
            expected = max(sum(guesses.values()), 1)
            guesses = {lane: left * guess // expected for lane, guess in guesses.items()}
        for row in lanes:
            if not row["held"]:
                continue
            count = found.setdefault((row["namespace"], row["queue"]), QueueCount())
            count.running += row["running"]
            count.ready += max(guesses.get(row["lane"], 0), row["held"]) - row["running"]
            count.exact &= row["held"] < held
            if row["lag"] is not None:
                count.lag = max(count.lag or 0.0, row["lag"])

    async def _future(self, found: QueueCounts, lanes: Sequence[Any]) -> None:
        named = [row["lane"] for row in lanes]
        scheduled = await self._guesses("scheduled_of_lane", "scheduled_of_sublanes", named)
        waiting = await self._guesses("waiting_of_lane", "waiting_of_sublanes", named)
        for row in lanes:
            # The planner never expects less than one row.
            later, held = (max(each.get(row["lane"], 0) - 1, 0) for each in (scheduled, waiting))
            if later or held:
                count = found.setdefault((row["namespace"], row["queue"]), QueueCount())
                count.scheduled += later
                count.waiting += held
                count.exact = False

    async def _guesses(self, lane: str, sublanes: str, lanes: Sequence[str]) -> dict[str, int]:
        """Return the planner's estimates for lanes; an entry of sublanes stands for all of these."""
        plain = [one for one in lanes if not one.endswith("#")]
        bases = [one for one in lanes if one.endswith("#")]
        return {
            **await estimated_rows_of_each(self.database, lane, plain),
            **await estimated_rows_of_each(self.database, sublanes, bases),
        }

    async def dead_by_task(self, most: int = WAITING) -> list[dict[str, Any]]:
        """Count dead letters by namespace and task: of many, those tasks that failed lately, about."""
        if await estimated_rows(self.database, self.database.queries["all_dead"]) <= most:
            return [dict(row) for row in await self.database.fetch("count_dead_by_task")]
        rows = await self.database.fetch("newest_dead_by_task", most)
        newest: Counter[str] = Counter()
        for row in rows:
            newest[row["task"]] += row["jobs"]
        whole = await estimated_rows_of_each(self.database, "dead_of_task", sorted(newest))
        # What the namespaces have of a task is as what they have of its newest.
        return [
            {
                "namespace": row["namespace"], "task": row["task"],
                "jobs": round(max(whole[row["task"]] / newest[row["task"]], 1.0) * row["jobs"]),
            }
            for row in rows
        ]  # fmt: skip
