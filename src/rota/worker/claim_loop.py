"""Claims jobs and sees to it that they run: at their moment, in the right runner, within limits.

Protocol. A tick claims as much as can start soon, under a new token. What is not due yet waits in the
timing wheel; what is due waits for a slot of its runner; what must be marked before it starts is marked
first, and starts only if the mark was accepted. Outcomes are judged and handed to the finisher. Nothing
starts unless the node trusts its lease. The batch is remembered until each of its jobs is accounted
for; a claim whose answer was lost is found by comparing what the database says we hold with what we
know, and given back. Dying anywhere leaves claimed rows, which the reaper returns.

When a look comes back short, the worker says that it is hungry (see `hunger`), and looks again when it
is told to, or after a while: the more workers there are of its kind, the longer, so that all of them
together look at a steady rate.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Protocol
from uuid import UUID

from rota.config import Settings
from rota.core.demand import cap_demand, split_demand
from rota.core.lifecycle import needs_mark
from rota.core.wheel import Wheel
from rota.errors import KeyMissing, NotAuthentic, StoreUnavailable
from rota.lib.encryption import ENVELOPE
from rota.lib.ids import unit
from rota.model import Failure, Guarantee, Outcome, OutcomeKind
from rota.runtime.clock import DatabaseClock
from rota.runtime.served_queues import ServedQueues as ServedQueues
from rota.store.batches import Batch
from rota.store.rows import split_lane
from rota.store.work import LaneClaim, Returned, WorkStore
from rota.task import Task, heartbeat_timeouts, own_heartbeat_timeout
from rota.worker.cursors import Cursors
from rota.worker.idle import NEVER, IdleAdvertisement
from rota.worker.outcomes import Outcomes
from rota.worker.runners.base import Runner, StopReason, Work
from rota.worker.slots import Slots

log = logging.getLogger("rota.worker")

_LANES_EVERY = 2.0
_LOOK_EVERY = 0.25  # of all workers of a kind together, without having been told to
_LONGEST_POLL = 60.0
_DEAF_POLL = 0.5  # of a worker that no hints reach
_HOLD_SECONDS = 2.0  # how long a due job may wait here for a slot before others get a chance
_KEYLESS_SECONDS = 30.0
_GUARANTEES = {int(guarantee): guarantee for guarantee in Guarantee}


class Lease(Protocol):
    """What a worker needs of its heartbeat."""

    node_id: UUID
    clock: DatabaseClock
    trusted_until: float  # monotonic
    peers: int  # live workers of the same kind

    @property
    def trusted(self) -> bool: ...


class Worker:
    name = "worker"

    def __init__(
        self, store: WorkStore, tasks: Mapping[str, Task[..., Any]], settings: Settings,
        lease: Lease, serves: ServedQueues, outcomes: Outcomes,
    ) -> None:  # fmt: skip
        self._store = store
        self._tasks = tasks
        self._settings = settings
        self._lease = lease
        self._served = serves
        self._outcomes = outcomes
        self.slots = Slots(settings, self._begin)
        self.cursors = Cursors()
        self.idle = IdleAdvertisement(store, settings.namespace, lease)
        self.draining = False
        self.hints_work = False  # whether LISTEN reaches us; otherwise we look more often
        self._task_names = sorted(tasks)
        self._heartbeat_timeouts = heartbeat_timeouts(tasks)
        self._lanes: list[str] = []
        self._lanes_at = -_LANES_EVERY
        self._found: dict[str, int] = {}
        self._seen_all = False  # the last look left nothing behind; what is new will be told
        self._held: Counter[str] = Counter()  # jobs of limited queues
        self._turn = 0
        self._keyless_until = 0.0  # monotonic: something is encrypted with a key that we don't have
        self._wheel: Wheel[Work] = Wheel()
        self._wheel_timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._reconcile = False
        self._unanswered: list[int] = []  # the server's processes that owe us the answer to a claim
        self._to_mark: list[tuple[Runner, Work]] = []
        self._unmarked: set[Work] = set()
        self._marking: asyncio.Task[None] | None = None
        self.wake: Callable[[], None] = lambda: None
        outcomes.ended = self._after_end

    def know_tasks(self, names: Sequence[str]) -> None:
        """From now on these are claimed, and no others."""
        if list(names) != self._task_names:
            self._task_names = list(names)
            # Jobs of new ones may lie behind where the looks of before have stopped.
            self.cursors.sweep_all()
            self.wake()

    @property
    def keyless(self) -> bool:
        """Whether it claims nothing for a while, for want of an encryption key."""
        return monotonic() < self._keyless_until

    @property
    def task_names(self) -> list[str]:
        return self._task_names

    # -- claiming

    async def tick(self) -> float:
        if self.draining or self.keyless:
            await self.idle.leave()
            return 0.2
        # Without having heard the database's time once, nobody knows when a job's moment has come.
        if not self._lease.trusted or not self._lease.clock.known:
            return 0.2
        if self._reconcile:
            await self._give_back_unknown()
        self._seen_all = False
        self._give_back_overdue()
        demand = self.slots.demand(monotonic())
        # What waits for its moment takes no slot yet; but only so much is held as can start then.
        demand -= max(len(self._wheel) - self.slots.early_allowance(), 0)
        if demand < self.slots.worth_claiming():
            return await self._be_full()
        await self._refresh_lanes()
        wishes = self._wishes(demand)
        if self._lanes and not wishes:  # the limits of its queues are reached
            return await self._be_full()
        claimed, short = await self._claim(wishes) if wishes else (0, True)
        if short:
            self._seen_all = self.hints_work and len(wishes) == len(self._lanes)
            return await self._rest(max(demand - claimed, 1))
        await self.idle.withdraw(full=False)
        return 0.0

    async def _be_full(self) -> float:
        """Until a slot comes free, or something that waited for one too long is to be given back."""
        await self.idle.withdraw(full=True)
        return 0.2

    async def _rest(self, free: int) -> float:
        """Until the next look, if nothing wakes us before: a hint, or a slot that comes free."""
        poll = self._settings.poll
        if self.hints_work:
            poll = max(poll, min(self._lease.peers * _LOOK_EVERY, _LONGEST_POLL))
            again = min(await self.idle.advertise(free), await self.idle.pass_on())
        else:
            poll, again = min(poll, _DEAF_POLL), NEVER
        # No rest before all was seen from its start.
        owed = max(self.cursors.next_sweep(self._open_lanes()) - self._loop.time(), 0.01)
        return min(poll * (0.75 + unit() / 2), again, owed)

    def _wishes(self, demand: int) -> list[LaneClaim]:
        self._turn += 1
        shares = split_demand(demand, self._lanes, self._found, self._turn)
        if self._served.limits:
            shares = cap_demand(shares, self._room_by_queue())
        now = self._loop.time()
        return [self.cursors.wish(lane, slots, now) for lane, slots in shares.items()]

    def _room_by_queue(self) -> dict[str, int]:
        """How many more jobs of its limited queues this worker may have."""
        limits = self._served.limits
        return {queue: max(limit - self._held[queue], 0) for queue, limit in limits.items()}

    def _open_lanes(self) -> list[str]:
        """Those whose queue's limit isn't reached."""
        room = self._room_by_queue()
        return [lane for lane in self._lanes if room.get(split_lane(lane)[0], 1) > 0]

    async def _claim(self, wishes: list[LaneClaim]) -> tuple[int, bool]:
        """How many jobs it brought, and whether no lane has more than we asked for."""
        sent = self._loop.time()
        node = self._lease.node_id
        try:
            rows = await self._store.claim(node, wishes, self._task_names)
            self._note_found(wishes, rows, sent)
            if rows:
                self._take(node, rows)
        except BaseException as error:
            # It may have been committed: whatever it took must not be forgotten.
            self._reconcile = True
            if isinstance(error, StoreUnavailable) and error.backend is not None:
                self._unanswered.append(error.backend)
            raise
        return len(rows), all(self._found[wish.lane] < wish.slots for wish in wishes)

    def _note_found(self, wishes: list[LaneClaim], rows: list[Any], sent: float) -> None:
        """Rows come ordered by rank and id: the last of each lane is where to go on from."""
        found = dict.fromkeys((wish.lane for wish in wishes), 0)
        last: dict[str, Any] = {}
        if len(wishes) == 1 and rows:
            found[wishes[0].lane], last[wishes[0].lane] = len(rows), rows[-1]
        else:
            for row in rows:
                found[row["lane"]] += 1
                last[row["lane"]] = row
        self._found = found
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
                # It is one of a batch that we know: nobody else would give it back.
                log.exception("job %s was claimed and can't be accepted", row["id"])
                self._outcomes.fail_claimed(row["id"], token, row["crashes"], error)
        self._arm_wheel()

    def _accept(self, row: Any) -> None:
        (id, task, payload, token, attempt, max_attempts, guarantee, timeout, crashes, rank, priority,
         key, headers, schedule, lane, early) = row  # fmt: skip
        work = Work(
            id, task, payload.encode(), token, attempt, max_attempts, _GUARANTEES[guarantee],
            timeout, crashes, rank, priority, key, headers, schedule, lane,
        )  # fmt: skip
        if payload.startswith(ENVELOPE) and not self._decrypt(work, payload):
            return
        if self._heartbeat_timeouts or headers is not None:
            own = own_heartbeat_timeout(headers)
            work.heartbeat_timeout = own or self._heartbeat_timeouts.get(task)
        if self._served.limits:
            work.queue = split_lane(lane)[0]
            self._held[work.queue] += 1
        if early is not None:
            self._wheel.add(self._lease.clock.local(early), work)
        else:
            self._admit(work)

    def _decrypt(self, work: Work, payload: str) -> bool:
        """Whether it can be read here. One that can't for want of a key goes to others, unharmed."""
        encryption = self._store.database.encryption
        try:
            work.payload, work.encryptor = encryption.opened_payload(payload, work.id, work.task)
        except KeyMissing as error:
            log.error("claiming nothing for %g s: %s", _KEYLESS_SECONDS, error)
            self._keyless_until = monotonic() + _KEYLESS_SECONDS
            self._outcomes.return_unstarted(work)
            return False
        except NotAuthentic as error:
            log.error("job %s can't be run: %s", work.id, error)
            self._outcomes.refuse(work, Failure("rota.errors.NotAuthentic", str(error)))
            return False
        self._outcomes.keep_encryptor(work)
        return True

    # -- starting

    def _admit(self, work: Work) -> None:
        """It is due: to a place of its runner, now or when one is free."""
        if self.draining:
            self._let_go(work)
        else:
            self.slots.put(work, self._tasks[work.task].runner, monotonic())

    def _begin(self, runner: Runner, work: Work) -> None:
        """It has got its place. What must be marked first is, together with others like it."""
        if work.stopping is not None:
            self._loop.call_soon(self._end_unstarted, work)
            return
        marked = work.schedule is not None or needs_mark(work.guarantee, work.crashes)
        if not marked and monotonic() < self._lease.trusted_until:
            self._run(runner, work)
            return
        # Without trust in our lease the mark asks the database, which decides.
        self._to_mark.append((runner, work))
        self._unmarked.add(work)
        if self._marking is None or self._marking.done():
            self._marking = asyncio.create_task(self._mark_and_start())

    def _run(self, runner: Runner, work: Work) -> None:
        try:
            runner.run(work)
        except Exception as error:
            # Such as no more threads. Its place must not be lost with it, nor the job.
            log.exception("job %s could not be started", work.id)
            failure = Failure("NotStarted", f"{type(error).__name__}: {error}")
            outcome = Outcome(OutcomeKind.RAISED, failure=failure)
            self._loop.call_soon(self._outcomes.done, work, outcome)

    async def _mark_and_start(self) -> None:
        while self._to_mark:
            marking, self._to_mark = self._to_mark, []
            node = self._lease.node_id
            verdicts = await self._mark(node, [work for _, work in marking])
            for runner, work in marking:
                self._unmarked.discard(work)
                fresh = node == self._lease.node_id and self._lease.trusted
                may_run = fresh and not self.draining and work.stopping is None
                verdict = verdicts.get(work.id)
                if verdict == "start" and may_run:
                    self._run(runner, work)
                elif verdict in ("skip", "wait"):
                    self._outcomes.moved_on(work)
                    self._after_end(work)
                else:
                    self._end_unstarted(work)

    def _end_unstarted(self, work: Work) -> None:
        # Given back; if it was cancelled, that is where its cancellation is written.
        self._outcomes.return_unstarted(work)
        self._after_end(work)

    async def _mark(self, node: UUID, works: list[Work]) -> dict[UUID, str]:
        """Whether each may start; a scheduled one may have to wait for another, or be skipped."""
        plain = [work for work in works if work.schedule is None]
        scheduled = [work for work in works if work.schedule is not None]
        verdicts: dict[UUID, str] = {}
        try:
            if plain:
                started = await self._store.mark_started(node, *_ids_and_tokens(plain))
                verdicts.update(dict.fromkeys(started, "start"))
            if scheduled:
                answers = await self._store.begin_scheduled(node, *_ids_and_tokens(scheduled))
                verdicts.update(answers)
        except Exception as error:
            # Whatever it is: a job that isn't surely marked doesn't start, and frees its slot.
            expected = isinstance(error, StoreUnavailable)
            log.warning(
                "could not mark jobs as started, giving them back: %s", error, exc_info=not expected
            )
        return verdicts

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
        """A job has ended, or was given back: its slot is free."""
        self._uncount(work)
        # A free slot is a reason to look only while there may be something to find.
        if self.slots.release(work) and not self._seen_all:
            self.wake()

    # -- hints and signals

    def hint(self, lane: str, rank: int, count: int, to_us_alone: bool) -> None:
        if lane in self._served:
            if to_us_alone:
                self.idle.pass_hint(lane, rank, count)
            if lane not in self._lanes:
                self._lanes_at = -_LANES_EVERY
            self.cursors.lower(lane, rank)
            self.wake()

    def stop_job(self, id: UUID, token: int, reason: StopReason) -> bool:
        """Whether the job was here, under this token, and is being stopped."""
        work = self.slots.find(id)
        if work is None or work.token != token:
            return False
        self.stop_work(work, reason)
        return True

    def stop_work(self, work: Work, reason: StopReason) -> None:
        if self.slots.is_running(work) and work not in self._unmarked:
            work.place.runner.stop_work(work, reason)
        else:
            work.stopping = reason  # no runner has it yet: looked at before one gets it

    # -- giving back

    def _give_back_overdue(self) -> None:
        """Due jobs that found no slot here for a while may find one elsewhere."""
        for work in self.slots.take_waiting_since(monotonic() - _HOLD_SECONDS):
            self._let_go(work)

    async def _give_back_unknown(self) -> None:
        node = self._lease.node_id
        while self._unanswered:  # or the claim could still arrive, after we have looked
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
            rows = await self._store.lanes(self._settings.namespace)
            self._lanes = sorted(row["lane"] for row in rows if row["lane"] in self._served)
            self._lanes_at = now

    # -- stopping

    def give_back_unstarted(self) -> None:
        """For a drain: whatever hasn't begun goes back to the queue."""
        for work in (*self._wheel.clear(), *self.slots.take_waiting_since(float("inf"))):
            self._let_go(work)

    def _let_go(self, work: Work) -> None:
        """It never got a place: back to the queue."""
        self._outcomes.return_unstarted(work)
        self._uncount(work)

    def _uncount(self, work: Work) -> None:
        if work.queue is not None:
            self._held[work.queue] -= 1

    def stop_running(self, reason: StopReason) -> None:
        for work in self.slots.running_works():
            self.stop_work(work, reason)

    def abandon(self) -> None:
        """This node was declared dead: nothing here is ours any more."""
        for work in (*self._wheel.clear(), *self.slots.take_waiting_since(float("inf"))):
            self._uncount(work)
        self.stop_running("lease")
        self.cursors.sweep_all()
        self.idle.forget()


def _ids_and_tokens(works: list[Work]) -> tuple[list[UUID], list[int]]:
    return [work.id for work in works], [work.token for work in works]
