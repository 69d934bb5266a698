"""Passes calls of handlers in child processes on to the node.

Each `Call` becomes one asyncio task and one `Answer`. `Tell`s with the same name are news that
outdates itself: while one is being passed on, only the newest of those that follow is kept, so
that a handler which reports progress in a tight loop costs the node next to nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine

from rota.errors import LeaseLost
from rota.runtime.work import Work
from rota.worker.runners.base import NodeCall
from rota.worker.runners.frames import Answer, Call, Tell
from rota.worker.runners.spawn import ChildProcess

log = logging.getLogger("rota.runners.process")


async def refuse_calls(work: Work, name: str, body: bytes) -> bytes:
    raise NotImplementedError(f"nothing here answers {name!r} for job {work.id}")


class Calls:
    """Passes calls on to the node, and its answers back."""

    def __init__(self, ask: NodeCall) -> None:
        self._ask = ask
        self._tasks: set[asyncio.Task[None]] = set()
        self._news: dict[tuple[Work, str], bytes | None] = {}

    def call(self, child: ChildProcess, work: Work | None, call: Call) -> None:
        self._spawn(self._answer(child, work, call))

    def tell(self, work: Work | None, tell: Tell) -> None:
        if work is None:  # sent by a thread that outlived its handler
            return
        topic = (work, tell.name)
        if topic in self._news:
            self._news[topic] = tell.body
        else:
            self._news[topic] = None
            self._spawn(self._pass_on(work, tell.name, tell.body))

    async def _answer(self, child: ChildProcess, work: Work | None, call: Call) -> None:
        try:
            if work is None:
                raise LeaseLost("the job has already ended")
            answer = Answer(call.call, await self._ask(work, call.name, call.body))
        except Exception as error:  # noqa: BLE001 - whatever it is, the handler gets it
            message = str(error).encode("utf-8", "backslashreplace")
            answer = Answer(call.call, message, type(error).__name__)
        child.send_control(answer)

    async def _pass_on(self, work: Work, name: str, body: bytes) -> None:
        news: bytes | None = body
        try:
            while news is not None:
                await self._ask(work, name, news)
                news, self._news[work, name] = self._news[work, name], None
        except Exception:
            log.exception("%s of job %s could not be passed on", name, work.id)
        finally:
            del self._news[work, name]

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
