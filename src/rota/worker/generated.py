"""Stores what generators yield, as chunks of the maps that are over their steps.

Protocol. The first page of an attempt begins the lists of these maps: one statement forgets what an
attempt before has stored, and gives each map a new id. Every page is one statement that adds the chunks
that are full and is guarded by the lease of the job and by the ids of the maps: an attempt that has lost
its job adds nothing to the lists of the next. The last page closes the lists. Then the job ends as any
other, and only that lets the maps start. Dying anywhere before it leaves lists that nobody reads: the
next attempt forgets them. A statement whose answer was lost finds its chunks there.

Memory. Of each map one chunk is kept that is not full yet, which is never larger than a payload may be.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from rota.core.workflow.maps import check_mapped
from rota.core.workflow.model import CHUNK_BASE
from rota.errors import Fatal, LeaseLost
from rota.generators import ItemPage, not_in_a_map
from rota.operations.map_chunks import Chunker, chosen_size
from rota.runtime.heartbeat import Lease
from rota.runtime.work import Work
from rota.store.database import Database
from rota.store.maps import Feed, MapStore, NewChunk

_page = msgspec.json.Decoder(ItemPage)


class _List(NamedTuple):
    """The list of one map, as it grows."""

    step: int
    id: UUID
    chunker: Chunker


class Generated:
    def __init__(
        self, database: Database, lease: Lease,
        persistently: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]],
    ) -> None:  # fmt: skip
        self._database = database
        self._store = MapStore(database)
        self._lease = lease
        self._persistently = persistently

    async def add(self, work: Work, body: bytes) -> bytes:
        """Store a page of items. Raises LeaseLost if the job is no longer this node's."""
        page = _page.decode(body)
        if work.lists is None:
            work.lists = await self._open(work)
        lists: list[_List] = work.lists
        feeds = [Feed(each.step, each.id, _chunks(each.chunker, page)) for each in lists]
        if not page.last and not any(feed.chunks for feed in feeds):
            return b"true"
        fed = await self._persistently(
            lambda: self._store.feed(*self._lease_of(work), feeds, closes=page.last)
        )
        if fed is None:
            raise LeaseLost(f"job {work.id} is no longer this node's")
        work.lists = [each for each in lists if each.step in fed]
        return b"true"

    def _lease_of(self, work: Work) -> tuple[UUID, UUID, int, UUID]:
        assert work.run is not None
        return self._lease.node_id, work.id, work.token, work.run

    async def _open(self, work: Work) -> list[_List]:
        step = work.step
        if work.run is None or step is None or not 0 <= step < CHUNK_BASE:
            raise Fatal(not_in_a_map(work.task))
        rows = await self._persistently(lambda: self._store.open_feed(*self._lease_of(work), step))
        if rows is None:
            raise LeaseLost(f"job {work.id} is no longer this node's")
        if not rows:
            raise Fatal(not_in_a_map(work.task))
        encryption = await self._database.known_encryption()
        limit = self._database.settings.max_payload_bytes
        lists = []
        for row in rows:
            definition, where = msgspec.json.decode(row["map"]), f"step {row['name']!r}"
            check_mapped(
                where, row["task"], each=definition["each"], size=definition["size"],
                guarantee=row["guarantee"], rated=row["rated"],
                keys=["concurrency_key"] if row["per_key"] else (),
            )  # fmt: skip
            size = chosen_size(definition, rated=row["rated"])
            chunker = Chunker(encryption, row["id"], size, limit, where)
            lists.append(_List(row["step"], row["id"], chunker))
        return lists


def _chunks(chunker: Chunker, page: ItemPage) -> list[NewChunk]:
    """Return the chunks that are full with a page; after the last page, the rest as well."""
    chunks = [chunk for item in page.items if (chunk := chunker.add_text(bytes(item))) is not None]
    if page.last and (rest := chunker.rest()) is not None:
        chunks.append(rest)
    return chunks
