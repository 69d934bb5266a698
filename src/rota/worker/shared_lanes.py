"""Claims from sublanes: jobs with keys, and jobs under limits.

Protocol. What can start now is claimed, and nothing ahead (no prefetch): a job that waits here for a
slot would keep a place from others. A place is free when the outcome of its job is committed, which the
finisher does in batches: so lanes whose jobs have ended are told to the first claim after their flush,
and claims wait for that flush, which is a few milliseconds away. If it is lost (we die, or serve other
lanes), somebody finds the place within about a second: blocked sublanes are looked at again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any
from uuid import UUID

from rota.runtime.work import Work
from rota.store.limits import Ended, LimitStore
from rota.task import Task

MARK = "#"  # the last letter of the entry for a lane's sublanes; in a sublane, after the lane
_AT_ONCE = 3  # claims without a pause while there is something ready
_SOON = 0.05
_NEXT = 0.01  # until they are looked into again, where there were too few slots for all lanes
_NEVER = float("inf")


def is_shared(lane: str) -> bool:
    return lane.endswith(MARK)


def entry_of(lane: str) -> str:
    """Return the entry for the sublanes of a lane, which may be a sublane itself."""
    return lane.partition(MARK)[0] + MARK


def _add(sums: dict[str, Ended], lane: str, more: Ended) -> None:
    known = sums.get(lane, Ended(0, 0.0))
    sums[lane] = Ended(known.jobs + more.jobs, known.seconds + more.seconds)


def _merge(sums: dict[str, Ended], others: Mapping[str, Ended]) -> None:
    for lane, more in others.items():
        _add(sums, lane, more)


class SharedLanes:
    def __init__(self, store: LimitStore, tasks: Mapping[str, Task[..., Any]]) -> None:
        self._store = store
        self._limited = frozenset(name for name, task in tasks.items() if task.is_limited)
        self.entries: frozenset[str] = frozenset()  # of the lanes that are served
        self._ended: dict[str, Ended] = {}  # their outcomes are not written yet
        self._flushing: dict[str, Ended] = {}
        self._freed: dict[str, Ended] = {}
        self._in_vain = 0
        self._look_at = _NEVER  # when the next claim may find something

    def note_lanes(self, lanes: Iterable[str]) -> None:
        self.entries = frozenset(filter(is_shared, lanes))

    # -- places that become free

    def note_end(self, work: Work) -> None:
        if self.entries and entry_of(work.lane) in self.entries:
            ran = monotonic() - work.started if work.started else 0.0
            _add(self._ended, work.lane, Ended(1, ran))

    def flush_begins(self) -> None:
        _merge(self._flushing, self._ended)
        self._ended = {}

    def flush_ended(self) -> bool:
        """Return whether places may have become free."""
        _merge(self._freed, self._flushing)
        self._flushing = {}
        return bool(self._freed)

    @property
    def must_wait(self) -> bool:
        """Whether the next flush is going to free places, and none are free yet."""
        return bool(self._ended or self._flushing) and not self._freed

    # -- claiming

    async def claim(
        self, node: UUID, wanted: Mapping[str, int], most: int, tasks: Sequence[str]
    ) -> list[Any]:
        freed, self._freed = self._freed, {}
        lanes = {entry.removesuffix(MARK): count for entry, count in wanted.items()}
        try:
            return await self._store.claim_shared(node, lanes, most, tasks, freed)
        except BaseException:
            # Whether it was counted isn't known: as free places yes, as seconds no.
            _merge(self._freed, {lane: Ended(0, 0.0) for lane in freed})
            raise

    def hint(self) -> None:
        """Take in a hint: there may be something to claim."""
        self._look_at = 0.0

    def next_look(self) -> float:
        """Return the seconds until the next claim, at most, by what the last one has found."""
        return max(self._look_at - monotonic(), _NEXT)

    async def pause(self, short: bool) -> float:
        """Return the seconds until the next claim, at most. `short`: the last one found too little."""
        seconds = await self._pause(short)
        self._look_at = monotonic() + seconds
        return seconds

    async def _pause(self, short: bool) -> float:
        if not short:
            self._in_vain = 0
            return 0.0
        bases = [entry.removesuffix(MARK) for entry in sorted(self.entries)]
        seconds = await self._store.shared_pause(bases)
        if seconds is None:
            return _NEVER
        if seconds > 0:
            self._in_vain = 0
            return seconds
        self._in_vain += 1
        return 0.0 if self._in_vain <= _AT_ONCE else _SOON

    async def without_misplaced(self, node: UUID, rows: list[Any]) -> list[Any]:
        """Put jobs of limited tasks that lie in a plain lane into their sublanes; return the others.

        They were stored before their task had a limit.
        """
        if not self._limited:
            return rows
        lost = [row for row in rows if row["task"] in self._limited and MARK not in row["lane"]]
        if not lost:
            return rows
        await self._store.resort(node, [row["id"] for row in lost], [row["token"] for row in lost])
        return [row for row in rows if row not in lost]
