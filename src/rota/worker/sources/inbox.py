"""Messages that come by HTTP: `http:rota`, `http:github`, `http:stripe`.

A server checks the signature, stores the message under the next number of the trigger's inbox, and only
then answers. The sender's id of the message is unique: what is sent again is stored once. From there on
the inbox is a stream like those of brokers, with numbers as positions. So a message that was answered
with 202 becomes one job, whatever dies: the server before its commit has not answered, and the sender
sends again.

The node that reads writes down how messages are signed, as its code says. Messages stay for a week after
they were read, so that those that come again are known, and a rewind has something to read.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any

import msgspec

from rota.errors import RotaError
from rota.operations.triggers import Message, TriggerSpec
from rota.store.database import Database
from rota.worker.sources import Read, SourceUnavailable

_LOOK_EVERY = 0.2  # seconds
_KEPT = 7 * 86_400.0  # seconds
_PRUNE_EVERY = 60.0
_PRUNES = 100  # of a thousand messages each: more than can come in that time
_MOST_BYTES = 16_000_000  # of bodies that are read at once


class InboxSource:
    def __init__(self, database: Database, namespace: str, spec: TriggerSpec) -> None:
        assert spec.inbox is not None
        self._database, self._inbox = database, spec.inbox
        self._key = (namespace, spec.name)
        self._declared = False
        self._prune_at = 0.0

    async def _declare(self) -> None:
        await self._database.fetch(
            "declare_inbox", *self._key, self._inbox.form, list(self._inbox.secrets)
        )
        self._declared = True

    async def end(self) -> str | None:
        """Return None: what was taken is not left out, whenever the trigger is started."""
        await self._declare()
        return None

    async def read(self, position: str | None, limit: int, wait: float) -> Read:
        if not self._declared:
            await self._declare()
        end = monotonic() + wait
        while True:
            rows = await self._database.fetch(
                "read_inbox", *self._key, _parse(position), limit, _MOST_BYTES
            )
            if rows or monotonic() >= end:
                break
            await asyncio.sleep(_LOOK_EVERY)
        if not rows:
            return Read([], position)
        return Read([await self._message(row) for row in rows], str(rows[-1]["number"]))

    async def _message(self, row: Any) -> Message:
        body: bytes = row["body"]
        if row["sealed"]:
            encryption = await self._database.known_encryption()
            try:
                body = encryption.open(body.decode(), row["id"], "body")
            except RotaError as error:  # a key is missing: it may come
                raise SourceUnavailable(str(error)) from error
        headers = {**msgspec.json.decode(row["headers"]), "delivery": row["delivery"]}
        return Message(position=str(row["number"]), body=body, headers=headers, topic=self._key[1])

    async def lag(self, position: str | None) -> int | None:
        if not self._declared:
            await self._declare()
        number = _parse(position)
        if monotonic() >= self._prune_at:
            self._prune_at = monotonic() + _PRUNE_EVERY
            for _ in range(_PRUNES):
                gone = await self._database.fetch("prune_inbox", *self._key, number, _KEPT)
                if not gone:
                    break
        last: int = await self._database.fetchval("last_of_inbox", *self._key)
        return max(last - number, 0)

    async def close(self) -> None: ...


def _parse(position: str | None) -> int:
    if position is None:
        return 0
    if not (position.isascii() and position.isdecimal() and len(position) < 19):
        raise SourceUnavailable(
            f"{position!r} is no position of an inbox, which is a number. `rota triggers rewind` takes "
            "one that `rota triggers show` or a job's header shows"
        )
    return int(position)
