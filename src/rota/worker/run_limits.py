"""Stops attempts that run longer than the maximum of their queue or of the installation.

Protocol. It concerns jobs without a timeout of their own: timeouts are watched by the runners. Once a
second it checks what runs on this node, which is never more than the node's slots. The maxima of
queues are read only while something runs for longer than a second, every few seconds. Whatever is over
its maximum is stopped as after a timeout. Dying loses nothing: the jobs are reaped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from rota.config import Settings
from rota.runtime.ticker import Service
from rota.runtime.work import StopReason, Work
from rota.store.rows import split_lane
from rota.store.work import WorkStore
from rota.worker.runners.results import describe_maximum
from rota.worker.slots import Slots

log = logging.getLogger("rota.worker")

_INTERVAL = 1.0
_READ_EVERY = 5.0
_WORTH_READING = 1.0  # seconds: shorter runs can't be over any maximum


class RunLimits(Service):
    name = "run_limits"

    def __init__(
        self, store: WorkStore, settings: Settings, slots: Slots,
        stop: Callable[[Work, StopReason], None],
    ) -> None:  # fmt: skip
        self._store = store
        self._settings = settings
        self._slots = slots
        self._stop = stop
        self._of_queues: dict[str, float] = {}
        self._read_at = -_READ_EVERY

    async def tick(self) -> float:
        now = monotonic()
        began = now - _WORTH_READING
        long = [
            w for w in self._slots.running_works() if w.timeout is None and 0 < w.started <= began
        ]
        if long and now - self._read_at >= _READ_EVERY:
            self._of_queues = await self._store.queue_maxima(self._settings.namespace)
            self._read_at = now
        for work in long:
            if work.stopping is None and self.is_over(work, monotonic()):
                log.warning("job %s (%s) ran longer than %s", work.id, work.task, work.maximum)
                self._stop(work, "maximum")
        return _INTERVAL

    def is_over(self, work: Work, now: float) -> bool:
        """Return whether it has run for longer than its maximum; `work.maximum` then says which."""
        if work.timeout is not None or not work.started:
            return False
        queue = split_lane(work.lane)[0] if work.lane else ""
        own = self._of_queues.get(queue)
        most = self._settings.max_run_time if own is None else own
        if not most or now - work.began < most:
            return False
        work.maximum = describe_maximum(most, None if own is None else queue)
        return True
