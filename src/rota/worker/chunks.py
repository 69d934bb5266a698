"""Records what became of the members of chunks, under the tokens of their jobs.

Protocol. A chunk is opened when its job starts: that writes the job's token into its row, and reads how
far an attempt before had come. While it runs, what was done is recorded about once a second, with the
results and the members that failed, in one statement that is guarded by the lease and by the token in
the chunk's row: whoever lost the job records nothing any more. The job ends as any other; the
transaction that ends it counts its members in the map. Dying between two records means that the next
attempt repeats what was done since the last one. It records each member by itself, and notes it before
it begins, so that one which takes its worker down is found, and no other is repeated because of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import msgspec

from rota.core.workflow.model import CHUNK_BASE
from rota.errors import Fatal, LeaseLost
from rota.model import Failure
from rota.operations.map_chunks import results_field
from rota.runtime.heartbeat import Lease
from rota.runtime.members import Record
from rota.runtime.work import Work
from rota.store.database import Database
from rota.store.encrypted import encrypted_failure
from rota.store.maps import MapStore

_record = msgspec.json.Decoder(Record)


class Chunks:
    def __init__(
        self, database: Database, lease: Lease,
        persistently: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]],
    ) -> None:  # fmt: skip
        self._database = database
        self._store = MapStore(database)
        self._lease = lease
        self._persistently = persistently

    async def record(self, work: Work, body: bytes) -> bytes:
        """Record members of a chunk. Raises LeaseLost if it is no longer this attempt's."""
        chunk = work.chunk
        if chunk is None or work.run is None or work.step is None:
            raise Fatal(f"job {work.id} is no chunk of a map")
        record = _record.decode(body)
        results = None
        if record.results is not None:
            results = self._sealed(work, chunk.map_id, record.first, record.results)
        members = [
            {
                "number": each.number, "state": each.state, "attempt": each.attempt,
                "result": msgspec.Raw(
                    self._sealed(work, chunk.map_id, each.number, [each.result]).encode()
                ),
                "error": self._sealed_error(work, chunk.map_id, each.error),
            }
            for each in record.members
        ]  # fmt: skip
        kept = await self._persistently(
            lambda: self._store.record(
                self._lease.node_id, work.id, work.token, work.run or work.id,
                (work.step or 0) - CHUNK_BASE, chunk.number, done=record.done, begun=record.begun,
                first=record.first, size=len(record.results or ()), results=results,
                members=_text(members) if members else None,
            )
        )  # fmt: skip
        if not kept:
            raise LeaseLost(f"job {work.id} is no longer this node's")
        work.crashes = 0
        return b"true"

    def _sealed(self, work: Work, map_id: UUID, first: int, values: list[msgspec.Raw]) -> str:
        text = b"[" + b",".join(bytes(value) for value in values) + b"]"
        if work.encryptor is None:
            return text.decode()
        return self._database.encryption.for_job(map_id).json(results_field(first), text)

    def _sealed_error(self, work: Work, map_id: UUID, error: Failure | None) -> Failure | None:
        if error is None or work.encryptor is None:
            return error
        return encrypted_failure(self._database.encryption.for_job(map_id), error)


def _text(value: object) -> str:
    # An error's text may hold NUL, which the database refuses when it takes the JSON apart.
    return msgspec.json.encode(value).decode().replace("\\u0000", "\\ufffd")
