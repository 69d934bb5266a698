"""Admit submits within the limits of namespaces, which are counted in the database for all servers.

Protocol. Namespaces without limits are cached for five seconds, and cost nothing. For one with limits,
simultaneous requests share a query: one runs at a time, and takes what arrived during the one before. If
the sum can't be admitted, each request is admitted or refused by itself.
"""

from __future__ import annotations

import asyncio
import time

from rota.core.access import Identity
from rota.errors import TooManyRequests
from rota.store.quotas import Admission, QuotaStore

_CACHED_SECONDS = 5.0
_REASONS = {
    "submits_per_second": "namespace {0!r} exceeds its limit of submits per second",
    "max_jobs": "namespace {0!r} has reached its limit of jobs; let some end, or discard failed ones",
    "max_payload_bytes": "namespace {0!r} has reached its limit of payload bytes",
}

_Asked = tuple[int, int, asyncio.Future[Admission]]


class Quotas:
    def __init__(self, store: QuotaStore) -> None:
        self.store = store
        self._limited: frozenset[str] = frozenset()
        self._cached_until = float("-inf")
        self._waiting: dict[str, list[_Asked]] = {}
        self._flushers: set[asyncio.Task[None]] = set()

    async def admit(self, namespace: str, jobs: int, payload_bytes: int) -> None:
        """Count jobs as submitted, or raise `TooManyRequests` when they are over a limit."""
        if not await self._is_limited(namespace):
            return
        admission = await self._ask_together(namespace, jobs, payload_bytes)
        if admission.refused is not None:
            raise TooManyRequests(
                _REASONS[admission.refused].format(namespace), code="quota",
                field=admission.refused, retry_after=admission.retry_after or 1.0,
            )  # fmt: skip

    async def admit_token(self, identity: Identity, jobs: int) -> None:
        """Count jobs as submitted with a token, or raise `TooManyRequests` if they are over its rate."""
        if identity.submits_per_second is None or jobs == 0:
            return
        wait = await self.store.admit_token(identity.id, jobs)
        if wait is not None:
            raise TooManyRequests(
                f"token {identity.prefix} exceeds its {identity.submits_per_second:g} submits a second",
                code="quota", field="submits_per_second", retry_after=wait,
            )  # fmt: skip

    def forget(self) -> None:
        self._cached_until = float("-inf")

    async def _is_limited(self, namespace: str) -> bool:
        now = time.monotonic()
        if now >= self._cached_until:
            self._limited = await self.store.limited_namespaces()
            self._cached_until = now + _CACHED_SECONDS
        return namespace in self._limited

    async def _ask_together(self, namespace: str, jobs: int, payload_bytes: int) -> Admission:
        answer: asyncio.Future[Admission] = asyncio.get_running_loop().create_future()
        asked = (jobs, payload_bytes, answer)
        if namespace in self._waiting:
            self._waiting[namespace].append(asked)
        else:
            self._waiting[namespace] = [asked]
            # In a task of its own: the first request may be cancelled while others wait.
            flusher = asyncio.create_task(self._flush(namespace))
            self._flushers.add(flusher)
            flusher.add_done_callback(self._flushers.discard)
        return await answer

    async def _flush(self, namespace: str) -> None:
        while gathered := self._waiting[namespace]:
            self._waiting[namespace] = []
            await self._ask(namespace, gathered)
        del self._waiting[namespace]

    async def _ask(self, namespace: str, gathered: list[_Asked]) -> None:
        try:
            jobs, payload_bytes = sum(a[0] for a in gathered), sum(a[1] for a in gathered)
            alone = len(gathered) == 1
            all_of_it = await self.store.admit(namespace, jobs, payload_bytes, allow_debt=alone)
            for jobs, payload_bytes, answer in gathered:
                one = all_of_it
                if all_of_it.refused is not None and not alone:
                    one = await self.store.admit(namespace, jobs, payload_bytes, allow_debt=True)
                if not answer.done():
                    answer.set_result(one)
        except Exception as error:  # noqa: BLE001 - raised by the waiting requests
            for _, _, answer in gathered:
                if not answer.done():
                    answer.set_exception(error)
