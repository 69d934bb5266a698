"""One worker by a broker: the jobs of one runner, from their offers to their reports.

Protocol. See docs/guide/dispatch.md. The worker registers under a new id. It claims as many jobs as its
runner has room for; what arrives is *offered*. What can start now starts if the offer says so; for the
rest it calls `begin`, and starts what the answer lists. It starts once for each token, and only while it
can trust its lease: this is counted from
before the last heartbeat or claim that was answered, on the monotonic clock, so that an answer that was
long on its way shortens the trust and never extends it. Log lines and progress of an attempt are
reported before its outcome. A job is held, and named in heartbeats, from its offer until its outcome was
answered.

No answer: calls are repeated, for as long as it takes; handlers go on. Gone (410): the lease has run
out, and all that was held belongs to others. Handlers are stopped, what they did is not reported, and
the worker registers under another id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from time import monotonic
from typing import Any
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.core.demand import prefetch
from rota.core.rank import rank_of
from rota.lib.ids import new_id
from rota.model import Failure, Guarantee, Outcome, OutcomeKind
from rota.runtime.dispatch import Broker
from rota.runtime.dispatch.seal import Sealer
from rota.runtime.work import StopReason, Work
from rota.task import own_heartbeat_timeout
from rota.worker.dispatch.link import Gone, Link, NoAnswer, Refused
from rota.worker.dispatch.messages import (
    BeginAnswer,
    Claimed,
    HeartbeatAnswer,
    Held,
    Offer,
    Registered,
)
from rota.worker.dispatch.reports import JobToken, Reports, ticket
from rota.worker.runners.base import Runner

log = logging.getLogger("rota.dispatch")

_CLAIM_WAIT = 5.0  # seconds that a claim waits for jobs
_CLAIM_PATIENCE = 3.0  # and this much longer, until it is sent again
_MOST_CLAIMED = 100  # in one claim
_HOLD = 2.0  # seconds that an offer may wait for a place
_GATHER = 0.2  # seconds that log lines and progress wait for more
_RATE_SECONDS = 0.5


class Session:
    def __init__(
        self, broker: Broker, sealer: Sealer, settings: Settings, profile: Mapping[str, Any],
        tasks: Mapping[str, Any], heartbeat_timeouts: Mapping[str, float],
    ) -> None:  # fmt: skip
        """`profile`: the body of `register`, but for the id and the slots."""
        self._broker = broker
        self._sealer = sealer
        self._settings = settings
        self._profile = profile
        self._heartbeat_timeouts = heartbeat_timeouts
        self.link = self._new_link()
        self.runner: Runner | None = None  # set before it is started
        self._held: dict[JobToken, Work] = {}  # offered, running, or ended and not answered
        self.reports = Reports(settings, tasks, self._held, lambda: self.link)
        self._offered: deque[tuple[float, Work, bool]] = deque()  # since when, may start at once
        self._asking: list[Work] = []  # of those beginning, what `begin` is to be called for
        self._beginning: set[Work] = set()
        self._running: dict[Work, None] = {}
        self._alive: dict[Work, float] = {}
        self._seen = 0
        self._trusted_until = 0.0
        self._heartbeat_seconds = settings.heartbeat
        self._lease = settings.lease_seconds
        self.draining = False
        self._loops: list[asyncio.Task[None]] = []
        self._registered = asyncio.Event()
        self._room = asyncio.Event()  # there may be room for another claim
        self._to_begin = asyncio.Event()
        self._ended = 0
        self._rate = 0.0
        self._rated_at = 0.0

    def _new_link(self) -> Link:
        link = Link(self._broker, self._sealer, new_id())
        link.on_unexpected = self._give_back_unexpected
        return link

    @property
    def id(self) -> UUID:
        return self.link.worker

    # -- starting and stopping

    async def start(self) -> None:
        """Register, however long that takes."""
        self.link.start()
        await self._register()
        self._loops = [
            asyncio.create_task(loop())
            for loop in (self._claim, self._begin, self._finish, self._tell, self._beat)
        ]

    async def _register(self) -> None:
        assert self.runner is not None
        body = {**self._profile, "id": self.id, "slots": self.runner.size}
        sent = monotonic()
        answer = msgspec.json.decode(await self.link.call("register", body), type=Registered)
        self._heartbeat_seconds, self._lease = answer.heartbeat_seconds, answer.lease_seconds
        self._trusted_until = sent + self._lease
        self._registered.set()
        log.info("worker %s is registered", self.id)

    def count_running(self) -> int:
        return len(self._running)

    @property
    def busy(self) -> bool:
        return bool(self._running or self._beginning or self.reports.unfinished)

    def drain(self) -> None:
        """Claim no more, and give back what hasn't begun."""
        self.draining = True
        self.reports.let_go(work for _, work, _ in self._offered)
        self._offered.clear()
        self._room.set()

    def stop_running(self, reason: StopReason) -> None:
        assert self.runner is not None
        for work in list(self._running):
            self.runner.stop_work(work, reason)

    async def stop(self, seconds: float = 10.0) -> None:
        """Report what has ended, and leave."""
        loops, self._loops = self._loops, []
        with contextlib.suppress(TimeoutError, Refused):  # what isn't told is found by the lease
            async with asyncio.timeout(seconds):
                while self.reports.pending:
                    await self.reports.finish_all()
                if loops:
                    await self.link.call("leave", None)
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await self.link.stop()

    # -- claiming

    def _demand(self) -> int:
        assert self.runner is not None
        held = len(self._running) + len(self._beginning) + len(self._offered)
        return self.runner.size + prefetch(self._rate, self.runner.size) - held

    async def _claim(self) -> None:
        while True:
            self._room.clear()
            demand = 0 if self.draining else self._demand()
            if demand < max(1, prefetch(self._rate, 2 * _MOST_CLAIMED) // 2):
                await self._give_others_a_chance()
                continue
            await self._surely(partial(self._claim_once, min(demand, _MOST_CLAIMED)))

    async def _give_others_a_chance(self) -> None:
        """Wait until there is room. Offers that found none for a while may find it elsewhere."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HOLD / 4):
                await self._room.wait()
        late = monotonic() - _HOLD
        while self._offered and self._offered[0][0] < late:
            self.reports.let_go([self._offered.popleft()[1]])

    async def _claim_once(self, most: int) -> None:
        """Send one claim, and repeat it until it is answered: its jobs must not be forgotten."""
        wait = min(_CLAIM_WAIT, self._lease / 3)
        body = {"request": new_id().hex, "max": most, "wait": wait}
        link = self.link
        for attempt in count(1):
            sent = monotonic()
            try:
                answer = await link.call_once(
                    "claim", {**body, "attempt": attempt}, wait + _CLAIM_PATIENCE
                )
            except NoAnswer:
                continue
            claimed = msgspec.json.decode(answer, type=Claimed)
            self._trust(sent)
            self._stop_jobs(claimed.cancel, "cancel")
            self._accept(claimed.jobs)
            self._seen = max(self._seen, claimed.seen)
            return

    def _trust(self, sent: float) -> None:
        self._trusted_until = max(self._trusted_until, sent + self._lease)

    def _accept(self, offers: Sequence[Offer]) -> None:
        now = monotonic()
        for offer in offers:
            work = self._to_work(offer)
            self._seen = max(self._seen, work.token)
            self._held[work.id, work.token] = work
            if self.draining:
                self.reports.let_go([work])
            else:
                self._offered.append((now, work, offer.go))
        self._start_offered()

    def _to_work(self, offer: Offer) -> Work:
        headers = bytes(offer.headers).decode()
        own = own_heartbeat_timeout(headers)
        return Work(
            offer.job, offer.task, bytes(offer.payload), offer.token, offer.attempt,
            offer.max_attempts, Guarantee.parse(offer.guarantee), offer.timeout,
            rank=rank_of(offer.due_at, 0), key=offer.key, headers=headers,
            heartbeat_timeout=own or self._heartbeat_timeouts.get(offer.task),
        )  # fmt: skip

    def _give_back_unexpected(self, body: bytes) -> None:
        """Give back what was offered in answer to a claim that nobody waits for any more.

        If its jobs have been offered again under other tokens, this is refused.
        """
        with contextlib.suppress(msgspec.DecodeError):
            offers = msgspec.json.decode(body, type=Claimed).jobs
            works = [self._to_work(offer) for offer in offers]
            self.reports.let_go([work for work in works if (work.id, work.token) not in self._held])

    # -- beginning

    def _start_offered(self) -> None:
        """Start what has a place and may start, and have `begin` called for what has to ask first."""
        assert self.runner is not None
        while self._offered and len(self._running) + len(self._beginning) < self.runner.size:
            _, work, go = self._offered.popleft()
            if (work.id, work.token) not in self._held:
                continue
            if go:
                self._start_if_trusted(work, self._trusted_until)
            else:
                self._beginning.add(work)
                self._asking.append(work)
                self._to_begin.set()

    async def _begin(self) -> None:
        while True:
            await self._to_begin.wait()
            self._to_begin.clear()
            works, self._asking = self._asking, []
            try:
                if works:
                    await self._surely(partial(self._begin_some, works))
            finally:
                self._beginning.difference_update(works)
                self._start_offered()
                self._room.set()

    async def _begin_some(self, works: Sequence[Work]) -> None:
        sent = monotonic()
        body = {"jobs": [ticket(work) for work in works]}
        answer = msgspec.json.decode(await self.link.call("begin", body), type=BeginAnswer)
        go = {(held.job, held.token) for held in answer.go}
        # The answer may have been long on its way.
        trusted_until = min(self._trusted_until, sent + self._lease)
        for work in works:
            key = (work.id, work.token)
            if key not in self._held:  # lost meanwhile
                continue
            if key in go:
                self._start_if_trusted(work, trusted_until)
            else:
                self.reports.let_go([work])

    def _start_if_trusted(self, work: Work, until: float) -> None:
        if monotonic() < until and work.stopping is None and not self.draining:
            self._start(work)
        else:
            self.reports.let_go([work])

    def _start(self, work: Work) -> None:
        assert self.runner is not None
        self._running[work] = None
        try:
            self.runner.run(work)
        except Exception as error:
            log.exception("job %s could not be started", work.id)
            failure = Failure("NotStarted", f"{type(error).__name__}: {error}")
            outcome = Outcome(OutcomeKind.RAISED, failure=failure)
            asyncio.get_running_loop().call_soon(self.done, work, outcome)

    # -- ending

    def done(self, work: Work, outcome: Outcome) -> None:
        """Take the outcome of a work, from its runner."""
        try:
            if work.recorder is not None:
                work.recorder.close()
        except Exception:
            log.exception("the log of job %s could not be closed", work.id)
        self._running.pop(work, None)
        self._measure()
        if (work.id, work.token) in self._held:
            self.reports.add(work, outcome)
        self._start_offered()
        self._room.set()

    def _measure(self) -> None:
        self._ended += 1
        elapsed = monotonic() - self._rated_at
        if elapsed > _RATE_SECONDS:
            self._rate = self._ended / elapsed
            self._ended, self._rated_at = 0, monotonic()

    async def _finish(self) -> None:
        while True:
            await self.reports.to_finish.wait()
            self.reports.to_finish.clear()
            while self.reports.unfinished:
                await self._surely(self.reports.finish_all)

    # -- log lines and progress

    async def _tell(self) -> None:
        while True:
            await self.reports.to_tell.wait()
            self.reports.to_tell.clear()
            await asyncio.sleep(_GATHER)
            await self._surely(self.reports.tell_all)

    # -- heartbeats

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_seconds)
            await self._surely(self._beat_once)

    async def _beat_once(self) -> None:
        alive = [work for work in self._running if work.alive > self._alive.get(work, 0.0)]
        self._alive = {work: work.alive for work in self._running}
        sent = monotonic()
        body = {
            "jobs": [{"job": job, "token": token} for job, token in self._held],
            "alive": [ticket(work) for work in alive],
            "seen": self._seen, "draining": self.draining,
        }  # fmt: skip
        answer = await self.link.call_once("heartbeat", body, self._heartbeat_seconds)
        said = msgspec.json.decode(answer, type=HeartbeatAnswer)
        self._heartbeat_seconds, self._lease = said.heartbeat_seconds, said.lease_seconds
        self._trust(sent)
        self._stop_jobs(said.cancel, "cancel")
        for held in said.lost:
            self._lose(held.job, held.token)

    def _stop_jobs(self, jobs: Iterable[Held], reason: StopReason) -> None:
        assert self.runner is not None
        for held in jobs:
            work = self._held.get((held.job, held.token))
            if work in self._running:
                self.runner.stop_work(work, reason)
            elif work is not None and work.stopping is None:
                work.stopping = reason  # looked at before it starts

    def _lose(self, job: UUID, token: int) -> None:
        assert self.runner is not None
        work = self._held.pop((job, token), None)
        if work is None:
            return
        self.reports.forget(work)
        if work in self._running:
            log.warning("job %s is no longer ours: stopping it", job)
            self.runner.stop_work(work, "lease")

    async def _surely(self, doing: Callable[[], Awaitable[None]]) -> None:
        """Do it; whatever goes wrong, the loop goes on."""
        await self._registered.wait()
        link = self.link
        try:
            await doing()
        except Gone as error:
            if link is self.link:
                await self._be_somebody_else(link, error)
        except NoAnswer:
            pass
        except Refused as error:
            if error.status != 409 or not self.draining:
                log.error("a relay refuses: %s", error)
            await asyncio.sleep(1.0)
        except Exception:
            log.exception("worker %s", self.id)
            await asyncio.sleep(1.0)

    async def _be_somebody_else(self, link: Link, error: Gone) -> None:
        """Drop everything, and register anew: all that we held belongs to others."""
        log.warning("worker %s is gone: %s", link.worker, error)
        self._registered.clear()
        self.link = self._new_link()
        for job, token in list(self._held):
            self._lose(job, token)
        self._offered.clear()
        self._beginning.difference_update(self._asking)
        self._asking.clear()
        self._trusted_until = 0.0
        await link.stop()
        self.link.start()
        await self._register()
