"""An operator who drains workers, one at a time, and lets them work again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

from proof.asking import REFUSALS, Asker
from proof.history import Operation
from rota import App
from rota.errors import StoreUnavailable
from rota.model import NodeStatus


class DrainOperator:
    """`now` is the history's clock; `process_of` names the process that registered as a node."""

    def __init__(
        self, app: App, random: Random, now: Callable[[], float],
        note: Callable[[Operation], None], process_of: Callable[[NodeStatus], str], *, pace: float,
    ) -> None:  # fmt: skip
        self._app = app
        self._random = random
        self._asker = Asker(random, now, note)
        self._process_of = process_of
        self._pace = pace
        self._one = asyncio.Lock()  # at a time
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await asyncio.sleep(self._random.expovariate(1 / self._pace))
            if not self.stopping:
                await self.drain_any(self._random.uniform(2, 25))

    async def leave(self, lease: float, seconds: float) -> None:
        """Once more, when what was broken is forgotten."""
        self.stopping = True
        await asyncio.sleep(2 * lease)
        await self.drain_any(seconds)

    async def drain_any(self, seconds: float) -> None:
        async with self._one:
            await self._drain_any(seconds)

    async def _drain_any(self, seconds: float) -> None:
        try:
            nodes = await self._app.nodes.list()
        except (StoreUnavailable, *REFUSALS):
            return
        workers = sorted((n for n in nodes if "worker" in n.roles), key=lambda node: str(node.id))
        if len(workers) > 1:
            node = self._random.choice(workers)
            if await self._ask("drain", node, self._app.nodes.drain):
                await asyncio.sleep(seconds)
                await self._ask("undrain", node, self._app.nodes.undrain)

    async def _ask(self, kind: str, node: NodeStatus, act: Callable[[UUID], Any]) -> bool:
        async def asked() -> dict[str, Any]:
            await act(node.id)
            return {}

        return await self._asker.ask(kind, str(node.id), asked, detail=self._process_of(node))
