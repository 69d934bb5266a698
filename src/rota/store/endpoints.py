"""Endpoints in the store, and the reports of their attempts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rota.core.administration import RetryNumbers
from rota.model import Guarantee
from rota.store.database import Store


class StoredEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP endpoint, as it is stored or as code declares it."""

    name: str
    url: str
    secret: str
    queue: str = "default"
    needs: tuple[str, ...] = ()
    priority: int = 0
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    retry: RetryNumbers = RetryNumbers()
    timeout: float = 30.0
    callback_timeout: float = 3600.0
    version: UUID | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None


class PushTerms(msgspec.Struct, frozen=True):
    """The data of one push that comes from the database."""

    now: datetime
    callback_secret: str
    allowed: tuple[str, ...]


class Reported(msgspec.Struct, frozen=True):
    """The reported outcome of an attempt."""

    succeeded: bool
    message: str = ""
    fatal: bool = False
    retry_after: float | None = None


class EndpointStore(Store):
    async def add(self, namespace: str, endpoint: StoredEndpoint) -> bool:
        """Add an endpoint; False if there is one of that name."""
        return bool(await self.database.fetch("add_endpoint", *_columns(namespace, endpoint)))

    async def change(self, namespace: str, endpoint: StoredEndpoint) -> bool:
        return bool(await self.database.fetch("change_endpoint", *_columns(namespace, endpoint)))

    async def remove(self, namespace: str, name: str) -> bool:
        return bool(await self.database.fetch("remove_endpoint", namespace, name))

    async def list(
        self, namespace: str, name: str | None = None, *, most: int | None = None, skip: int = 0
    ) -> list[StoredEndpoint]:
        return await self._all(StoredEndpoint, "list_endpoints", namespace, name, most, skip)

    async def versions(self, namespace: str) -> str:
        """Return a digest that changes with any endpoint of the namespace."""
        return await self._one(str, "endpoint_versions", namespace)

    async def know_tasks(self, node: UUID, tasks: Sequence[str]) -> None:
        await self.database.fetch("know_tasks", node, list(tasks))

    # -- pushes

    async def begin_push(self, namespace: str) -> PushTerms:
        return await self._one(PushTerms, "begin_push", namespace)

    async def callback_secret(self) -> str:
        return await self._one(str, "callback_secret")

    async def attempt_place(self, job: UUID, token: int) -> tuple[str, bool] | None:
        """Return the job's namespace and whether it is encrypted; None: the attempt is over."""
        return await self._first(tuple[str, bool], "attempt_place", job, token)

    async def take_callback(
        self, job: UUID, token: int, reported: Reported, result: bytes | None, dropped: str | None
    ) -> bool:
        """Record a report; False: there was one before, or the attempt is over.

        `dropped` is the reason why the result was dropped, if it was.
        """
        error = None if dropped is None else {"type": "ResultDropped", "message": dropped}
        rows = await self.database.fetch(
            "take_callback", job, token, reported.succeeded,
            None if result is None else result.decode(), None if error is None else _json(error),
            None if reported.succeeded else _json(reported),
        )  # fmt: skip
        return bool(rows)

    async def find_callbacks(
        self, attempts: Sequence[tuple[UUID, int]]
    ) -> dict[tuple[UUID, int], Reported]:
        jobs, tokens = [job for job, _ in attempts], [token for _, token in attempts]
        rows = await self.database.fetch("find_callbacks", jobs, tokens)
        return {
            (row["job_id"], row["token"]): Reported(True)
            if row["succeeded"]
            else msgspec.json.decode(row["detail"], type=Reported)
            for row in rows
        }

    async def forget_callbacks(self, days: int) -> None:
        await self.database.fetch("forget_callbacks", days)


def _columns(namespace: str, endpoint: StoredEndpoint) -> tuple[Any, ...]:
    return (
        namespace, endpoint.name, endpoint.url, endpoint.secret, endpoint.queue,
        list(endpoint.needs), endpoint.priority, int(endpoint.guarantee), _json(endpoint.retry),
        endpoint.timeout, endpoint.callback_timeout,
    )  # fmt: skip


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
