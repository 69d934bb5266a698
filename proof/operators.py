"""Operators: at random they make, change, pause, resume, trigger, backfill, rename and delete schedules,
cancel, retry and discard jobs, and write down what they asked for and what they were told.

The simulation and the nemesis both have one. It asks until it has an answer: what was asked for in vain
may have been done all the same, so that an operation counts from the first time it was asked for to its
last answer (see `proof.asking`). Nobody else touches its schedules, so that each is as it left it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec

from proof.asking import Asker
from proof.history import Operation, SchedulePromise
from proof.spoiling import WAYS
from rota import All, App, Latest, NoCatchUp
from rota.core.time.schedule import make_spec
from rota.errors import StoreUnavailable

_KINDS = {"all": All, "latest": Latest}
_OVERLAPS = ("allow", "skip", "queue", "kill")
_MOST = 9  # schedules at a time
_MOST_LINES = 2
_SLOW = "slow_tick"  # takes two seconds or more

Spoiler = Callable[[str, str], Awaitable[None]]  # of the schedule of a name, in one of those ways


class Operator:
    """`now` is the history's clock; `note` takes each operation when it is over."""

    def __init__(
        self, app: App, random: Random, now: Callable[[], float],
        note: Callable[[Operation], None], *, pace: float, tasks: Sequence[str],
        moves: Collection[str] = ("schedules", "jobs"), spoil: Spoiler | None = None,
    ) -> None:  # fmt: skip
        self._app = app
        self._random = random
        self._asker = Asker(random, now, note)
        self._pace = pace
        self._tasks = tasks
        self._moves = moves
        self._spoil = spoil if "spoil" in moves else None
        self._number = 0
        self.known: dict[str, SchedulePromise] = {}
        self._paused: set[str] = set()
        self._spoilt: set[str] = set()
        self.stopping = False

    @property
    def spoilt(self) -> list[str]:
        return sorted(self._spoilt)

    async def adopt(self, promises: Sequence[SchedulePromise]) -> None:
        """Create these first, and then play with them."""
        for promise in promises:
            await self._create(promise)

    async def begin(self, count: int) -> None:
        """Create so many, of any settings."""
        await self.adopt([self._choose() for _ in range(count)])

    async def run(self) -> None:
        moves: dict[Callable[[], Awaitable[None]], float] = {}
        if "schedules" in self._moves:
            moves |= {
                self._create_any: 3, self._update_any: 6, self._pause_any: 3, self._resume_any: 4,
                self._trigger_any: 2, self._backfill_any: 2, self._rename_any: 1,
                self._delete_any: 2, self._create_absurd: 0.5,
            }  # fmt: skip
        if "jobs" in self._moves:
            moves |= {self._cancel_any: 3, self._retry_any: 1.5, self._discard_any: 0.7}
        if self._spoil is not None:
            moves |= {self._spoil_any: 1, self._mend_any: 1.5}
        if "lines" in self._moves:
            moves |= {self._line_up: 1.5, self._delete_line: 1.5}
        while not self.stopping:
            await asyncio.sleep(self._random.expovariate(1 / self._pace))
            if not self.stopping:
                await self._random.choices(list(moves), list(moves.values()))[0]()

    async def leave(self, mend: float = 1.0, spoil: float = 0.0) -> None:
        """Whatever is paused goes on; whatever is spoilt is put right or deleted. With a chance `mend`
        below one some stay as they are, and with a chance `spoil` one is spoilt if none is, so that it
        is seen whether the others are on time beside it."""
        self.stopping = True
        for name in sorted(self._spoilt):
            fate = self._random.random()
            if fate < mend:
                await (self._update(name) if fate < 0.7 * mend else self._delete(name))
        for name in sorted(self._paused):
            await self._resume(name)
        if self._spoil is not None and not self._spoilt and self._random.random() < spoil:
            await self._spoil_any()

    async def pause_all(self) -> None:
        """Nothing more becomes due. One at a time: no two of them wait for each other's rows."""
        for name in sorted(self.known.keys() - self._paused):
            await self._pause(name)

    # -- schedules

    def _any(self) -> str | None:
        sound = sorted(self.known.keys() - self._spoilt)
        return self._random.choice(sound) if sound else None

    async def _create_any(self) -> None:
        if len(self.known) < _MOST:
            await self._create(self._choose())
        else:
            await self._delete_any()

    async def _create(self, promise: SchedulePromise) -> None:
        name = promise.name

        async def create() -> dict[str, Any]:
            await self._app.schedules.put(_spec(promise))
            return {"id": str((await self._app.schedules.get(name)).id)}

        if await self._asker.ask("create", name, create, schedule=promise):
            self._know(promise)

    def _know(self, promise: SchedulePromise) -> None:
        self.known[promise.name] = promise
        if promise.paused:
            self._paused.add(promise.name)

    async def _create_absurd(self) -> None:
        """Refused; or what was accepted works, and harms nobody."""
        promise = self._choose()
        absurd: dict[str, Any] = self._random.choice((
            {"catch_up": All(within=1e11)}, {"catch_up": Latest(within=1e300)},
            {"tags": ("a\0b",)}, {"tags": ("\ud800",)}, {"description": "\0"},
            {"payload": {"number": 1, "text": "\0"}}, {"max_queued": 10**12},
            {"max_running": 2**31}, {"options": {"timeout": 1e300}},
            {"options": {"priority": 10**9}},
        ))  # fmt: skip

        async def create() -> dict[str, Any]:
            await self._app.schedules.put(_spec(promise, **absurd))
            return {"id": str((await self._app.schedules.get(promise.name)).id)}

        said = {"schedule": promise, "detail": repr(absurd), "absurd": True}
        if await self._asker.ask("create", promise.name, create, **said):
            self._know(promise)

    async def _update_any(self) -> None:
        name = self._any()
        if name is not None:
            await self._update(name)

    async def _update(self, name: str) -> None:
        before = self.known[name]
        promise = before
        while promise == before:
            promise = self._choose(name)

        async def update() -> dict[str, Any]:
            await self._app.schedules.put(_spec(promise))
            return {}

        if await self._asker.ask("update", name, update, schedule=promise):
            self.known[name] = promise
            self._spoilt.discard(name)
            if before.paused:  # it said so itself, and doesn't any more: it goes on
                self._paused.discard(name)

    async def _pause_any(self) -> None:
        name = self._any()
        if name is not None:
            await self._pause(name)

    async def _pause(self, name: str) -> None:
        async def pause() -> dict[str, Any]:
            await self._app.schedules.pause(name)
            return {}

        if await self._asker.ask("pause", name, pause):
            self._paused.add(name)

    async def _resume_any(self) -> None:
        if self._paused:
            await self._resume(self._random.choice(sorted(self._paused)))

    async def _resume(self, name: str) -> None:
        async def resume() -> dict[str, Any]:
            await self._app.schedules.resume(name)
            return {}

        if await self._asker.ask("resume", name, resume):
            self._paused.discard(name)

    async def _trigger_any(self) -> None:
        name = self._any()
        if name is not None:

            async def trigger() -> dict[str, Any]:
                return {"id": str((await self._app.schedules.trigger(name)).job_id)}

            await self._asker.ask("trigger", name, trigger)

    async def _backfill_any(self) -> None:
        name = self._any()
        if name is None:
            return
        every = self.known[name].every
        back, length = self._random.uniform(0, 100), self._random.randint(1, 12) * every
        parallel = self._random.choice((None, 1, 2))
        until: datetime | None = None

        async def backfill() -> dict[str, Any]:
            nonlocal until
            until = until or await (await self._app.store()).now() - timedelta(seconds=back)
            since = until - timedelta(seconds=length)
            filled = await self._app.schedules.backfill(name, since, until, max_parallel=parallel)
            return {"first": since.timestamp(), "end": until.timestamp(), "count": filled.count}

        await self._asker.ask("backfill", name, backfill)

    async def _rename_any(self) -> None:
        """As people do who have their schedules in files: one is deleted as the other is made."""
        name = self._any()
        if name is None or name in self._paused:
            return
        promise = msgspec.structs.replace(self.known[name], name=self._name(self.known[name]))

        async def rename() -> dict[str, Any]:
            await self._app.schedules.put_all([_spec(promise)], delete=[name])
            return {"id": str((await self._app.schedules.get(promise.name)).id)}

        if await self._asker.ask("rename", name, rename, schedule=promise):
            self._forget(name)
            self._know(promise)

    async def _delete_any(self) -> None:
        name = self._any()
        if name is not None and len(self.known) > 2:
            await self._delete(name)

    async def _delete(self, name: str) -> None:
        async def delete() -> dict[str, Any]:
            await self._app.schedules.delete(name)
            return {}

        if await self._asker.ask("delete", name, delete):
            self._forget(name)

    def _forget(self, name: str) -> None:
        del self.known[name]
        self._paused.discard(name)
        self._spoilt.discard(name)

    async def _spoil_any(self) -> None:
        """Write nonsense into a row, as somebody might, or a release that knows more than ours."""
        name, way = self._any(), self._random.choice(WAYS)
        if name is not None and name not in self._paused:

            async def spoil() -> dict[str, Any]:
                assert self._spoil is not None
                await self._spoil(name, way)
                return {}

            if await self._asker.ask("spoil", name, spoil, detail=way):
                self._spoilt.add(name)

    async def _mend_any(self) -> None:
        if self._spoilt:
            name = self._random.choice(sorted(self._spoilt))
            await (self._update(name) if self._random.random() < 0.8 else self._delete(name))

    # -- schedules whose jobs wait for each other

    def _lines(self) -> list[str]:
        slow = (known for known in self.known.values() if _is_line(known))
        return sorted(known.name for known in slow if known.name not in self._spoilt)

    async def _line_up(self) -> None:
        if len(self._lines()) < _MOST_LINES:
            await self._create(self._make_line())

    def _make_line(self) -> SchedulePromise:
        promise = SchedulePromise(
            name="", task=_SLOW, every=1, overlap="queue", max_queued=self._random.randint(1, 3)
        )
        return msgspec.structs.replace(promise, name=self._name(promise))

    async def _delete_line(self) -> None:
        if lines := self._lines():
            await self._delete(self._random.choice(lines))

    async def line_up_and_delete(self, jobs_wait: Callable[[str], Awaitable[None]]) -> None:
        """Make one, and delete it as soon as jobs of the schedule of this name wait for their turn."""
        line = self._make_line()
        await self._create(line)
        await jobs_wait(line.name)
        await self._delete(line.name)

    # -- jobs

    async def _cancel_any(self) -> None:
        state = self._random.choice(("running", "running", "ready", "waiting"))
        try:
            jobs = await self._app.jobs.list(state=state, limit=20)
        except StoreUnavailable:
            return
        if jobs:
            job = self._random.choice(sorted(str(job.id) for job in jobs))

            async def cancel() -> dict[str, Any]:
                return {"count": len(await self._app.jobs.cancel_many([job]))}

            await self._asker.ask("cancel", job, cancel)

    async def _retry_any(self) -> None:
        job = await self._dead()
        if job is not None:

            async def retry() -> dict[str, Any]:
                await self._app.jobs.retry(job)
                return {}

            await self._asker.ask("retry", job, retry)

    async def _discard_any(self) -> None:
        job = await self._dead()
        if job is not None:

            async def discard() -> dict[str, Any]:
                return {"count": len(await self._app.jobs.discard_many([job]))}

            await self._asker.ask("discard", job, discard)

    async def _dead(self) -> str | None:
        try:
            dead = await self._app.jobs.dead_letters(limit=20)
        except StoreUnavailable:
            return None
        return self._random.choice(sorted(map(str, dead))) if dead else None

    # -- what schedules say

    def _name(self, promise: SchedulePromise) -> str:
        self._number += 1
        return f"o{self._number}-{promise.every}s-{promise.overlap}"

    def _choose(self, name: str | None = None) -> SchedulePromise:
        """Any settings that go together."""
        random = self._random
        every = random.choice((1, 2, 3, 5, 10))
        promise = SchedulePromise(
            name="", task=random.choice(self._tasks), every=every,
            overlap=random.choice(_OVERLAPS),  # type: ignore[arg-type]
            catch_up=random.choice(("all", "latest", "none")),  # type: ignore[arg-type]
            within=random.choice((None, None, 5.0, 30.0)),
            spread=random.choice((0.0, 0.0, 0.5, 3.0, 15.0)),
            jitter=random.choice((0.0, 0.0, 0.25, 0.9)) * every,
            max_running=random.choice((None, None, 1, 2)), max_queued=random.randint(1, 3),
            drop=random.choice(("oldest", "newest")),  # type: ignore[arg-type]
            paused=name is None and random.random() < 0.1,
        )  # fmt: skip
        return msgspec.structs.replace(promise, name=name or self._name(promise))


def _is_line(promise: SchedulePromise) -> bool:
    return (promise.task, promise.every, promise.overlap) == (_SLOW, 1, "queue")


def _spec(promise: SchedulePromise, **more: Any) -> Any:
    kind = _KINDS.get(promise.catch_up)
    settings: dict[str, Any] = {
        "every": promise.every, "overlap": promise.overlap, "jitter": promise.jitter,
        "catch_up": kind(promise.within) if kind else NoCatchUp, "spread": promise.spread,
        "max_running": promise.max_running, "max_queued": promise.max_queued,
        "drop": promise.drop, "paused": promise.paused, "payload": {"number": promise.every},
    }  # fmt: skip
    return make_spec(promise.name, promise.task, **(settings | more))


async def create_schedules(app: App, promises: Sequence[SchedulePromise]) -> None:
    """Without an operator, for clusters whose schedules stay as they are."""
    for promise in promises:
        await app.schedules.put(_spec(promise))
