"""The network between simulated processes and the simulated server: latency, loss, partitions.

Protocol. Each process has one `Line`. A message is one request or one reply of a session. It takes a
random time; a line that is blocked in its direction holds it until it is healed, as TCP would; and a
session may be cut at any message: before the server got it, or after it ran it and the answer is lost.
The server learns late that a killed process is gone, and a process that its server is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

from proof.simulation.loop import Process, SimLoop, context_of

_QUICKEST = 0.0002
_LONGEST = 8.0
_LONGEST_ON_A_GOOD_DAY = (
    1.5  # what takes longer is a fault, and faults end when a cluster is healed
)


class Weather:
    """How bad the network is, in general. Zero rates: a good day."""

    def __init__(self) -> None:
        self.cut_before = 0.0  # chances per message
        self.cut_after = 0.0
        self.slow = 0.0
        self.hint_lost = 0.0
        self.hint_doubled = 0.0
        self.error_before = 0.0  # chances per statement
        self.error_after = 0.0
        self.sqlstates: tuple[str, ...] = ()
        self.slow_commit = 0.0
        self.bytes_a_second = 0.0  # 0: any number

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]


class Line:
    """Between one process and the server."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.blocked = {"up": False, "down": False}
        self.held: dict[str, list[Callable[[], None]]] = {"up": [], "down": []}


class Network:
    def __init__(self, loop: SimLoop, random: Random, median: float, spread: float) -> None:
        self._loop = loop
        self.random = random
        self.weather = Weather()
        self._mean = math.log(median)
        self._spread = spread
        self._outside = context_of(None)

    def latency(self) -> float:
        random = self.random
        if self.weather.slow and random.random() < self.weather.slow:
            return random.uniform(0.1, _LONGEST)
        return min(
            _QUICKEST + math.exp(random.gauss(self._mean, self._spread)), _LONGEST_ON_A_GOOD_DAY
        )

    def after(self, seconds: float, action: Callable[..., None], *arguments: Any) -> Any:
        """Outside all processes: no fault of theirs stops it."""
        moment = self._loop.time() + seconds
        return self._loop.call_at(moment, action, *arguments, context=self._outside)

    def send(self, line: Line, direction: str, deliver: Callable[[], None]) -> None:
        self.after(self.latency(), self._arrive, line, direction, deliver)

    def _arrive(self, line: Line, direction: str, deliver: Callable[[], None]) -> None:
        if line.blocked[direction]:
            line.held[direction].append(deliver)
        else:
            deliver()

    def block(self, line: Line, directions: tuple[str, ...]) -> None:
        for direction in directions:
            line.blocked[direction] = True

    def heal(self, line: Line) -> None:
        for direction in ("up", "down"):
            line.blocked[direction] = False
            held, line.held[direction] = line.held[direction], []
            for deliver in held:
                self.send(line, direction, deliver)

    def chance(self, rate: float) -> bool:
        return rate > 0 and self.random.random() < rate
