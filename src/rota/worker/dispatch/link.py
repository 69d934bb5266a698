"""Calls of a worker to relays, by a broker.

Protocol. A call has a number, and is sent again under the same number until an answer with that number
arrives: relays can bear to be asked twice. An answer that nobody waits for is dropped. Sending and
receiving fail and recover by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import UUID

import msgspec

from rota.errors import RotaError
from rota.lib.ids import unit
from rota.runtime.dispatch import Broker, BrokerUnavailable
from rota.runtime.dispatch.seal import Answer, Call, Sealer

log = logging.getLogger("rota.dispatch")

_PATIENCE = 3.0  # seconds until a call is sent again; each time more, up to
_MOST_PATIENCE = 10.0
_AGAIN = 1.0  # seconds until a call is sent again that could not be answered now
_WAIT = 2.0
_PAUSE = 0.5  # after the broker did not answer
_answer = msgspec.json.Decoder(Answer)


class Refused(RotaError):
    """Raised when a relay refuses a call, with the status and the words of its answer."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Gone(Refused):
    """Raised when the worker is not, or no longer, known: it must register under a new id."""


class NoAnswer(RotaError):
    """Raised when no relay has answered in time."""


class Link:
    """The calls of one worker."""

    def __init__(self, broker: Broker, sealer: Sealer, worker: UUID) -> None:
        self.worker = worker
        self._broker = broker
        self._sealer = sealer
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Answer]] = {}
        self._out: list[bytes] = []
        self._something = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._connected = True
        self._closed = False
        # Called with answers that nobody waits for: jobs may have been offered in them.
        self.on_unexpected: Callable[[bytes], None] = lambda body: None

    def start(self) -> None:
        # Listens before it asks: some brokers don't keep what is answered before.
        self._tasks = [asyncio.create_task(self._receive()), asyncio.create_task(self._send())]

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        self._closed = True  # a broker's client may swallow a cancellation
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(_closed())
        with contextlib.suppress(BrokerUnavailable):
            await self._broker.leave(self.worker)

    async def call(self, name: str, body: Any) -> bytes:
        """Return the body of the answer, however long that takes."""
        number = next(self._numbers)
        message = self._sealed(number, name, body)
        patience = _PATIENCE
        while True:
            with contextlib.suppress(NoAnswer):
                answer = await self._ask(number, message, patience)
                if answer.status == 200:
                    return bytes(answer.body)
                if not _may_pass(answer.status):
                    raise _refused(answer)
                await asyncio.sleep(_AGAIN * (0.5 + unit()))
            patience = min(patience * 1.5, _MOST_PATIENCE)

    async def call_once(self, name: str, body: Any, patience: float) -> bytes:
        """Return the body of the answer. Raises NoAnswer if there is none in time."""
        number = next(self._numbers)
        answer = await self._ask(number, self._sealed(number, name, body), patience)
        if answer.status == 200:
            return bytes(answer.body)
        if _may_pass(answer.status):
            await asyncio.sleep(_AGAIN * (0.5 + unit()))
            raise NoAnswer(f"{name}: status {answer.status}")
        raise _refused(answer)

    def _sealed(self, number: int, name: str, body: Any) -> bytes:
        call = Call(number, name, msgspec.Raw(msgspec.json.encode(body)))
        return self._sealer.seal(self.worker, "call", msgspec.json.encode(call))

    async def _ask(self, number: int, message: bytes, patience: float) -> Answer:
        if self._closed:
            raise _closed()
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        self._out.append(message)
        self._something.set()
        try:
            async with asyncio.timeout(patience):
                return await waiting
        except TimeoutError:
            raise NoAnswer("no relay has answered in time") from None
        finally:
            self._waiting.pop(number, None)

    # -- the broker

    async def _send(self) -> None:
        while not self._closed:
            await self._something.wait()
            self._something.clear()
            out, self._out = self._out, []
            if out:
                # What can't be sent is sent again by who waits for its answer.
                await self._try(self._broker.call(out))

    async def _receive(self) -> None:
        while not self._closed:
            bodies = await self._try(self._broker.answers(self.worker, _WAIT))
            for body in bodies or ():
                self._take(body)

    async def _try(self, doing: Any) -> Any:
        try:
            done = await doing
        except BrokerUnavailable as error:
            if self._connected:
                log.warning("the broker does not answer, trying again: %s", error)
            self._connected = False
        except Exception:
            log.exception("the broker can't be used")
        else:
            if not self._connected:
                log.info("the broker answers again")
            self._connected = True
            return done
        await asyncio.sleep(_PAUSE * (0.5 + unit()))
        return None

    def _take(self, body: bytes) -> None:
        opened = self._sealer.open(body, "answer")
        if opened is None or opened.worker != self.worker:
            log.warning("an answer was not sealed with our secret: it is ignored")
            return
        answer = _answer.decode(opened.text)
        waiting = self._waiting.get(answer.id)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
        elif answer.status == 200:
            self.on_unexpected(bytes(answer.body))


def _closed() -> Gone:
    return Gone(410, "this worker has another id by now")


def _may_pass(status: int) -> bool:
    return status >= 500 or status == 429


def _refused(answer: Answer) -> Refused:
    try:
        said = str(msgspec.json.decode(answer.body)["detail"])
    except Exception:  # noqa: BLE001 - whatever it says, it is refused
        said = f"status {answer.status}"
    return (Gone if answer.status in (404, 410) else Refused)(answer.status, said)
