"""The lanes that a worker serves, and hints about them that only few workers were given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from rota.core.resources import Amounts, Shape, fits, shape_of
from rota.store.rows import split_lane
from rota.store.work import WorkStore


class ServedQueues:
    """The lanes that a worker serves: its queues (none named: all) with its capabilities.

    A queue may have a limit: how many of its jobs this worker has at a time.
    """

    def __init__(
        self, queues: Mapping[str, int | None], capabilities: Sequence[str],
        resources: Amounts | None = None, labels: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.queues = dict(queues)
        self.capabilities = frozenset(capabilities)
        self.resources: Amounts = resources or {}
        self.labels = frozenset(labels)
        self.limits = {queue: limit for queue, limit in queues.items() if limit is not None}

    def __contains__(self, lane: str) -> bool:
        queue, needs = split_lane(lane)
        if self.queues and queue not in self.queues:
            return False
        if self.capabilities.issuperset(needs):
            return True
        shape = shape_of(needs)
        return self.capabilities.issuperset(shape.capabilities) and fits(
            self.resources, shape.amounts
        )

    def is_far(self, shape: Shape) -> bool:
        """Return whether jobs of this shape would rather run on nodes with another label."""
        return shape.near is not None and shape.near not in self.labels


class PendingHints:
    """Hints that are kept until their jobs are claimed or the hint is passed on.

    By lane, the lowest rank that was announced and how many jobs are not claimed yet.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def add(self, lane: str, rank: int, count: int) -> None:
        lowest, so_far = self._lanes.get(lane, (rank, 0))
        self._lanes[lane] = (min(lowest, rank), so_far + count)

    def settle(self, lane: str, claimed: int, *, exhausted: bool = False) -> None:
        """Count jobs of the lane that were claimed. `exhausted`: others have claimed the rest.

        More were claimed than announced, and perhaps not all: PostgreSQL delivers equal notifications of
        one transaction once, so that many single submits announce one job. Another worker should look.
        """
        if lane in self._lanes:
            rank, count = self._lanes.pop(lane)
            if not exhausted and count != claimed:
                self._lanes[lane] = (rank, max(count - claimed, 1))

    async def pass_on(self, store: WorkStore, node: UUID, namespace: str) -> None:
        """Give what is pending to other workers."""
        if self._lanes:
            lanes, self._lanes = self._lanes, {}
            ranks, counts = zip(*lanes.values(), strict=True)
            await store.pass_on(node, namespace, list(lanes), ranks, counts)
