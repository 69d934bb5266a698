"""Handles of runs of workflows and durable functions: the run's id, and the ways to follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol
from uuid import UUID

import msgspec

from rota.core.codec import ResultReader
from rota.core.explain import Explanation
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import RunState
from rota.errors import ResultUnavailable, RotaError
from rota.lib import display
from rota.lib.display import Bar, as_html
from rota.lib.sync_bridge import sync_bridge
from rota.model import MapMember, Run, RunChanged, RunStep

_PAGE = 1_000  # steps that one query reads


class RunFailed(RotaError):
    """The run that was waited for ended otherwise than in success."""

    def __init__(self, run: Run) -> None:
        self.run = run
        reason = f": {run.error['message']}" if isinstance(run.error, dict) else ""
        super().__init__(f"run {run.id} of workflow {run.workflow!r} {run.state}{reason}")


class Declared(Protocol):
    """A workflow or a durable function, of which an application starts runs."""

    @property
    def name(self) -> str: ...
    @property
    def graph(self) -> Graph: ...


class RunOperations(Protocol):
    """The operations that a workflow and its handles use: `rota.operations.runs.Runs`."""

    async def start_declared(
        self, workflow: Declared, given: Mapping[str, Any], options: Mapping[str, Any]
    ) -> RunHandle: ...
    def start_declared_sync(
        self, workflow: Declared, given: Mapping[str, Any], options: Mapping[str, Any]
    ) -> RunHandle: ...
    async def start_all_declared(
        self, workflow: Declared, inputs: Iterable[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> list[RunHandle]: ...
    def start_all_declared_sync(
        self, workflow: Declared, inputs: Iterable[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> list[RunHandle]: ...
    async def new_declared(
        self, workflow: Declared, given: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Any: ...
    async def get(self, id: UUID | str) -> Run: ...
    async def has_ended(self, id: UUID | str) -> bool: ...
    async def send(
        self, id: UUID | str, signal: str, payload: Any = None, *, once: str | None = None
    ) -> Any: ...
    async def result(self, id: UUID | str) -> Any: ...
    async def steps(
        self, id: UUID | str, *, after: int = -1, limit: int = 1000
    ) -> list[RunStep]: ...
    async def explain(self, id: UUID | str, step: str | None = None) -> Explanation: ...
    async def cancel(self, id: UUID | str) -> RunChanged: ...
    async def pause(self, id: UUID | str) -> RunChanged: ...
    async def resume(self, id: UUID | str) -> RunChanged: ...
    async def retry(self, id: UUID | str, step: str) -> RunChanged: ...
    async def skip(self, id: UUID | str, step: str, result: Any = None) -> RunChanged: ...
    async def members(
        self, id: UUID | str, step: str, *, after: int = -1, state: str | None = None,
        limit: int = 100,
    ) -> list[MapMember]: ...  # fmt: skip
    async def retry_members(
        self, id: UUID | str, step: str, numbers: Sequence[int] | None = None
    ) -> RunChanged: ...


class RunHandle:
    """A run that was started, and the ways to follow it."""

    __slots__ = ("_reader", "_runs", "_seen", "existed", "id")
    _seen: Run  # unset until the run is looked at

    def __init__(
        self, runs: RunOperations, id: UUID, existed: bool = False,
        reader: ResultReader | None = None,
    ) -> None:  # fmt: skip
        self._runs = runs
        self._reader = reader  # of a durable function's result
        self.id = id
        self.existed = existed  # its idempotency key named it before: nothing new was started

    def __repr__(self) -> str:
        seen = f": {self._seen.words()}" if hasattr(self, "_seen") else ""
        return f"<RunHandle {self.id}{seen}>"

    def _repr_html_(self) -> str:
        """Show the run in a notebook, as it was seen last. `follow` shows it as it changes."""
        if hasattr(self, "_seen"):
            return self._seen._repr_html_()
        return as_html("run", "started", Bar("", 0, None), {"id": str(self.id)})

    async def status(self) -> Run:
        """Return the run as it is now."""
        self._seen = await self._runs.get(self.id)
        return self._seen

    async def watch(self, *, every: float = 0.5) -> AsyncIterator[Run]:
        """Yield the run as it is, and again when its state, steps or status have changed; at last as it
        has ended. It is looked at up to `every` seconds apart, more often in the beginning.
        """
        seen: Any = None
        pause = min(0.02, every)
        while True:
            run = await self.status()
            now = (run.state, run.paused_at, run.cancel_requested_at, run.steps, run.ended_steps,
                   run.status, run.problem)  # fmt: skip
            if now != seen:
                seen = now
                yield run
            if run.state != RunState.RUNNING.label:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, every)

    async def follow(self, timeout: float | None = None, *, every: float = 0.5) -> Run:
        """Wait until the run has ended, and show its progress: a bar in a terminal, HTML in a notebook.

        Returns the run. `TimeoutError` after `timeout` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                return await display.follow(self.watch(every=every))
        except TimeoutError:
            raise TimeoutError(f"run {self.id} has not ended after {timeout:g} s") from None

    async def wait(self, timeout: float | None = None) -> Run:
        """Return the run once it has ended; `TimeoutError` after `timeout` seconds. 0 looks once."""
        once = timeout is not None and timeout <= 0
        async with asyncio.timeout(None if once else timeout):
            pause = 0.01
            while not await self._runs.has_ended(self.id):
                if once:
                    raise TimeoutError(f"run {self.id} has not ended")
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, 0.5)
            return await self.status()

    async def result(self, timeout: float | None = None) -> Any:
        """Return the run's result: that of its last step, or those of several by name.

        That of a durable function is of the type that the function returns. Raises `RunFailed` if the
        run didn't succeed, `ResultUnavailable` if its result doesn't fit that type, and `TimeoutError`
        if it hasn't ended in time.
        """
        run = await self.wait(timeout)
        if run.state != RunState.SUCCEEDED.label:
            raise RunFailed(run)
        result = await self._runs.result(self.id)
        if self._reader is None:
            return result
        try:
            return self._reader.read(result)
        except (ValueError, msgspec.ValidationError) as error:
            raise ResultUnavailable(
                f"run {self.id} succeeded, but its stored result doesn't fit the type that the function "
                f"returns here: {error}. `app.runs.result()` has it as it was stored"
            ) from None

    async def steps(self) -> list[RunStep]:
        """Return all its steps, by their numbers."""
        steps = page = await self._runs.steps(self.id, limit=_PAGE)
        while len(page) == _PAGE:
            page = await self._runs.steps(self.id, after=page[-1].number, limit=_PAGE)
            steps = [*steps, *page]
        return steps

    async def send(self, signal: str, payload: Any = None, *, once: str | None = None) -> Any:
        """Send a signal to it: its durable function takes it with ``ctx.wait(signal)``.

        `once`: the same text again is not another signal.
        """
        return await self._runs.send(self.id, signal, payload, once=once)

    async def explain(self, step: str | None = None) -> Explanation:
        """Explain what it waits for, or one of its steps, and what to do."""
        return await self._runs.explain(self.id, step)

    async def cancel(self) -> RunChanged:
        """Cancel it: what waits is closed, what runs is asked to stop, `always` steps still run."""
        return await self._runs.cancel(self.id)

    async def pause(self) -> RunChanged:
        """Start no further steps until it is resumed."""
        return await self._runs.pause(self.id)

    async def resume(self) -> RunChanged:
        """Go on: after a pause, or from the steps that failed or were cancelled."""
        return await self._runs.resume(self.id)

    async def retry(self, step: str) -> RunChanged:
        """Run a step again, and what comes after it."""
        return await self._runs.retry(self.id, step)

    async def skip(self, step: str, result: Any = None) -> RunChanged:
        """Let a step count as succeeded with this result, without running it."""
        return await self._runs.skip(self.id, step, result)

    async def members(
        self, step: str, *, after: int = -1, state: str | None = None, limit: int = 100
    ) -> list[MapMember]:
        """Return members of a map after a number: their items, results and errors.

        `state`: only those that are waiting, running, succeeded, failed or cancelled.
        """
        return await self._runs.members(self.id, step, after=after, state=state, limit=limit)

    async def retry_members(self, step: str, numbers: Sequence[int] | None = None) -> RunChanged:
        """Run failed members of a map again, all or some, and what comes after the map."""
        return await self._runs.retry_members(self.id, step, numbers)

    def status_sync(self) -> Run:
        """Return the run as it is now, from synchronous code."""
        return sync_bridge.call(self.status, "status")

    def wait_sync(self, timeout: float | None = None) -> Run:
        """Return the run once it has ended, from synchronous code. See `wait`."""
        return sync_bridge.call(lambda: self.wait(timeout), "wait")

    def watch_sync(self, *, every: float = 0.5) -> Iterator[Run]:
        """Yield the run whenever it has changed, from synchronous code. See `watch`."""
        return sync_bridge.iterate(lambda: self.watch(every=every), "watch")

    def follow_sync(self, timeout: float | None = None, *, every: float = 0.5) -> Run:
        """Wait with the progress shown, from synchronous code. See `follow`."""
        return sync_bridge.call(lambda: self.follow(timeout, every=every), "follow")

    def steps_sync(self) -> list[RunStep]:
        """Return all its steps, by their numbers, from synchronous code. See `steps`."""
        return sync_bridge.call(self.steps, "steps")

    def send_sync(self, signal: str, payload: Any = None, *, once: str | None = None) -> Any:
        """Send a signal to it, from synchronous code. See `send`."""
        return sync_bridge.call(lambda: self.send(signal, payload, once=once), "send")

    def explain_sync(self, step: str | None = None) -> Explanation:
        """Explain what it waits for, from synchronous code. See `explain`."""
        return sync_bridge.call(lambda: self.explain(step), "explain")

    def cancel_sync(self) -> RunChanged:
        """Cancel it, from synchronous code. See `cancel`."""
        return sync_bridge.call(self.cancel, "cancel")

    def pause_sync(self) -> RunChanged:
        """Start no further steps until it is resumed, from synchronous code. See `pause`."""
        return sync_bridge.call(self.pause, "pause")

    def resume_sync(self) -> RunChanged:
        """Go on after a pause, or from what failed, from synchronous code. See `resume`."""
        return sync_bridge.call(self.resume, "resume")

    def retry_sync(self, step: str) -> RunChanged:
        """Run a step again, and what comes after it, from synchronous code. See `retry`."""
        return sync_bridge.call(lambda: self.retry(step), "retry")

    def skip_sync(self, step: str, result: Any = None) -> RunChanged:
        """Let a step count as succeeded, from synchronous code. See `skip`."""
        return sync_bridge.call(lambda: self.skip(step, result), "skip")

    def members_sync(
        self, step: str, *, after: int = -1, state: str | None = None, limit: int = 100
    ) -> list[MapMember]:
        """Return members of a map after a number, from synchronous code. See `members`."""
        return sync_bridge.call(
            lambda: self.members(step, after=after, state=state, limit=limit), "members"
        )

    def retry_members_sync(self, step: str, numbers: Sequence[int] | None = None) -> RunChanged:
        """Run failed members of a map again, from synchronous code. See `retry_members`."""
        return sync_bridge.call(lambda: self.retry_members(step, numbers), "retry_members")

    def result_sync(self, timeout: float | None = None) -> Any:
        """Return the run's result, from synchronous code."""
        return sync_bridge.call(lambda: self.result(timeout), "result")
