"""Whoever breaks the coordination service: which kinds and how often is drawn from the seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from proof.simulation.coordinator.service import Service, State
from proof.simulation.loop import Process

Note = Callable[[str, str, float, str], None]


class ServiceNemesis:
    """Breaks a service until it is told to stop, and mends it."""

    def __init__(
        self, service: Service, random: Random, lease: float,
        schedulers: Callable[[], list[Process]], note: Note,
    ) -> None:  # fmt: skip
        self._service, self._random, self._lease = service, random, lease
        self._schedulers, self._note = schedulers, note
        self._backups: list[State] = []
        self._under_way: set[str] = set()
        kinds: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "away": self._stop, "hangs": self._hang, "cut off from it": self._cut,
            "ends sessions": self._end_sessions, "wiped": self._wipe, "restored": self._restore,
            "behind": self._lag, "clock of it": self._move_clock, "split": self._split,
        }  # fmt: skip
        self.rates = {
            kind: (action, random.uniform(4, 25))
            for kind, action in kinds.items()
            if random.random() < 0.6
        }
        weather = service.network.weather
        weather.cut_before = random.choice((0.0, 0.01, 0.05))
        weather.cut_after = random.choice((0.0, 0.01, 0.05))
        weather.slow = random.choice((0.0, 0.01, 0.05))

    @property
    def _now(self) -> float:
        return self._service.loop.time()

    async def rage(self, seconds: float) -> None:
        end = self._now + seconds
        async with asyncio.TaskGroup() as group:
            group.create_task(self._back_up(end))
            for kind, (action, pause) in self.rates.items():
                random = Random(self._random.random())
                group.create_task(self._repeat(kind, action, pause, random, end))
        self._service.network.weather.clear()

    async def _repeat(
        self, kind: str, action: Callable[[], Coroutine[Any, Any, None]], pause: float,
        random: Random, end: float,
    ) -> None:  # fmt: skip
        while self._now + (wait := random.expovariate(1 / pause)) < end:
            await asyncio.sleep(wait)
            await action()

    async def _back_up(self, end: float) -> None:
        while self._now + (wait := self._random.uniform(3, 15)) < end:
            await asyncio.sleep(wait)
            self._backups.append(self._service.backup())

    def _noted(self, kind: str, begun: float, detail: str = "") -> None:
        self._note(f"coordinator {kind}", self._service.name, begun, detail)

    # -- the kinds

    async def _stop(self) -> None:
        begun = self._now
        self._service.stop()
        await asyncio.sleep(self._random.choice((1, 1, 5)) * self._random.uniform(0.2, 4))
        if self._random.random() < 0.7:  # a leader that comes back gives everybody time
            self._service.extend(self._service.state)
        self._service.start()
        self._noted("away", begun)

    async def _hang(self) -> None:
        begun = self._now
        self._service.freeze()
        await asyncio.sleep(self._random.uniform(0.2, 5 * self._lease))
        self._service.thaw()
        self._noted("hangs", begun)

    async def _cut(self) -> None:
        """Some of the schedulers, while others reach it."""
        able = [
            each
            for each in self._schedulers()
            if not any(self._service.line(each).blocked.values())
        ]
        if not able:
            return
        begun, victim = self._now, self._random.choice(able)
        ways = self._random.choice((("up", "down"), ("up",), ("down",)))
        line = self._service.line(victim)
        self._service.network.block(line, ways)
        await asyncio.sleep(self._random.uniform(0.3, 6 * self._lease))
        self._service.network.heal(line)
        self._noted("cut off", begun, f"{victim.name} {'+'.join(ways)}")

    async def _end_sessions(self) -> None:
        """Some, or all, long before their time."""
        state = self._service.state
        part = self._random.choice((0.3, 1.0))
        ended = [s for s in list(state.sessions) if self._random.random() < part]
        self._service.disturbed_at = self._now
        for session in ended:
            self._service.end_session(state, session)
        self._noted("ends sessions", self._now, str(len(ended)))

    async def _wipe(self) -> None:
        await self._become("wiped", State())

    async def _restore(self) -> None:
        if self._backups:
            backup = self._backups[self._random.randrange(len(self._backups))]
            self._backups.clear()
            await self._become("restored", backup)

    async def _become(self, kind: str, state: State) -> None:
        begun, before = self._now, self._service.state.revision
        self._service.stop()
        await asyncio.sleep(self._random.choice((0.0, 0.1, 5.0)) * self._random.random())
        self._service.replace(state)
        self._service.start()
        self._noted(kind, begun, f"from {before} to {state.revision}")

    async def _lag(self) -> None:
        begun = self._now
        self._service.lag = self._random.uniform(0.2, 10)
        await asyncio.sleep(self._random.uniform(0.5, 8))
        self._service.lag = 0.0
        self._service.disturbed_at = self._now
        self._noted("behind", begun)

    async def _move_clock(self) -> None:
        by = self._random.choice((-1, 1)) * self._random.choice((0.5, 3.0, 40.0))
        self._service.offset += by
        self._service.disturbed_at = self._now
        self._noted("clock", self._now, f"{by:+.1f} s")

    async def _split(self) -> None:
        """It answers both halves of the schedulers, which don't see each other's writes."""
        if self._service.other is not None:
            return
        begun = self._now
        names = sorted({process.name.split(".")[0] for process in self._schedulers()})
        others = {name for name in names if self._random.random() < 0.5}
        self._service.split(others)
        await asyncio.sleep(self._random.uniform(1, 5 * self._lease))
        self._service.unite()
        self._noted("split", begun, ",".join(sorted(others)))
