"""The lanes that a worker serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rota.store.rows import split_lane


class ServedQueues:
    """The lanes that a worker serves: its queues (none named: all) with its capabilities.

    A queue may have a limit: how many of its jobs this worker has at a time.
    """

    def __init__(self, queues: Mapping[str, int | None], capabilities: Sequence[str]) -> None:
        self.queues = dict(queues)
        self.capabilities = frozenset(capabilities)
        self.limits = {queue: limit for queue, limit in queues.items() if limit is not None}

    def __contains__(self, lane: str) -> bool:
        queue, needs = split_lane(lane)
        return (not self.queues or queue in self.queues) and self.capabilities.issuperset(needs)
