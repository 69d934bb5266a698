"""Sends events to topics of brokers, at least once.

Protocol. A sink is a row with a position in the stream of events (`rota.store.events`), which misses
none. One node at a time sends (`sender`, with a lease). It reads the events after the position, sends
them one after the other, waits until the broker has confirmed each, and then moves the position from
what it was. A batch that takes too long is sent again, half as large: a slow line delays events, and
stops none.

Two releases may declare a sink with different targets: events go to one of them at a time, as long as a
node that declares that one sends, and the positions of the others are kept (`declare_sink`).

If we die before the position is moved, the events after it are sent again, by us or by another node,
with the same ids. So they are if the position is another by then, because a person has rewound the
sink. A node that hangs while it sends may go on after its lease, and repeat what another has sent. No
event is passed over: the position moves only past those that were confirmed, or that the filters left
out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from rota.app import App
from rota.core.cloudevents import cloud_event
from rota.model import Event
from rota.operations.sinks import SinkSpec
from rota.runtime.heartbeat import Heartbeat
from rota.runtime.ticker import Service
from rota.store.database import Database
from rota.store.events import EventStream, Position
from rota.worker.sources import SourceUnavailable
from rota.worker.targets import open_target

log = logging.getLogger("rota.sinks")

_LEASE = 30.0  # seconds for which a node sends without saying so again
_SEND = 20.0  # seconds that a batch may take: less than the lease
_BATCH = 200
_WAIT = 1.0


class Outbox(Service):
    """Sends to one sink."""

    def __init__(self, app: App, database: Database, heartbeat: Heartbeat, spec: SinkSpec) -> None:
        self.name = f"sink {spec.name}"
        self._database, self._heartbeat, self._spec = database, heartbeat, spec
        self._namespace = app.settings.namespace
        self._key = (self._namespace, spec.name)
        self._events = EventStream(database)
        self._target = open_target(spec.address)
        self._declared = False
        self._most = _BATCH  # events to send next: fewer while they take too long
        self._elsewhere = spec.target  # where events go, as far as we have told people

    async def tick(self) -> float:
        node: UUID = self._heartbeat.node_id
        target = self._spec.target
        if not self._declared:
            await self._database.fetch("declare_sink", *self._key, target, node)
            self._declared = True
        spec = self._spec
        rows = await self._database.fetch(
            "take_sink", *self._key, node, _LEASE, target, sorted(spec.wants), sorted(spec.queues),
            sorted(spec.tasks),
        )  # fmt: skip
        if not rows:
            self._declared = False  # another node sends; or it was removed, and is declared again
            await self._look_elsewhere()
            return _LEASE / 3
        self._elsewhere = target
        if rows[0]["position"] is None:
            begin = await self._events.end() if self._spec.start == "new" else Position()
            await self._database.fetch("start_sink", *self._key, str(begin), target)
            return 0.0
        if rows[0]["paused"]:
            return _WAIT
        try:
            return await self._send(node, rows[0]["position"])
        except SourceUnavailable as error:
            await self._database.fetch("note_sink", *self._key, str(error)[:500])
            raise

    async def _look_elsewhere(self) -> None:
        """Say it once if events go to another target than our code says."""
        now = await self._database.fetchval("target_of_sink", *self._key)
        if now is not None and now not in (self._spec.target, self._elsewhere):
            log.warning("sink %s sends to %s, by a node of another release; the code of this node "
                        "says %s, to which events go when no such node is left",
                        self._spec.name, now, self._spec.target)  # fmt: skip
            self._elsewhere = now

    async def _send(self, node: UUID, before: str) -> float:
        read = self._events.read_all if self._spec.wants else self._events.read
        found, after = await read(self._namespace, Position.parse(before), limit=self._most)
        if str(after) == before:
            return _WAIT
        # Ids are drawn when a change is made: of one job they rise, though transactions may not.
        events = sorted(await self._wanted([placed.event for placed in found]), key=lambda e: e.id)
        if events:
            try:
                async with asyncio.timeout(_SEND):
                    await self._target.send([cloud_event(self._namespace, one) for one in events])
            except TimeoutError:
                self._most = max(len(found) // 2, 1)
                await self._target.close()
                raise SourceUnavailable(
                    f"{self._spec.address.shown} didn't confirm {len(events)} events in time"
                ) from None
        moved = await self._database.fetch(
            "advance_sink", *self._key, node, before, str(after), len(events),
            len(found) - len(events), self._spec.target,
        )  # fmt: skip
        self._most = min(self._most * 2, _BATCH)
        if not moved:
            log.info("sink %s was moved by somebody else", self._spec.name)
        return 0.0

    async def _wanted(self, events: Sequence[Event]) -> Sequence[Event]:
        spec = self._spec
        wanted = [
            one for one in events
            if (not spec.kinds or one.kind in spec.kinds)
            and (not spec.tasks or one.task in spec.tasks)
        ]  # fmt: skip
        if not spec.queues or not wanted:
            return wanted
        jobs = [one.job_id for one in wanted if one.job_id and "queue" not in one.detail]
        rows = await self._database.fetch("queues_of_jobs", jobs) if jobs else []
        queues: dict[Any, str] = {row["id"]: row["queue"] for row in rows}
        return [
            one for one in wanted
            if one.detail.get("queue", queues.get(one.job_id)) in spec.queues
        ]  # fmt: skip

    async def leave(self) -> None:
        """Let another node send at once."""
        try:
            await self._database.fetch("leave_sink", *self._key, self._heartbeat.node_id)
            await self._target.close()
        except Exception as error:  # noqa: BLE001 - stopping must go on
            log.warning("sink %s: %s", self._spec.name, error)
