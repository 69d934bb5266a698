"""An operator of durable functions: starts them, sends signals, cancels, pauses, resumes and retries.

At the end it looks after what is left: whoever waits gets a signal, whoever is paused goes on, and
whoever is parked by code that contradicts its history is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from proof.asking import REFUSALS, Asker
from proof.functions import FUNCTION, KEYS, SIGNALS
from proof.history import Operation
from rota import App
from rota.errors import StoreUnavailable

_MOST = 30  # runs that are started
_KEPT = 12  # that are steered
_PROGRAMS = 400
_NAMES = (FUNCTION, "a", "b", "sleep", "go")
_LOOKS_EVERY = 3.0


class FunctionOperator:
    """`now` is the history's clock; `note` takes each operation when it is over."""

    def __init__(
        self, app: App, random: Random, now: Callable[[], float],
        note: Callable[[Operation], None], *, pace: float, most: int = _MOST,
    ) -> None:  # fmt: skip
        self._app = app
        self._random = random
        self._asker = Asker(random, now, note)
        self._pace = pace
        self._most = most
        self._runs: list[str] = []
        self._started = 0
        self._sent = 0
        self._once: list[tuple[str, str, str]] = []
        self.stopping = False

    async def begin(self) -> None:
        """Declare the function, as a worker does that starts."""
        graph = self._app.tasks[FUNCTION].graph  # type: ignore[attr-defined]
        while True:
            try:
                await self._app.workflows.put(graph)
                return
            except StoreUnavailable:
                await asyncio.sleep(0.5)

    async def run(self) -> None:
        moves: dict[Callable[[], Awaitable[None]], float] = {
            self._start: 5, self._send: 4, self._send_again: 1, self._send_to_run: 2,
            self._cancel: 1.5, self._pause: 1, self._resume: 2, self._retry: 1,
        }  # fmt: skip
        while not self.stopping:
            await asyncio.sleep(self._random.expovariate(1 / self._pace))
            if not self.stopping:
                await self._random.choices(list(moves), list(moves.values()))[0]()

    # -- moves

    async def _start(self) -> None:
        if self._started >= self._most:
            return
        self._started += 1
        number = self._random.randrange(_PROGRAMS)
        deadline = self._random.choice((None, None, None, 8.0, 30.0))
        key = f"function-{self._started}"

        async def start() -> dict[str, Any]:
            run = await self._app.runs.start(
                FUNCTION, {"number": number}, key=key, deadline=deadline
            )
            self._runs.append(str(run.id))
            return {"id": str(run.id)}

        await self._asker.ask("start run", FUNCTION, start, detail=str(number))

    def _payload(self) -> str:
        self._sent += 1
        return f"signal-{self._sent}"

    async def _send(self) -> None:
        name = self._random.choice(SIGNALS)
        key = self._random.choice((*KEYS, *KEYS, *KEYS, f"nobody-{self._sent}"))
        once = f"once-{self._sent}" if self._random.random() < 0.4 else None
        if once is not None:
            self._once.append((name, key, once))
        await self._send_one(name, key, once)

    async def _send_again(self) -> None:
        """The same `once`, with another payload, which nobody may see."""
        if self._once:
            await self._send_one(*self._random.choice(self._once))

    async def _send_one(self, name: str, key: str, once: str | None) -> None:
        async def send() -> dict[str, Any]:
            payload = self._payload()  # of each try another: one without an answer may be sent, too
            sent = await self._app.signals.send(name, key, payload, once=once)
            return {"id": "" if sent.existed else payload}

        await self._asker.ask("send", f"{name}/{key}", send, detail=once or "")

    async def _send_to_run(self) -> None:
        if self._runs:
            run, name = self._random.choice(self._runs), self._random.choice(SIGNALS)

            async def send() -> dict[str, Any]:
                payload = self._payload()
                await self._app.runs.send(run, name, payload)
                return {"id": payload}

            await self._asker.ask("send", f"{name}/{run}", send)

    async def _cancel(self) -> None:
        if self._runs:
            await self._cancel_one(self._random.choice(self._runs))

    async def _cancel_one(self, run: str) -> None:
        await self._ask("cancel run", run, lambda: self._app.runs.cancel(run))

    async def _pause(self) -> None:
        if self._runs:
            run = self._random.choice(self._runs)
            await self._ask("pause run", run, lambda: self._app.runs.pause(run))

    async def _resume(self) -> None:
        if self._runs:
            run = self._random.choice(self._runs)
            await self._ask("resume run", run, lambda: self._app.runs.resume(run))

    async def _retry(self) -> None:
        if self._runs:
            run, step = self._random.choice(self._runs), self._random.choice(_NAMES)
            await self._ask("retry step", run, lambda: self._app.runs.retry(run, step), step)

    async def _ask(
        self, kind: str, run: str, act: Callable[[], Awaitable[Any]], detail: str = ""
    ) -> bool:
        self._runs = self._runs[-_KEPT:]

        async def asked() -> dict[str, Any]:
            await act()
            return {}

        return await self._asker.ask(kind, run, asked, detail=detail)

    # -- the end

    async def look_after(self) -> None:
        """Until nothing of it runs: what waits for somebody gets what it waits for."""
        parked: dict[str, int] = {}
        while True:
            await asyncio.sleep(_LOOKS_EVERY)
            try:
                runs = await self._app.runs.list(workflow=FUNCTION, state="running", limit=1_000)
                for run in runs:
                    await self._help(run, parked)
            except (StoreUnavailable, *REFUSALS):  # it has ended meanwhile
                continue
            if not runs:
                return

    async def _help(self, run: Any, parked: dict[str, int]) -> None:
        name = str(run.id)
        run = await self._app.runs.get(name)  # a list doesn't say why
        if run.problem is not None and (run.paused_at is not None or run.cancel_requested_at):
            parked[name] = parked.get(name, 0) + 1
            if parked[name] > 1:
                await self._cancel_one(name)
                return
        if run.paused_at is not None:
            await self._ask("resume run", name, lambda: self._app.runs.resume(name))
            return
        for each in await self._app.runs.history(name):
            if each.kind == "signal" and each.state == "waiting":
                await self._send_one(each.signal, each.signal_key, None)
