"""Makes room on this node for a large job that has not fitted for long, and tells what is used here.

Protocol: docs/architecture.md, "Resources". A tick sends nothing while no lane asks for resources.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.core import resources
from rota.runtime.heartbeat import Lease
from rota.runtime.ticker import Service
from rota.store.database import Database
from rota.worker.stock import Stock

_EVERY = 1.0
_SHORTEST = 0.1


class Reservations(Service):
    name = "reservations"

    def __init__(
        self, database: Database, settings: Settings, lease: Lease, stock: Stock,
        task_names: Callable[[], list[str]],
    ) -> None:  # fmt: skip
        self._database = database
        self._settings = settings
        self._lease = lease
        self._stock = stock
        self._task_names = task_names
        self._mine = False  # this node may have a row
        self._told: tuple[UUID, resources.Amounts] | None = None
        self._cries: dict[str, tuple[int, int]] = {}
        self.changed: Callable[[], None] = lambda: None  # what may start is another from now on
        self.is_draining: Callable[[], bool] = lambda: False

    def pass_to_all(self, lane: str, rank: int, count: int) -> None:
        """Tell all workers of jobs that don't fit here now: a hint that only this node was given."""
        lowest, before = self._cries.get(lane, (rank, 0))
        self._cries[lane] = min(lowest, rank), before + count

    async def tick(self) -> float:
        every = min(_EVERY, self._settings.resource_patience / 4)
        if not self._lease.trusted:
            return _EVERY
        node, stock = self._lease.node_id, self._stock
        if self._cries:
            cries, self._cries = self._cries, {}
            for lane, (rank, count) in cries.items():
                await self._database.fetch(
                    "pass_to_all", self._settings.namespace, f"{lane} {rank} {count}"
                )
        asked = [] if self.is_draining() else stock.pressed(self._settings.resource_patience)
        if stock.reserved is not None and stock.reserved not in asked and not self.is_draining():
            # It fits by now; but its job may have gone elsewhere: then the reservation must end.
            asked.append(stock.reserved)
        if asked:
            self._mine = True
            # Whose patience ends before the next look has had it: nobody waits for longer than it says.
            reserved = await self._database.fetchval(
                "reserve", node, self._settings.namespace, asked,
                self._settings.resource_patience - every, self._task_names(),
            )  # fmt: skip
            if node == self._lease.node_id:
                self._settle(reserved)
        elif self._mine:
            self._settle(None)
            await self._database.fetch("end_reservation", node)
            self._mine = False
        await self._tell(node)
        return max(every, _SHORTEST) if self._stock.shapes else _EVERY

    def _settle(self, lane: str | None) -> None:
        if lane != self._stock.reserved:
            self._stock.reserve(lane)
            self.changed()

    async def _tell(self, node: UUID) -> None:
        """Write what is used, for those who look. What counts is in memory."""
        used = {name: units for name, units in self._stock.used.items() if units}
        if (used or self._told is not None) and self._told != (node, used):
            text = msgspec.json.encode(resources.to_json(used)).decode()
            await self._database.fetch("note_used", node, text)
            self._told = (node, used)
