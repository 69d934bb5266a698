"""Durable functions in the database: their history, suspensions, calls and signals."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.model import SignalSent
from rota.store.database import Connection, Database
from rota.store.rows import NewSignal

Blamed = Sequence[tuple[UUID, int]]


class DurableFunctionStore:
    """Statements of a function's attempt are guarded by its lease: (node, job, token).

    Whoever comes further is no longer blamed for crashes before. `blamed` are the jobs and tokens of
    functions that went down with their process since they last came further; it is the same transaction,
    or a crash right after a record would count as one more at the place before it.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    async def open_functions(
        self, node: UUID, leases: Sequence[tuple[UUID, int, UUID]]
    ) -> list[list[Any]]:
        """Return the runs of (job, token, run) and their histories, a row for each checkpoint; no row:
        not this node's job."""
        columns = [list(column) for column in zip(*leases, strict=True)]
        histories: list[list[Any]] = [[] for _ in leases]
        for row in await self.database.fetch("open_functions", node, *columns):
            histories[row["place"]].append(row)
        return histories

    @contextlib.asynccontextmanager
    async def _forgiving(self, node: UUID, blamed: Blamed) -> AsyncIterator[Connection | None]:
        if not blamed:
            yield None  # a statement of its own
            return
        async with self.database.transaction("forgive") as connection:
            # First: jobs are locked before runs. It is guarded as what follows.
            jobs, tokens = map(list, zip(*blamed, strict=True))
            await self.database.fetch("forgive_crashes", node, jobs, tokens, on=connection)
            yield connection

    async def record_checkpoints(
        self, node: UUID, rows: Sequence[tuple[Any, ...]], blamed: Blamed = ()
    ) -> dict[tuple[UUID, int], bool]:
        """Write checkpoints. Return those that were written: whether the run is being cancelled."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        async with self._forgiving(node, blamed) as on:
            written = await self.database.fetch("record_checkpoints", node, *columns, on=on)
        return {(row["run_id"], row["number"]): row["cancelled"] for row in written}

    async def suspend_function(
        self, node: UUID, job: UUID, token: int, run: UUID, waits: Sequence[int],
        joined: Sequence[int], knows_cancel: bool, problem: str | None,
    ) -> str:  # fmt: skip
        answer: str = await self.database.fetchval(
            "suspend_function", node, job, token, run, waits, joined, knows_cancel, problem
        )
        return answer

    async def restart_function(
        self, node: UUID, job: UUID, token: int, run: UUID, given: str
    ) -> bool:
        return bool(await self.database.fetchval("restart_function", node, job, token, run, given))

    async def call_jobs(
        self, node: UUID, rows: Sequence[tuple[Any, ...]], blamed: Blamed = ()
    ) -> list[int]:
        """Make calls. Return the places of those that were made."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        async with self._forgiving(node, blamed) as on:
            made: list[int] = await self.database.fetchval("call_jobs", node, *columns, on=on)
        return made

    async def call_run(
        self, node: UUID, job: UUID, token: int, run: UUID, number: int, name: str,
        digest: str | None, child: str, *, blamed: Blamed = (),
    ) -> bool:  # fmt: skip
        call = (node, job, token, run, number, name, digest, child)
        async with self._forgiving(node, blamed) as on:
            return bool(await self.database.fetchval("call_run", *call, on=on))

    async def wait_for_signal(
        self, node: UUID, job: UUID, token: int, run: UUID, number: int, name: str, signal: str,
        key: str, timeout: float | None, *, blamed: Blamed = (),
    ) -> Any | None:  # fmt: skip
        wait = (node, job, token, run, number, name, signal, key, timeout)
        async with self._forgiving(node, blamed) as on:
            rows = await self.database.fetch("wait_for_signal", *wait, on=on)
        return rows[0] if rows else None

    async def close_waits(
        self, node: UUID, job: UUID, token: int, run: UUID, numbers: Sequence[int],
        winner: tuple[int, str, str], *, blamed: Blamed = (),
    ) -> list[dict[str, Any]] | None:  # fmt: skip
        """Note the winner of a race and close the losers' waits. Return what there is to stop, and
        signals that were given back; None: not this node's job."""
        lease = (node, job, token, run)
        async with self._forgiving(node, blamed) as on:
            closed = await self.database.fetchval("close_waits", *lease, numbers, *winner, on=on)
        return None if closed is None else list(msgspec.json.decode(closed))

    async def offer_signals(self, namespace: str, name: str, key: str) -> None:
        await self.database.fetch("offer_signals", namespace, name, key)

    async def set_run_status(
        self, node: UUID, job: UUID, token: int, run: UUID, status: str
    ) -> None:
        await self.database.fetch("set_run_status", node, job, token, run, status)

    # -- from outside

    async def send_signal(self, signal: NewSignal) -> SignalSent:
        body = msgspec.json.encode(signal).decode()
        return SignalSent(*(await self.database.fetch("send_signal", body))[0])

    async def cancel_function(self, run: UUID) -> None:
        """Tell a function that its run is being cancelled."""
        await self.database.fetch("cancel_function", run)

    async def cancelled_calls(self, run: UUID) -> list[Any]:
        """Return the jobs and runs whose calls were closed by a cancel. Some may have ended."""
        return await self.database.fetch("cancelled_calls", run)

    async def force_cancel(self, run: UUID) -> None:
        await self.database.fetch("force_cancel", run)

    async def end_called_runs(self, run: UUID) -> None:
        await self.database.fetch("end_called_runs", run)

    async def lock_function(self, run: UUID) -> None:
        await self.database.fetch("lock_function", run)

    async def forget_failure(self, run: UUID) -> None:
        """Forget a function's history from where it failed."""
        await self.database.fetch("forget_failure", run)

    async def forget_from(self, run: UUID, name: str) -> bool:
        """Forget a function's history from what has this name; all of it if that is the function's."""
        return bool(await self.database.fetchval("forget_from", run, name))

    async def list_checkpoints(self, run: UUID, after: int, limit: int) -> list[Any]:
        return await self.database.fetch("list_checkpoints", run, after, limit)

    async def list_signals(
        self, namespace: str, name: str | None, key: str | None, limit: int
    ) -> list[Any]:
        return await self.database.fetch("list_signals", namespace, name, key, limit)
