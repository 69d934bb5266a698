"""Whoever breaks things: which kinds and how often is drawn from the seed, and so is every single fault.

Swarm testing: each seed switches some kinds off altogether, since what is always there hides what only
happens without it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from proof.history import EVERYONE, KILL, PAUSE, SHUTDOWN, ClockStep, Fault
from proof.simulation import trouble
from proof.simulation.cluster import Cluster, Member, NodeMember

_HOUR = 3600.0
_PATIENCE = 10.0  # for an ambush
# What is written as the holder of a lease.
_AMBUSHED = {
    "claim": 1, "mark_started": 3, "begin_scheduled": 2, "finish_succeeded": 2, "finish_retried": 2,
    "finish_ended": 1, "give_back": 2, "due_schedules": 1, "fire": 1, "release": 1,
    "take_abandoned": 1,
}  # fmt: skip
_AMBUSHED_FUNCTIONS = {
    "record_checkpoints": 5, "suspend_function": 4, "wait_for_signal": 1, "call_jobs": 1,
}  # fmt: skip
_RUN = 3  # among the arguments of suspend_function
_ONE_AT_A_TIME = ("restart", "queue", "sqlstate")


class Nemesis:
    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._lease = cluster.settings.lease_seconds
        self.faults: list[Fault] = []
        self.counts: Counter[str] = Counter()
        self._under_way: list[str] = []
        self._hunted: Counter[str] = Counter()
        kinds: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "crash": self._crash, "pause": self._pause, "partition": self._partition,
            "stop": self._stop, "clock": self._move_clock, "restart": self._restart_database,
            "queue": self._pause_queue, "ambush": self._ambush,
        }  # fmt: skip
        # Seconds between two of them.
        self._rates = {kind: random.uniform(2, 20) for kind in kinds if random.random() < 0.65}
        if "ambush" in self._rates:  # most of them come to nothing
            self._rates["ambush"] /= 3
        self._kinds = kinds
        self._choose_weather()
        self.clock_steps: list[ClockStep] = []
        self._add_moves(Random(f"{cluster.seed} more faults"))

    @property
    def now(self) -> float:
        return self._cluster.loop.time()

    def _choose_weather(self) -> None:
        weather, random = self._cluster.gateway.network.weather, self._random
        rates = {"cut_before": 0.01, "cut_after": 0.01, "slow": 0.01, "hint_lost": 0.5,
                 "hint_doubled": 0.3}  # fmt: skip
        for name, most in rates.items():
            if random.random() < 0.5:
                setattr(weather, name, random.uniform(0, most))

    def _add_moves(self, random: Random) -> None:
        """With a randomness of their own: without them a seed is what it was before there were any."""
        self._more = random
        moves, weather = self._cluster.moves, self._cluster.gateway.network.weather
        if "errors" in moves and random.random() < 0.7:
            self._add("sqlstate", self._fail_statements, random.uniform(5, 25))
            weather.error_before = random.choice((0.0, 0.002, 0.01))
            weather.error_after = random.choice((0.0, 0.002, 0.01))
            count = random.randint(1, len(trouble.SQLSTATES))
            weather.sqlstates = tuple(random.sample(trouble.SQLSTATES, count))
        if "commits" in moves and random.random() < 0.6:
            weather.slow_commit = random.choice((0.01, 0.05, 0.2))
        if "narrow" in moves and random.random() < 0.3:
            weather.bytes_a_second = random.choice((60_000.0, 300_000.0))
        if "readers" in moves and random.random() < 0.7:
            self._add("reader", self._read_long, random.uniform(3, 20))
        if "functions" in moves and random.random() < 0.6:
            self._add("hunt", self._hunt, random.uniform(4, 15))
        if "clock" in moves and random.random() < 0.4:
            self._add("clock back", self._set_clock_back, random.uniform(15, 40))

    def _add(
        self, kind: str, action: Callable[[], Coroutine[Any, Any, None]], pause: float
    ) -> None:
        self._kinds[kind], self._rates[kind] = action, pause

    async def rage(self, seconds: float) -> None:
        """Break things for so long, then mend everything."""
        begun = self.now
        async with asyncio.TaskGroup() as group:
            for kind, pause in self._rates.items():
                group.create_task(self._repeat(group, kind, pause, begun + seconds))
            await asyncio.sleep(seconds)
        self._cluster.gateway.network.weather.clear()
        self.note("weather", EVERYONE, begun)

    async def _repeat(self, group: asyncio.TaskGroup, kind: str, pause: float, end: float) -> None:
        """Several of a kind may be under way at a time, on different members."""
        random = Random(self._random.random())
        while True:
            wait = random.expovariate(1 / pause)
            if self.now + wait >= end:
                return
            await asyncio.sleep(wait)
            if kind not in _ONE_AT_A_TIME or kind not in self._under_way:
                self._under_way.append(kind)
                task = group.create_task(self._kinds[kind]())
                task.add_done_callback(lambda _: self._under_way.remove(kind))

    def note(self, kind: str, target: str, at: float, detail: str = "") -> None:
        self.faults.append(Fault(at, self.now, kind, target, detail))
        self.counts[kind] += 1
        self._cluster.gateway.trace.add("nemesis", f"{kind} of {target}", detail)

    # -- the kinds

    def _victim(self, members: list[Member]) -> Member | None:
        able = [member for member in members if member.up and not member.troubled]
        return self._random.choice(able) if able else None

    def _nodes(self) -> list[Member]:
        return list(self._cluster.nodes)

    def _everyone(self) -> list[Member]:
        return [*self._cluster.nodes, *self._cluster.clients]

    async def _crash(self) -> None:
        victim = self._victim(self._everyone())
        if victim is not None and victim.process is not None:
            victim.troubled, name = True, victim.process.name
            victim.crash()
            self.note(KILL, name, self.now)
            await asyncio.sleep(self._random.choice((0.1, 1, 10)) * self._random.random())
            victim.boot()
            victim.troubled = False

    async def _hunt(self) -> None:
        """Kill a process inside a step of a durable function: rather of one that has lost one before."""
        inside = self._cluster.journal.inside
        runs = sorted(inside, key=lambda run: (-self._hunted[run], run))
        able = {each.process.name: each for each in self._cluster.nodes
                if each.process is not None and each.up and not each.troubled}  # fmt: skip
        for run in runs:
            if (victim := able.get(inside[run])) is not None and victim.process is not None:
                self._hunted[run] += 1
                victim.troubled, name = True, victim.process.name
                victim.crash()
                self.note(KILL, name, self.now)
                await asyncio.sleep(self._more.random())
                victim.boot()
                victim.troubled = False
                return

    async def _pause(self) -> None:
        victim = self._victim(self._everyone())
        if victim is not None and victim.process is not None:
            victim.troubled, begun, name = True, self.now, victim.process.name
            victim.pause()
            await asyncio.sleep(self._random.uniform(0.2, 3 * self._lease))
            victim.resume()
            victim.troubled = False
            self.note(PAUSE, name, begun)

    async def _partition(self) -> None:
        victim = self._victim(self._everyone())
        if victim is not None and victim.process is not None:
            victim.troubled, begun, name = True, self.now, victim.process.name
            ways = self._random.choice((("up", "down"), ("up",), ("down",)))
            network = self._cluster.gateway.network
            line = self._cluster.gateway.line(victim.process)
            network.block(line, ways)
            await asyncio.sleep(self._random.uniform(0.2, 4 * self._lease))
            network.heal(line)
            victim.troubled = False
            self.note("partition", name, begun, "+".join(ways))

    async def _ambush(self) -> None:
        """Cut off at the moment of a certain write, and for longer than the lease: it arrives when
        others hold what it is about, or it was done and the answer comes too late."""
        victim = self._victim(self._everyone())
        if victim is not None and victim.process is not None:
            process, gateway = victim.process, self._cluster.gateway
            line, query = gateway.line(process), "submit_jobs submit_made"  # of a client
            if isinstance(victim, NodeMember):
                writes = _AMBUSHED
                if "functions" in self._cluster.moves:
                    writes = _AMBUSHED | _AMBUSHED_FUNCTIONS
                query = self._random.choices(list(writes), list(writes.values()))[0]
            ways: tuple[str, ...] = self._random.choice((("up", "down"), ("up",), ("down",)))
            # The whole machine stands still, and what it had sent is on its way: after that it
            # gets an answer that was true for somebody else.
            frozen = self._random.random() < 0.5
            struck = asyncio.Event()
            sent: tuple[Any, ...] = ()

            def strike(arguments: tuple[Any, ...]) -> None:
                nonlocal sent
                sent = arguments
                gateway.network.block(line, ways)
                if frozen:
                    victim.pause()
                struck.set()

            victim.troubled = True
            gateway.lay_ambush(line, query, strike)
            stopping: asyncio.Future[None] | None = None
            if query == "give_back":  # which is hardly ever done but at a shutdown
                stopping = asyncio.ensure_future(self._shut_down(victim))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(struck.wait(), _PATIENCE)
            gateway.lift_ambush(line)
            if struck.is_set():
                begun, hold = self.now, self._random.uniform(0.8, 3) * self._lease
                await self._hold_back(query, sent, hold)
                gateway.network.heal(line)
                if frozen:
                    await asyncio.sleep(self._random.uniform(0, 1))
                    victim.resume()
                    self.note(PAUSE, process.name, begun)
                self.note("ambush", process.name, begun, f"{query} {'+'.join(ways)}")
            if stopping is not None:
                await stopping
            victim.troubled = False

    async def _hold_back(self, query: str, sent: tuple[Any, ...], seconds: float) -> None:
        """A suspension arrives when another node has taken over, and has not suspended it yet itself."""
        if query == "suspend_function":
            await self._cluster.journal.wait_for_opening(str(sent[_RUN]), seconds)
        else:
            await asyncio.sleep(seconds)

    async def _stop(self) -> None:
        victim = self._victim(self._nodes())
        if victim is not None:
            victim.troubled = True
            await self._shut_down(victim)
            victim.troubled = False

    async def _shut_down(self, victim: Member) -> None:
        assert isinstance(victim, NodeMember)
        assert victim.process is not None
        begun, name = self.now, victim.process.name
        await victim.stop()
        self.note(SHUTDOWN, name, begun)
        await asyncio.sleep(self._random.uniform(0, 5))
        victim.boot()

    async def _move_clock(self) -> None:
        victim = self._victim(self._everyone())
        if victim is not None and victim.process is not None:
            jump = self._random.choice((-_HOUR, _HOUR, self._random.uniform(-5, 5)))
            victim.wall_offset += jump
            victim.process.wall_offset = victim.wall_offset
            self.note("clock", victim.process.name, self.now, f"{jump:+.0f} s")

    async def _pause_queue(self) -> None:
        begun = self.now
        await self._cluster.steer(lambda app: app.queues.pause("other"))
        await asyncio.sleep(self._random.uniform(0.5, 10))
        await self._cluster.steer(lambda app: app.queues.resume("other"))
        self.note("queue", EVERYONE, begun)

    # -- and those of the moves

    async def _fail_statements(self) -> None:
        """A disk is full, say, for a while: nearly everything fails, or everything."""
        weather, random, begun = self._cluster.gateway.network.weather, self._more, self.now
        before = vars(weather).copy()
        sqlstate = random.choice(trouble.SQLSTATES)
        weather.sqlstates = (sqlstate,)
        rate = random.choice((0.2, 0.7, 1.0))
        weather.error_before, weather.error_after = random.choice(((rate, 0.0), (0.0, rate)))
        await asyncio.sleep(random.uniform(0.3, 2) * random.choice((1, 1, 5)))
        for name in ("sqlstates", "error_before", "error_after"):
            setattr(weather, name, before[name])
        self.note("sqlstate", EVERYONE, begun, sqlstate)

    async def _read_long(self) -> None:
        engine, table, begun = (
            self._cluster.gateway.engine,
            self._more.choice(trouble.TABLES),
            self.now,
        )
        reader = engine.open_reader(f"{self._cluster.settings.schema}.{table}")
        if reader is None:
            return
        await asyncio.sleep(self._more.uniform(2, 40))
        engine.close_reader(reader)
        self.counts["reader"] += 1
        self._cluster.gateway.trace.add("nemesis", f"reader of {table}", f"since {begun:.6f}")

    async def _set_clock_back(self) -> None:
        by = self._more.choice((0.3, 2.0, 12.0)) * self._more.random()
        self._cluster.gateway.engine.offset -= by
        self.clock_steps.append(ClockStep(self.now, -by))
        begun = self.now
        await asyncio.sleep(by + self._lease)  # until what was before has come again
        self.note("clock back", EVERYONE, begun, f"{by:.3f} s")

    async def _restart_database(self) -> None:
        begun = self.now
        self._cluster.gateway.stop()
        await asyncio.sleep(self._random.uniform(0.1, 6))
        self._cluster.gateway.start()
        self.note("restart", EVERYONE, begun)
