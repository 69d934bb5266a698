"""A timing wheel: things that wait for their moment, in millisecond slots.

Adding costs a dictionary look-up and, for the first of a slot, a heap push: a herd that is due in
the same moment is one slot, however large. Time is an argument, in seconds on any clock.
"""

from __future__ import annotations

import heapq
import math
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Wheel(Generic[Item]):
    def __init__(self) -> None:
        self._slots: dict[int, list[Item]] = {}
        self._order: list[int] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, due: float, item: Item) -> None:
        # Rounded up: a slot comes up when everything in it is due, never before.
        slot = math.ceil(due * 1000)
        items = self._slots.get(slot)
        if items is None:
            self._slots[slot] = [item]
            heapq.heappush(self._order, slot)
        else:
            items.append(item)
        self._count += 1

    def next_due(self) -> float | None:
        return self._order[0] / 1000 if self._order else None

    def pop_due(self, now: float) -> list[Item]:
        """Remove and return everything whose moment has come, in order."""
        due: list[Item] = []
        # In seconds, as next_due() returns them: a look at that very moment must find something.
        while self._order and self._order[0] / 1000 <= now:
            due.extend(self._slots.pop(heapq.heappop(self._order)))
        self._count -= len(due)
        return due

    def clear(self) -> list[Item]:
        everything = [item for slot in sorted(self._slots) for item in self._slots[slot]]
        self._slots.clear()
        self._order.clear()
        self._count = 0
        return everything
