"""Hints that only few workers were given, kept until their jobs are claimed or the hint is passed on."""

from __future__ import annotations

from uuid import UUID

from rota.store.work import WorkStore


class PendingHints:
    """By lane, the lowest rank that was announced and how many jobs are not claimed yet."""

    def __init__(self) -> None:
        self._lanes: dict[str, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def add(self, lane: str, rank: int, count: int) -> None:
        lowest, so_far = self._lanes.get(lane, (rank, 0))
        self._lanes[lane] = (min(lowest, rank), so_far + count)

    def settle(self, lane: str, claimed: int, *, exhausted: bool = False) -> None:
        """Count jobs of the lane that were claimed. `exhausted`: others have claimed the rest."""
        if lane in self._lanes:
            rank, count = self._lanes.pop(lane)
            if count > claimed and not exhausted:
                self._lanes[lane] = (rank, count - claimed)

    async def pass_on(self, store: WorkStore, node: UUID, namespace: str) -> None:
        """Give what is pending to other workers."""
        if self._lanes:
            lanes, self._lanes = self._lanes, {}
            ranks, counts = zip(*lanes.values(), strict=True)
            await store.pass_on(node, namespace, list(lanes), ranks, counts)
