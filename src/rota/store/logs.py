"""The output and log records of jobs, in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from rota.model import LogLine
from rota.store.database import Store
from rota.store.rows import columns_of


class NewLogLine(msgspec.Struct, frozen=True, gc=False):
    """A line on its way to the store, with its attempt."""

    job_id: UUID
    token: int
    attempt: int
    seq: int
    at: datetime | None  # None: the database uses its own time
    stream: str
    text: str


def log_field(token: int, seq: int) -> str:
    """Return the name of the field that an encrypted line is bound to."""
    return f"log {token} {seq}"


class LogStore(Store):
    async def add(self, node: UUID, namespace: str, lines: Sequence[NewLogLine]) -> int:
        """Add lines; return of how many attempts they were refused, because the job has moved on."""
        places: dict[tuple[UUID, int], int] = {}
        attempts: list[int] = []
        for line in lines:
            if (line.job_id, line.token) not in places:
                places[line.job_id, line.token] = len(places) + 1
                attempts.append(line.attempt)
        refused = await self.database.fetch(
            "add_log_lines", node, namespace,
            [id for id, _ in places], [token for _, token in places], attempts,
            [places[line.job_id, line.token] for line in lines],
            *columns_of(lines, "seq", "at", "stream", "text"),
        )  # fmt: skip
        return len(refused)

    async def read(
        self, namespace: str, job_id: UUID, attempt: int | None, read: Mapping[int, int], limit: int
    ) -> list[LogLine]:
        """Return lines in order. `read` has the last number that was read, by the attempt's token."""
        rows = await self.database.fetch(
            "read_log", namespace, job_id, attempt, list(read), list(read.values()), limit
        )
        shown = self.database.encryption.shown_text
        return [
            LogLine(
                **{**row, "text": shown(row["text"], job_id, log_field(row["token"], row["seq"]))}
            )
            for row in rows
        ]
