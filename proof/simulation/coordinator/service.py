"""A coordination service: keys that belong to sessions, and the network before it.

Protocol. A request arrives, is answered, and the answer arrives; each may be late or never come. What is
executed is executed at its arrival, however long ago its caller gave up. Sessions end by the service's
own clock, which can be set. The state is one value (`State`) that is copied for a backup, replaced by a
restore, and forked for a service that is split: then each half of the clients has a state of its own,
and one of them is thrown away in the end.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any, ClassVar, NamedTuple

import msgspec

from proof.simulation.loop import Process, SimLoop
from proof.simulation.network import Line, Network
from proof.simulation.trace import Trace

_KEPT = 20.0  # seconds of the past that a reader who is behind may see


class Entry(NamedTuple):
    """A key. `session` is None for one that outlives sessions, or has lost its own."""

    value: str
    created: int
    modified: int
    session: str | None


class Lease(msgspec.Struct):
    ttl: float
    ends: float  # by the service's clock


class State(msgspec.Struct):
    """What a service knows. `revision` rises with every write."""

    revision: int = 1
    keys: dict[str, Entry] = {}
    sessions: dict[str, Lease] = {}


class Refused(Exception):
    """There is nobody at that address."""


class Service:
    """What the three have in common; `answer` is what each does with a request."""

    name: ClassVar[str]
    scheme: ClassVar[str]
    deletes: ClassVar[bool] = True  # the keys of a session that ends; if not, they are set free

    def __init__(self, loop: SimLoop, network: Network, random: Random, trace: Trace) -> None:
        self.loop, self.network, self.random, self.trace = loop, network, random, trace
        self.offset = 0.0
        self.up, self.frozen = True, False
        self.state = State()
        self.other: State | None = None  # the other half's, while the service is split
        self.others: set[str] = set()  # the processes that are in it
        self.lag = 0.0  # of reads
        self.served: Counter[Process] = Counter()
        self.ended_by_time = 0
        self.disturbed_at = float("-inf")  # when it last broke what it had promised
        self._lines: dict[Process, Line] = {}
        self._held: list[Callable[[], None]] = []
        self._past: deque[tuple[float, dict[str, Entry]]] = deque()
        self._ids = 0

    # -- the network

    def line(self, process: Process) -> Line:
        return self._lines.setdefault(process, Line(process))

    async def call(self, process: Process, request: Any) -> Any:
        """Return the answer. It may never come: the caller has a time limit of its own."""
        answer: asyncio.Future[Any] = self.loop.create_future()
        self.send(process, lambda: self.deliver(process, request, answer))
        return await answer

    def send(self, process: Process, arrive: Callable[[], None]) -> None:
        """To the service. One that hangs takes what has arrived when it goes on."""

        def arrives() -> None:
            if self.frozen:
                self._held.append(arrive)
            elif not self.network.chance(self.network.weather.cut_before):
                arrive()

        self.network.send(self.line(process), "up", arrives)

    def reply(self, process: Process, deliver: Callable[[], None]) -> None:
        if not self.network.chance(self.network.weather.cut_after):
            self.network.send(self.line(process), "down", deliver)

    def deliver(self, process: Process, request: Any, answer: asyncio.Future[Any]) -> None:
        def finish(result: Any, error: Exception | None = None) -> None:
            if answer.done() or process.dead:
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(result)

        if not self.up:
            self.reply(process, lambda: finish(None, Refused("connection refused")))
            return
        result = self.execute(process, request)
        self.reply(process, lambda: finish(result))

    def execute(self, process: Process, request: Any) -> Any:
        state = self.state_of(process)
        self.end_overdue(state)
        result = self.answer(state, request)
        self.remember()
        self.served[process] += 1
        self.trace.add(process.name, f"{self.name} {request!r}"[:150], f"{result!r}"[:150])
        return result

    def answer(self, state: State, request: Any) -> Any:
        raise NotImplementedError

    # -- faults

    def stop(self) -> None:
        self.up = False

    def start(self) -> None:
        self.up = True

    def freeze(self) -> None:
        self.frozen = True

    def thaw(self) -> None:
        """What has arrived meanwhile comes before or after the ends of sessions that it would renew."""
        self.frozen = False
        if self.random.random() < 0.5:
            self.extend(self.state)
        held, self._held = self._held, []
        for arrive in held:
            arrive()

    def extend(self, state: State) -> None:
        """As a new leader does, who can't know who has renewed."""
        for lease in state.sessions.values():
            lease.ends = max(lease.ends, self.now + self.duration(lease.ttl))

    def backup(self) -> State:
        self.end_overdue(self.state)
        return deepcopy(self.state)

    def replace(self, state: State) -> None:
        """Restored, or wiped. Sessions of a backup live again, for as long as they had."""
        self.disturbed_at = self.loop.time()
        self.state = state
        self.extend(state)
        self._past.clear()

    def split(self, others: set[str]) -> None:
        self.disturbed_at = self.loop.time()
        self.other, self.others = deepcopy(self.state), others

    def unite(self) -> None:
        self.disturbed_at = self.loop.time()
        if self.random.random() < 0.5 and self.other is not None:
            self.state = self.other
        self.other, self.others = None, set()

    def end_session(self, state: State, session: str) -> None:
        state.sessions.pop(session, None)
        gone = [key for key, entry in state.keys.items() if entry.session == session]
        if gone:
            state.revision += 1
        for key in gone:
            if self.deletes:
                del state.keys[key]
            else:
                freed = state.keys[key]._replace(session=None, modified=state.revision)
                state.keys[key] = freed

    # -- time

    @property
    def now(self) -> float:
        return self.loop.time() + self.offset

    def state_of(self, process: Process) -> State:
        if self.other is not None and process.name.split(".")[0] in self.others:
            return self.other
        return self.state

    def duration(self, ttl: float) -> float:
        """For how long a session lives that was renewed now."""
        return ttl

    def renew(self, state: State, session: str) -> bool:
        lease = state.sessions.get(session)
        if lease is None:
            return False
        lease.ends = self.now + self.duration(lease.ttl)
        return True

    def open_session(self, state: State, ttl: float) -> str:
        self._ids += 1
        name = f"{0x7000 + self._ids:x}"
        state.sessions[name] = Lease(ttl, self.now + self.duration(ttl))
        return name

    def end_overdue(self, state: State) -> None:
        for session in [s for s, lease in state.sessions.items() if lease.ends <= self.now]:
            self.ended_by_time += 1
            self.end_session(state, session)

    def remember(self) -> None:
        moment = self.loop.time()
        self._past.append((moment, dict(self.state.keys)))
        while self._past[0][0] < moment - _KEPT:
            self._past.popleft()

    def readable(self, state: State) -> dict[str, Entry]:
        """What a reader sees: the state, or what it was a while ago."""
        if not self.lag or state is not self.state or not self._past:
            return state.keys
        self.disturbed_at = self.loop.time()
        wanted = self.loop.time() - self.lag
        seen = self._past[0][1]
        for moment, keys in self._past:
            if moment > wanted:
                break
            seen = keys
        return seen
