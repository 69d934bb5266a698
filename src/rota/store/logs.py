"""What jobs print and log, in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from rota.store.database import Database


class NewLogLine(msgspec.Struct, frozen=True, gc=False):
    """A log line to store, with the attempt that printed it."""

    job_id: UUID
    token: int
    attempt: int
    seq: int
    at: datetime | None  # None: the time at which it is stored
    stream: str
    text: str


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a job printed or logged."""

    at: datetime
    attempt: int
    token: int
    seq: int  # from 1 in each attempt
    stream: str  # stdout, stderr, a log record's level, or mark: here lines were left out
    text: str


def log_field(token: int, seq: int) -> str:
    """What an encrypted line is bound to."""
    return f"log {token} {seq}"


class LogStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, node: UUID, namespace: str, lines: Sequence[NewLogLine]) -> int:
        """How many attempts may say nothing any more: their jobs have moved on."""
        places: dict[tuple[UUID, int], int] = {}
        attempts: list[int] = []
        for line in lines:
            if (line.job_id, line.token) not in places:
                places[line.job_id, line.token] = len(places) + 1
                attempts.append(line.attempt)
        refused = await self._database.fetch(
            "add_log_lines", node, namespace,
            [id for id, _ in places], [token for _, token in places], attempts,
            [places[line.job_id, line.token] for line in lines], [line.seq for line in lines],
            [line.at for line in lines], [line.stream for line in lines],
            [line.text for line in lines],
        )  # fmt: skip
        return len(refused)

    async def read(
        self, namespace: str, job_id: UUID, attempt: int | None, read: Mapping[int, int], limit: int
    ) -> list[LogLine]:
        """In order. `read`: the last number that was read of each attempt, by its token."""
        rows = await self._database.fetch(
            "read_log", namespace, job_id, attempt, list(read), list(read.values()), limit
        )
        opened = self._database.encryption.shown_text
        return [
            LogLine(
                at=row["at"], attempt=row["attempt"], token=row["token"], seq=row["seq"],
                stream=row["stream"],
                text=opened(row["text"], job_id, log_field(row["token"], row["seq"])) or "",
            )
            for row in rows
        ]  # fmt: skip
