"""Claims from sublanes: jobs with keys, and jobs under limits.

Protocol. What can start now is claimed, and nothing ahead (no prefetch): a job that waits here for a
slot would keep a place from others. Where jobs of plain lanes wait for each slot that becomes free, some
slots are kept from them for the next claim, as many as is the sublanes' part of what the worker asks
for: or a backlog of plain jobs would let none of the others start. A place is free when the outcome of
its job is committed, which the finisher does in batches: so lanes whose jobs have ended are told to the
first claim after their flush, and claims wait for that flush, which is a few milliseconds away. If it is
lost (we die, or serve other lanes), somebody finds the place within about a second: blocked sublanes are
looked at again.

Jobs that are only under limits of whole queues and tasks are claimed ahead, and run under allotments:
see `gates`. While this node has one it asks once a second what it may run, and at once when another node
wants some of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic
from typing import Any
from uuid import UUID

from rota.config import Settings
from rota.runtime.work import Work
from rota.store.limits import Ended, LimitStore
from rota.task import Task
from rota.worker.gates import Gate
from rota.worker.slots import Slots

MARK = "#"  # the last letter of the entry for a lane's sublanes; in a sublane, after the lane
_AT_ONCE = 3  # claims without a pause while there is something ready
_SOON = 0.05
_NEXT = 0.01  # until they are looked into again, where there were too few slots for all lanes
_NEVER = float("inf")
_LOOK_AGAIN = 1.0  # at most, until slots are kept for a look: a hint can be lost
_SETTLE_EVERY = 1.0


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
    def __init__(
        self, store: LimitStore, tasks: Mapping[str, Task[..., Any]], slots: Slots,
        settings: Settings, is_ours: Callable[[UUID], bool],
    ) -> None:  # fmt: skip
        self._store = store
        self._slots = slots
        self._settings = settings
        self._turn = 0  # rises with all that is told of our allotments
        self._is_ours = is_ours  # whether this is still the node's lease
        self.asked = False  # somebody wants what we have
        self._limited = frozenset(name for name, task in tasks.items() if task.is_limited)
        self.entries: frozenset[str] = frozenset()  # of the lanes that are served
        self._ended: dict[str, Ended] = {}  # their outcomes are not written yet
        self._flushing: dict[str, Ended] = {}
        self._freed: dict[str, Ended] = {}
        self._in_vain = 0
        self._look_at = _NEVER  # when the next claim may find something

    def note_lanes(self, lanes: Iterable[str]) -> None:
        entries = frozenset(filter(is_shared, lanes))
        if not entries <= self.entries:
            self.hint()
        self.entries = entries

    # -- places that become free

    def note_end(self, work: Work) -> None:
        if self.entries and not work.gates and entry_of(work.lane) in self.entries:
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
        self, node: UUID, wanted: Mapping[str, int], most: int, tasks: Sequence[str],
        lows: Mapping[str, int],
    ) -> list[Any]:  # fmt: skip
        """Claim from sublanes. `lows`: the rank to begin at, of lanes that have a cursor."""
        freed, self._freed = self._freed, {}
        lanes = {entry.removesuffix(MARK): count for entry, count in wanted.items()}
        gates, now = self._slots.gates, monotonic()
        self._turn += 1
        free, capacity = max(self._slots.free(), 0), self._slots.capacity()
        told = {
            "turn": self._turn, "free": free, "slots": capacity, "lows": lows,
            "full": Counter(lane.partition(MARK)[0] for lane in gates.full_lanes()),
            "held": gates.held(now, self._settings.prefetch, capacity),
        }  # fmt: skip
        try:
            rows, found = await self._store.claim_allotted(node, lanes, most, tasks, freed, told)
            # What another lease of this process was allowed is not ours.
            if found is not None and self._is_ours(node):
                gates.take(found.lanes, found.allowed, found.more, capacity, now)
                self._slots.open_gates()
            return rows
        except BaseException:
            # Whether it was counted isn't known: as free places yes, as seconds no.
            _merge(self._freed, {lane: Ended(0, 0.0) for lane in freed})
            raise

    def hint(self) -> None:
        """Take in a hint: there may be something to claim."""
        self._look_at = 0.0

    def look_is_due(self) -> bool:
        """Whether a claim may find something, by what the last one has found and the hints since."""
        return monotonic() >= self._look_at

    def next_look(self) -> float:
        """Return the seconds until the next claim, at most, by what the last one has found."""
        return max(self._look_at - monotonic(), _NEXT)

    async def pause(self, short: bool, free: int) -> float:
        """Return the seconds until the next claim, at most.

        `short`: the last one found too little. `free`: the slots that it had to fill.
        """
        seconds = await self._pause(short)
        if free > 0:
            self._look_at = monotonic() + min(seconds, _LOOK_AGAIN)
        return seconds

    async def _pause(self, short: bool) -> float:
        if not short:
            self._in_vain = 0
            return 0.0
        bases = [entry.removesuffix(MARK) for entry in sorted(self.entries)]
        seconds = await self._store.shared_pause(bases, self._slots.gates.full_lanes())
        if seconds is None:
            return _NEVER
        if seconds > 0:
            self._in_vain = 0
            return seconds
        self._in_vain += 1
        return 0.0 if self._in_vain <= _AT_ONCE else _SOON

    # -- allotments

    def settle_in(self) -> float:
        """Return the seconds until the allotments are to be settled."""
        gates = self._slots.gates.by_name.values()
        if not gates:
            return float("inf")
        if self.asked:
            return 0.0 if self._is_spare() else _SOON
        return max(min(gate.settled_at for gate in gates) + _SETTLE_EVERY - monotonic(), 0.0)

    def _is_spare(self) -> bool:
        gates = self._slots.gates.by_name.values()
        return any(gate.ceiling < gate.told or not gate.settled_at for gate in gates)

    async def settle(self, node: UUID, demand: int) -> None:
        """Tell what we can't use of our allotments, and learn what we may run."""
        gates = self._slots.gates
        for gate in list(gates.by_name.values()):
            if not gates.jobs(gate) and not gate.told:
                gates.drop(gate.name)
        self._slots.open_gates()
        known = sorted(gates.by_name.values(), key=lambda gate: gate.name)
        if not known:
            self.asked = False
            return
        free = max(min(self._slots.free(), demand), 0)
        wishes = [self._wish(gate, free) for gate in known]
        for gate, wish in zip(known, wishes, strict=True):
            gate.limit = min(gate.limit, wish)  # before it is told: nothing above it starts now
        self._turn += 1
        ceilings = [gate.ceiling for gate in known]
        answers = await self._store.settle_allotments(
            node, self._settings.namespace, self._turn, [gate.name for gate in known],
            ceilings, wishes,
        )  # fmt: skip
        if not self._is_ours(node):
            return
        now = monotonic()
        for gate, ceiling, wish in zip(known, ceilings, wishes, strict=True):
            gate.settled_at = now
            if gate.name not in answers:
                continue
            answer = answers[gate.name]
            if answer is None:
                gates.drop(gate.name)
            else:
                gate.limit, gate.told = answer, max(answer, ceiling)
                gate.unmet = answer < wish
        self._slots.open_gates()
        # What still runs above what we may run is given back as it ends.
        self.asked = any(gate.running > gate.limit for gate in gates.by_name.values())

    def _wish(self, gate: Gate, free: int) -> int:
        jobs = self._slots.gates.jobs(gate)
        return min(gate.most(self._slots.capacity()), jobs + (free if gate.more else 0))

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
