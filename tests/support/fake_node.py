"""A node in the tables only: it claims, finishes and falls silent when the test says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota import App
from rota.config import Settings
from rota.context import Context, JobInfo
from rota.lib.ids import new_id
from rota.model import State
from rota.runtime.attempts import Verdicts, to_work
from rota.runtime.heartbeat import Lease
from rota.store.database import Database
from rota.store.work import Ended, LaneClaim, Retried, Returned, Succeeded, WorkStore
from rota.worker.effects import Effects
from rota.worker.finisher import Finisher
from rota.worker.runners.base import Channel

LANE = "default/default"


async def register_tasks(app: App, *names: str) -> None:
    """As if a node that has them had been there once, and had said nothing of their arguments."""
    async with (await app.store()).database.connection() as connection:
        await connection.execute(
            f"insert into {app.settings.schema}.task (namespace, name, queue, needs, priority,"
            " guarantee, max_attempts) select $1, name, 'default', '{}', 0, 1, 5"
            " from unnest($2::text[]) as name",
            app.settings.namespace, names,
        )  # fmt: skip


class FakeNode:
    def __init__(self, database: Database, settings: Settings, name: str = "fake") -> None:
        self.id = new_id()
        self.name = name
        self.database = database
        self.settings = settings
        self.store = WorkStore(database)
        verdicts, lease = Verdicts(self.id, settings.max_crashes), Lease()
        lease.node_id, lease.trusted_until = self.id, float("inf")
        finisher = Finisher(self.store, verdicts, lease.clock, None)
        self.lease = lease
        self.effects = Effects(database, settings, finisher, lease)

    async def register(
        self,
        *,
        roles: Sequence[str] = ("worker",),
        queues: Sequence[str] = (),
        capabilities: Sequence[str] = (),
        tasks: Sequence[str] = (),
        slots: int = 8,
    ) -> FakeNode:
        await self.database.fetch(
            "register_node", self.id, self.settings.namespace, self.name, "host", 1, "0", roles,
            self.settings.lease_seconds, queues, capabilities, tasks, slots,
        )  # fmt: skip
        return self

    async def heartbeat(self, running: int = 0, draining: bool = False) -> bool:
        """Whether the cluster still believes in this node."""
        lease = self.settings.lease_seconds
        return bool(await self.database.fetch("heartbeat", self.id, lease, running, draining))

    async def claim(
        self, *wishes: LaneClaim, tasks: Sequence[str] = ("greet",), lane: str = LANE
    ) -> list[Any]:
        """What it got, in rank order."""
        rows = await self.store.claim(self.id, wishes or [LaneClaim(lane, 1000)], tasks)
        return sorted(rows, key=lambda row: (row["rank"], row["id"]))

    async def claim_one(self, **options: Any) -> Any:
        [row] = await self.claim(**options)
        return row

    # -- every way to write about a claimed job: whether it was accepted

    async def finish_succeeded(self, row: Any) -> bool:
        done = Succeeded(row["id"], row["token"], 0, 0.0, '"done"')
        return await self.store.finish_succeeded(self.id, [done], 0.0) == 1

    async def finish_failed(self, row: Any, error: str = "ValueError") -> bool:
        text = msgspec.json.encode({"type": error, "message": "it broke"}).decode()
        done = Ended(row["id"], row["token"], State.FAILED, None, text, 0, 0, 0.0)
        return await self.store.finish_ended(self.id, [done], 0.0) == 1

    async def finish_cancelled(self, row: Any) -> bool:
        done = Ended(row["id"], row["token"], State.CANCELLED, None, None, 0, 0, 0.0)
        return await self.store.finish_ended(self.id, [done], 0.0) == 1

    async def retry_later(self, row: Any, delay: float = 60) -> bool:
        again = Retried(row["id"], row["token"], delay, None, 0, 0, 0.0)
        return await self.store.finish_retried(self.id, [again], 0.0) == 1

    async def retry_at_once(self, row: Any) -> bool:
        return await self.retry_later(row, 0)

    async def give_back(self, row: Any) -> bool:
        return await self.store.give_back(self.id, [Returned(row["id"], row["token"])]) == 1

    async def mark_started(self, row: Any) -> bool:
        return row["id"] in await self.store.mark_started(self.id, [row["id"]], [row["token"]])

    async def save_progress(self, row: Any, done: int = 1) -> None:
        text = msgspec.json.encode({"done": done}).decode()
        await self.store.save_progress(self.id, [row["id"]], [row["token"]], [text])

    async def once(self, row: Any, key: str, effect: Any) -> Any:
        work = to_work(row)
        context = Context(JobInfo.of(work), Channel(work, self.effects))
        return await context.once(key, effect)
