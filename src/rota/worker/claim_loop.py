"""Claims jobs and sees to it that they run: at their moment, in the right runner, within limits.

Protocol. A tick claims as much as can start soon, under a new token. What is not due yet waits in the
timing wheel; what is due waits for a slot of its runner; then the starter takes it (see
`rota.runtime.attempts` for the whole path). Nothing starts unless the node trusts its lease. The batch
is remembered until each of its jobs is accounted for; a claim whose answer was lost is found by
comparing what the database says we hold with what we know, and given back. Dying anywhere leaves
claimed rows, which the reaper returns.

When a claim returns fewer jobs than it asked for, the worker advertises that it is idle (see `idle`),
and claims again when a hint arrives, or after a pause: the more workers there are of its kind, the
longer, so that all of them together poll at a steady rate.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any
from uuid import UUID

from rota.config import Settings
from rota.core.demand import cap_demand, split_demand
from rota.core.wheel import Wheel
from rota.errors import StoreUnavailable
from rota.lib.ids import unit
from rota.runtime.heartbeat import Lease
from rota.runtime.lanes import ServedQueues
from rota.runtime.ticker import Service
from rota.runtime.work import StopReason, Work
from rota.store.batches import Batch
from rota.store.limits import LimitStore
from rota.store.rows import split_lane
from rota.store.work import LOWEST_RANK, LaneClaim, Returned, WorkStore
from rota.task import Task
from rota.worker.cursors import Cursors
from rota.worker.idle import NEVER, IdleAdvertisement
from rota.worker.outcomes import Outcomes
from rota.worker.reservations import Reservations
from rota.worker.shared_lanes import SharedLanes, entry_of, is_shared
from rota.worker.slots import Slots
from rota.worker.starter import Starter
from rota.worker.stock import Stock

log = logging.getLogger("rota.worker")

_LANES_EVERY = 2.0
_POLL_EVERY = 0.25  # seconds between the polls of all workers of a kind together, without hints
_LONGEST_POLL = 60.0
_POLL_WITHOUT_HINTS = 0.5  # of a worker that no hints reach
_NEXT_LANES = 0.01  # until other lanes are looked into, where there were too few slots for all
_HOLD_SECONDS = 2.0  # how long a due job may wait here for a slot before others get a chance


class Worker(Service):
    name = "worker"

    def __init__(
        self, store: WorkStore, tasks: Mapping[str, Task[..., Any]], settings: Settings,
        lease: Lease, served: ServedQueues, outcomes: Outcomes, starter: Starter,
    ) -> None:  # fmt: skip
        self._store = store
        self._tasks = tasks
        self._settings = settings
        self._lease = lease
        self._served = served
        self._outcomes = outcomes
        self.starter = starter
        starter.may_start = lambda: not self.draining
        self.slots = Slots(settings, starter.begin)
        self.cursors = Cursors()
        self.shared = SharedLanes(
            LimitStore(store.database), tasks, self.slots, settings,
            lambda node: node == lease.node_id,
        )  # fmt: skip
        self.stock = Stock(served)
        self.reservations = Reservations(
            store.database, settings, lease, self.stock, lambda: self.task_names
        )
        self.reservations.is_draining = lambda: self.draining
        self.reservations.changed = self.wake
        self.idle = IdleAdvertisement(store, settings.namespace, lease)
        self.draining = False
        self.hints_work = False  # whether LISTEN reaches us; otherwise we poll more often
        self.task_names = sorted(tasks)
        self._lanes: list[str] = []
        self._lanes_at = -_LANES_EVERY
        self._found: dict[str, int] = {}
        self._asked_all = False  # the last claim asked all lanes of which something fits
        self._seen_all = False  # the last claim took all there was; hints announce what is new
        self._held: Counter[str] = Counter()  # jobs of limited queues
        self._turn = 0
        self._wheel: Wheel[Work] = Wheel()
        self._wheel_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._reconcile = False
        self._unanswered: list[int] = []  # server processes whose answer to a claim is missing
        outcomes.ended = self._after_end

    def know_tasks(self, names: Sequence[str]) -> None:
        """Claim the jobs of these tasks from now on, and no others."""
        if list(names) != self.task_names:
            self.task_names = list(names)
            # Jobs of new ones may lie before the place where earlier claims have stopped.
            self.cursors.sweep_all()
            self.wake()

    # -- claiming

    async def tick(self) -> float:
        if self.draining or self.starter.keyless:
            await self.idle.leave()
            await self._settle(0)
            return 0.2
        # Without the database's time, nobody knows when a job's moment has come.
        if not self._lease.trusted or not self._lease.clock.known:
            return 0.2
        if self._reconcile:
            await self._give_back_unknown()
        self._seen_all = False
        # Due jobs that found no slot here for a while may find one elsewhere.
        for work in self.slots.take_waiting_since(monotonic() - _HOLD_SECONDS):
            self._let_go(work)
        demand = self.slots.demand(monotonic())
        # What waits for its moment takes no slot yet; but only so much is held as can start then.
        demand -= max(len(self._wheel) - self.slots.early_allowance(), 0)
        await self._settle(demand)
        # What is kept may also be promised to those that wait for their moment: it is left to them.
        kept = self.slots.keeps() and self.slots.free() > len(self._wheel)
        if demand < self.slots.worth_claiming() and not kept:
            return min(await self._be_full(), self.shared.settle_in())
        await self._refresh_lanes()
        wishes = self._wishes(demand)
        if self._lanes and not wishes:  # the limits of its queues are reached
            return await self._be_full()
        if kept:  # the other lanes had their turn when these slots were kept
            await self._claim_shared(wishes)
            return 0.0
        return await self._claim_all(wishes, demand)

    async def _claim_all(self, wishes: list[LaneClaim], demand: int) -> float:
        """Claim from plain lanes, then from sublanes. Return the pause until the next claim."""
        gated = self.slots.gates.lanes
        plain = [wish for wish in wishes if not is_shared(wish.lane) and wish.lane not in gated]
        bounded: dict[str, tuple[float, float | None]] = {}
        if self.stock.shapes:
            bounded = {
                wish.lane: bound for wish in plain if (bound := self.stock.bound_of(wish.lane))
            }
            plain = [wish for wish in plain if wish.lane not in bounded]
        claimed, short = await self._claim(plain) if plain else (0, True)
        if bounded:
            claimed += await self._claim_bounded(wishes, bounded)
        again = NEVER
        if self.shared.entries:
            more, again = await self._claim_shared(wishes)
            claimed += more
        if short and again > 0:
            if self.cursors.may_have_more(self._open_lanes()):  # which were not asked this time
                return _NEXT_LANES
            asked_all = self._asked_all and not self.slots.keeps()
            self._seen_all = self.hints_work and asked_all
            rest = await self._rest(max(demand - claimed, 1))
            return min(rest, again, self.shared.settle_in())
        await self.idle.withdraw(full=False)
        return 0.0

    async def _settle(self, demand: int) -> None:
        """Settle what we may run under limits, if it is time to."""
        if self.shared.settle_in() <= 0 and self._lease.trusted:
            await self.shared.settle(self._lease.node_id, demand)

    def note_asked(self) -> None:
        """Another node wants some of what we may run under limits, or has left us some."""
        if self.slots.gates.by_name:
            self.shared.asked = True
        self.wake()

    async def _claim_shared(self, wishes: list[LaneClaim]) -> tuple[int, float]:
        """Claim from sublanes what can start now. Return how much, and the pause until the next."""
        wanted = {wish.lane: wish.slots for wish in wishes if is_shared(wish.lane)}
        if self.stock.shapes:
            wanted = await self._without_waiting(wanted)
        free = max(self.slots.free() - len(self._wheel), 0)
        if self.shared.must_wait:
            free = 0  # the flush wakes us
        ahead = bool(self.slots.gates.lanes)  # what runs under allotments is claimed ahead
        if free <= 0:
            self._keep_slots(wishes, wanted)
            if not ahead:
                return 0, NEVER  # a free slot wakes us
        if not wanted:  # this time: there were too few slots for all lanes
            self.slots.keep_none()
            return 0, self.shared.next_look()
        node = self._lease.node_id
        sent = self._loop.time()
        cursors = [
            self.cursors.wish(lane.removesuffix("#"), slots, sent) for lane, slots in wanted.items()
        ]
        lows = {wish.lane: wish.rank for wish in cursors}
        try:
            rows = await self.shared.claim(node, wanted, free, self.task_names, lows)
            self._note_shared(wanted, rows)
            self._advance_shared(cursors, rows, sent)
            await self._take_placed(node, rows)
        except BaseException as error:
            self._doubt(error)
            raise
        finally:
            if free > 0:
                self.slots.keep_none()
        asked = sum(wanted.values())
        short = len(rows) < (asked if ahead else min(free, asked))
        return len(rows), await self.shared.pause(short, free)

    def _keep_slots(self, wishes: list[LaneClaim], wanted: Mapping[str, int]) -> None:
        """Keep slots for the next claim from sublanes, where other jobs would take them all.

        As many as is their part of what we ask for, and not many more than the last claim found.
        """
        if not wanted or self.shared.must_wait or not self.shared.look_is_due():
            self.slots.keep_none()
            return
        part = sum(wanted.values()) / sum(wish.slots for wish in wishes)
        found = sum(self._found.get(lane, 0) for lane in wanted)
        self.slots.keep(part, max(2 * found, 1))

    def _advance_shared(self, wishes: list[LaneClaim], rows: list[Any], sent: float) -> None:
        """Move the cursors of the lanes themselves. Sublanes know in the database where to begin."""
        last = {row["lane"]: row for row in rows}
        found = Counter(row["lane"] for row in rows)
        places = [
            (wish.lane, last[wish.lane]["rank"], last[wish.lane]["id"])
            for wish in wishes
            if wish.lane in last
        ]
        counts = {wish.lane: found[wish.lane] for wish in wishes}
        self.cursors.advance(wishes, places, counts, sent, self._loop.time())

    def _note_shared(self, wanted: Mapping[str, int], rows: list[Any]) -> None:
        found = Counter(entry_of(row["lane"]) for row in rows)
        self._found = {**self._found, **{lane: found[lane] for lane in wanted}}
        self.idle.settle([LaneClaim(lane, slots) for lane, slots in wanted.items()], self._found)

    async def _take_placed(self, node: UUID, rows: list[Any]) -> None:
        """Take claimed jobs, without those that belong into sublanes."""
        placed = await self.shared.without_misplaced(node, rows)
        if placed:
            self._take(node, placed)
        elif rows:
            self._outcomes.close_unused(rows[0]["token"])

    def note_flush(self) -> None:
        """Claim again: what has ended is written, and there may be places under limits."""
        if self.shared.flush_ended():
            self.wake()

    def _doubt(self, error: BaseException) -> None:
        """Note that a claim may have been committed: what it took must not be forgotten."""
        self._reconcile = True
        if isinstance(error, StoreUnavailable) and error.backend is not None:
            self._unanswered.append(error.backend)

    async def _be_full(self) -> float:
        """Return the pause until a slot is free, or a job that waited for one too long is given back."""
        await self.idle.withdraw(full=True)
        return 0.2

    async def _rest(self, free: int) -> float:
        """Return the pause until the next claim, unless a hint or a free slot wakes us before."""
        poll = self._settings.poll
        if self.hints_work:
            poll = max(poll, min(self._lease.peers * _POLL_EVERY, _LONGEST_POLL))
            again = min(await self.idle.advertise(free), await self.idle.pass_on())
        else:
            poll, again = min(poll, _POLL_WITHOUT_HINTS), NEVER
        # No pause before each lane was swept from its start.
        sweep_in = max(self.cursors.next_sweep(self._open_lanes()) - self._loop.time(), 0.01)
        sweep_in = min(sweep_in, self.stock.next_look())
        return min(poll * (0.75 + unit() / 2), again, sweep_in)

    def _wishes(self, demand: int) -> list[LaneClaim]:
        self._turn += 1
        special = bool(self.stock.shapes)
        lanes = self.stock.open_lanes(self._lanes) if special else self._lanes
        shares = split_demand(demand, lanes, self._found, self._turn)
        if self._served.limits:
            shares = cap_demand(shares, self._room_by_queue())
        self._asked_all = len(shares) == len(lanes)
        if special:
            shares = self.stock.cap(shares)
            self._asked_all = self._asked_all and len(shares) == len(lanes)
        now = self._loop.time()
        return [
            LaneClaim(lane, slots) if is_shared(lane) else self.cursors.wish(lane, slots, now)
            for lane, slots in shares.items()
        ]

    def _room_by_queue(self) -> dict[str, int]:
        """Return how many more jobs of its limited queues this worker may have."""
        limits = self._served.limits
        return {queue: max(limit - self._held[queue], 0) for queue, limit in limits.items()}

    def _open_lanes(self) -> list[str]:
        """Return the lanes whose queue's limit isn't reached. Sublanes have no cursors."""
        room = self._room_by_queue()
        lanes = self._lanes
        if self.stock.shapes:  # what is near to others has no cursor either
            lanes = [
                lane for lane in self.stock.open_lanes(lanes) if self.stock.bound_of(lane) is None
            ]
        return [
            lane for lane in lanes if not is_shared(lane) and room.get(split_lane(lane)[0], 1) > 0
        ]

    async def _claim(self, wishes: list[LaneClaim]) -> tuple[int, bool]:
        """Claim jobs. Return how many, and whether no lane has more than we asked for."""
        sent = self._loop.time()
        node = self._lease.node_id
        try:
            rows = await self._store.claim(node, wishes, self.task_names)
            self._note_found(wishes, rows, sent)
            if rows:
                await self._take_placed(node, rows)
        except BaseException as error:
            self._doubt(error)
            raise
        return len(rows), all(self._found[wish.lane] < wish.slots for wish in wishes)

    async def _claim_bounded(
        self, wishes: list[LaneClaim], bounds: Mapping[str, tuple[float, float | None]]
    ) -> int:
        """Claim from lanes of which only some jobs may be taken now."""
        node = self._lease.node_id
        slots = {wish.lane: wish.slots for wish in wishes if wish.lane in bounds}
        try:
            rows = await self._store.claim_bounded(node, slots, bounds, self.task_names)
            found = Counter(row["lane"] for row in rows)
            for lane, asked in slots.items():
                self._found[lane] = found[lane]
                self.stock.looked(lane, found[lane], asked, self._lease.peers * _POLL_EVERY)
            if rows:
                await self._take_placed(node, rows)
        except BaseException as error:
            self._doubt(error)
            raise
        return len(rows)

    async def _without_waiting(self, wanted: Mapping[str, int]) -> dict[str, int]:
        """Leave out the sublanes that are near to other nodes, until one of their jobs has waited."""
        bounds = {lane: bound for lane in wanted if (bound := self.stock.bound_of(lane))}
        if not bounds:
            return dict(wanted)
        waited = await self._store.lanes_waited(
            {lane: seconds for lane, (seconds, _) in bounds.items()}, self.task_names
        )
        for lane in bounds:
            self.stock.looked(lane, int(lane in waited), 1, self._lease.peers * _POLL_EVERY)
        return {lane: n for lane, n in wanted.items() if lane not in bounds or lane in waited}

    def _note_found(self, wishes: list[LaneClaim], rows: list[Any], sent: float) -> None:
        """Move the cursors. Rows are ordered by rank and id: the last of each lane is the next start."""
        found = dict.fromkeys((wish.lane for wish in wishes), 0)
        last: dict[str, Any] = {}
        if len(wishes) == 1 and rows:
            found[wishes[0].lane], last[wishes[0].lane] = len(rows), rows[-1]
        else:
            for row in rows:
                found[row["lane"]] += 1
                last[row["lane"]] = row
        self._found.update(found)
        places = [(lane, row["rank"], row["id"]) for lane, row in last.items()]
        self.cursors.advance(wishes, places, found, sent, self._loop.time())
        self.idle.settle(wishes, found)

    def _take(self, node: UUID, rows: list[Any]) -> None:
        token: int = rows[0]["token"]
        if node != self._lease.node_id or self.draining:
            # Meanwhile declared dead (then this is refused), or asked to stop.
            self._outcomes.give_back([Returned(row["id"], token) for row in rows])
            return
        self._outcomes.open_batch(token, len(rows))
        for row in rows:
            try:
                self._accept(row)
            except Exception as error:
                # It belongs to a batch that is open here: nobody else would give it back.
                log.exception("job %s was claimed and can't be accepted", row["id"])
                self._outcomes.fail_claimed(row["id"], token, row["crashes"], error)
        self._arm_wheel()

    def _accept(self, row: Any) -> None:
        work = self.starter.accept(row)
        if work is None:
            return
        if "=" in work.lane and not self.stock.take(work):
            self._outcomes.return_unstarted(work)  # no claim should bring it; it must not start
            return
        if self._served.limits:
            work.queue = split_lane(work.lane)[0]
            self._held[work.queue] += 1
        if (early := row[-1]) is not None:  # by position: for each job
            self._wheel.add(self._lease.clock.local(early), work)
        else:
            self._admit(work)

    # -- starting

    def _admit(self, work: Work) -> None:
        """Give a due job a slot of its runner, now or when one is free."""
        if self.draining:
            self._let_go(work)
        else:
            self.slots.put(work, self._tasks[work.task].runner, monotonic())

    def _arm_wheel(self) -> None:
        if self._wheel_timer is not None:
            self._wheel_timer.cancel()
            self._wheel_timer = None
        due = self._wheel.next_due()
        if due is not None:
            self._wheel_timer = self._loop.call_at(due, self._turn_wheel)

    def _turn_wheel(self) -> None:
        self._wheel_timer = None
        for work in self._wheel.pop_due(self._loop.time()):
            self._admit(work)
        self._arm_wheel()

    def _after_end(self, work: Work) -> None:
        """Free the slot of a job that has ended or was given back."""
        if work.queue is not None or self.stock.held:
            self._uncount(work)
        if self.shared.entries:
            self.shared.note_end(work)
        # A free slot is a reason to claim only while there may be something to find.
        gated = bool(work.gates)
        low = self.slots.release(work)
        if gated:
            if self.slots.gates.is_low(work):
                self.wake()
        elif low and not self._seen_all:
            self.wake()

    # -- hints and signals

    def hint(self, lane: str, rank: int, count: int, to_us_alone: bool) -> None:
        if lane in self._served:
            shared = "#" in lane
            if shared:
                lane = entry_of(lane)
            if self.stock.shapes and lane in self.stock.shapes:
                self.stock.hinted(lane)
                if to_us_alone and not self.stock.open_lanes([lane]):
                    self.reservations.pass_to_all(lane, rank, count)
                    to_us_alone = False
            if to_us_alone:
                self.idle.pending.add(lane, rank, count)
            if lane not in self._lanes or rank == LOWEST_RANK:
                self._lanes_at = -_LANES_EVERY
            if shared:
                self.shared.hint()
            else:
                self.cursors.lower(lane, rank)
            self._found[lane] = self._found.get(lane, 0) or 1  # with few slots: before empty ones
            self.wake()

    def stop_job(self, id: UUID, token: int, reason: StopReason) -> None:
        """Stop a job, if it is here under this token."""
        work = self.slots.find(id)
        if work is not None and work.token == token:
            self.stop_work(work, reason)

    def stop_work(self, work: Work, reason: StopReason) -> None:
        if work in work.place.running and work not in self.starter.unmarked:
            work.place.runner.stop_work(work, reason)
        else:
            work.stopping = reason  # no runner has it yet: checked before one gets it

    # -- giving back

    async def _give_back_unknown(self) -> None:
        node = self._lease.node_id
        while self._unanswered:  # or the claim could still be committed after our look
            await self._store.database.end_backend(self._unanswered[-1])
            self._unanswered.pop()
        store, known = self._store.batches, self._outcomes.known_batches()
        unknown = [each for each in await store.open_ones(node) if each.token not in known]
        while unknown:
            parts = await store.parts(node, unknown)
            held = await store.held_jobs(node, parts)
            if held:
                jobs = [Returned(row["id"], row["token"]) for row in held]
                await self._store.give_back(node, jobs)
                log.warning("gave back %d jobs whose claim was never answered", len(jobs))
            if await store.close_parts(node, parts) < len(parts):
                return  # one of them is locked by somebody: another time
            unknown = [Batch(part.token, part.lane) for part in parts if not part.last]
        self._reconcile = False

    async def _refresh_lanes(self) -> None:
        now = self._loop.time()
        if now - self._lanes_at >= _LANES_EVERY:
            self._lanes_at = now  # before the look: a hint of a new lane during it asks for another
            try:
                rows = await self._store.lanes(self._settings.namespace)
            except BaseException:
                self._lanes_at = -_LANES_EVERY
                raise
            self._lanes = sorted(row["lane"] for row in rows if row["lane"] in self._served)
            self.shared.note_lanes(self._lanes)
            self.stock.note_lanes(self._lanes)

    # -- stopping

    def give_back_unstarted(self) -> None:
        """Return what hasn't begun to its queue, for a drain."""
        for work in (*self._wheel.clear(), *self.slots.take_waiting_since(float("inf"))):
            self._let_go(work)

    def _let_go(self, work: Work) -> None:
        """Return a job that never got a slot to its queue."""
        self._outcomes.return_unstarted(work)
        self._uncount(work)
        self.shared.note_end(work)

    def _uncount(self, work: Work) -> None:
        if self.stock.held and self.stock.release(work):
            self._seen_all = False
            self.wake()
        if work.queue is not None:
            self._held[work.queue] -= 1

    def stop_running(self, reason: StopReason) -> None:
        for work in self.slots.running_works():
            self.stop_work(work, reason)

    def abandon(self) -> None:
        """Drop everything: this node was declared dead, and nothing here is ours any more."""
        for work in (*self._wheel.clear(), *self.slots.take_waiting_since(float("inf"))):
            self._uncount(work)
        self.stop_running("lease")
        self.slots.gates.forget()
        self.cursors.sweep_all()
        self.idle.forget()
