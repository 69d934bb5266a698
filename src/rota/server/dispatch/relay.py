"""The role `relay` of a node: takes calls of workers from a broker, and answers them.

Protocol. A call is taken from the broker, opened, answered by `WorkerCalls` (which writes and commits),
its answer is sent, and then the call is settled. Dying before it is settled leaves it to another relay,
which answers it again: calls can bear that. Claims are settled before they are answered, since they
may wait for jobs: a worker whose claim isn't answered in time sends it again.

Nothing is kept here between two calls, and any number of relays may serve the same broker. A broker
that is away, was restarted or has lost everything costs time: workers send again what wasn't answered,
and those that were silent for longer than a lease are dead, as everywhere. A message that isn't
authentic is settled, counted and logged, and never answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from time import monotonic
from typing import Any

import msgspec

from rota.app import App
from rota.lib.ids import unit
from rota.runtime.dispatch import Broker, BrokerUnavailable, Delivery, broker_address, open_broker
from rota.runtime.dispatch.seal import Answer, Call, Opened, Sealer
from rota.server.context import ServerContext
from rota.server.dispatch.calls import WorkerCalls
from rota.server.problems import Problem, to_problem

log = logging.getLogger("rota.relay")

_MOST = 64  # calls at a time, besides claims that wait
_WAIT = 1.0
_PAUSE = 0.5  # after the broker did not answer
_STOP_SECONDS = 10.0
_LOG_EVERY = 60.0
_call = msgspec.json.Decoder(Call)


class Relay:
    """A relay for the workers of the app's namespace."""

    def __init__(self, app: App, broker: Broker | None = None) -> None:
        self._app = app
        settings = app.settings
        self._sealer = Sealer(settings.dispatch_secret, settings.namespace)
        self._shown = broker_address(settings.dispatch).shown
        self._broker = broker or open_broker(settings.dispatch, settings.namespace)
        self._stack = contextlib.AsyncExitStack()
        self._stopping = asyncio.Event()
        self._handling: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(_MOST)
        self._out: list[tuple[Opened, bytes]] = []
        self._settled: list[Delivery] = []
        self._something = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._ended = False  # nothing more is to be sent than what is there
        self.reaches_broker: bool | None = None  # None: nobody knows yet
        self.refused = 0  # messages that were not authentic
        self._refused_logged = -_LOG_EVERY

    async def start(self) -> None:
        self._context = await self._stack.enter_async_context(ServerContext.open(self._app))
        self._calls = WorkerCalls(self._context, self._app.settings.namespace, self._shown)
        self._tasks = [asyncio.create_task(self._take()), asyncio.create_task(self._send())]
        log.info("relaying by %s", self._shown)

    async def stop(self) -> None:
        """Take no more calls, end waiting claims, answer what was taken, and close."""
        if not self._tasks:
            return
        self._stopping.set()
        self._context.stopping.set()
        taking, sending = self._tasks
        self._tasks = []
        await taking
        if self._handling:
            await asyncio.wait(self._handling, timeout=_STOP_SECONDS)
        for handling in self._handling:
            handling.cancel()
        await asyncio.gather(*self._handling, return_exceptions=True)
        self._ended = True
        self._something.set()
        await sending
        await self._broker.close()
        await self._stack.aclose()

    # -- taking

    async def _take(self) -> None:
        while not self._stopping.is_set():
            async with self._room:  # no more is taken than can be handled
                pass
            try:
                deliveries = await self._broker.take(_MOST, _WAIT)
            except BrokerUnavailable as error:
                await self._away(error)
                continue
            except Exception:
                log.exception("calls can't be taken")
                await asyncio.sleep(_PAUSE)
                continue
            self._back()
            for delivery in deliveries:
                handling = asyncio.create_task(self._handle(delivery))
                self._handling.add(handling)
                handling.add_done_callback(self._handling.discard)

    async def _away(self, error: BrokerUnavailable) -> None:
        if self.reaches_broker is not False:
            log.warning("the broker does not answer, trying again: %s", error)
        self.reaches_broker = False
        await asyncio.sleep(_PAUSE * (0.5 + unit()))

    def _back(self) -> None:
        if not self.reaches_broker:
            log.info("the broker answers")
            self.reaches_broker = True

    # -- answering

    async def _handle(self, delivery: Delivery) -> None:
        opened = self._sealer.open(delivery.body, "call")
        call = _read(opened)
        if opened is None or call is None:
            self._refuse(delivery)
            return
        if call.call == "claim":
            self._settle(delivery)
            answer = await self._answer(opened, call)
        else:
            async with self._room:
                answer = await self._answer(opened, call)
        self._out.append((opened, msgspec.json.encode(answer)))
        if call.call != "claim":
            self._settled.append(delivery)
        self._something.set()

    async def _answer(self, opened: Opened, call: Call) -> Answer:
        try:
            body: Any = await self._calls.answer(opened.worker, call.call, bytes(call.body))
            status = 200
        except Exception as error:
            problem = to_problem(error)
            if problem is None:
                log.exception("call %s of worker %s failed", call.call, opened.worker)
                problem = Problem(500, "internal", "the relay failed; its log says why")
            status, body = problem.status, {"code": problem.code, "detail": problem.detail}
        return Answer(call.id, status, msgspec.Raw(msgspec.json.encode(body)))

    def _settle(self, delivery: Delivery) -> None:
        self._settled.append(delivery)
        self._something.set()

    def _refuse(self, delivery: Delivery) -> None:
        self.refused += 1
        self._settle(delivery)
        if monotonic() - self._refused_logged >= _LOG_EVERY:
            self._refused_logged = monotonic()
            log.warning(
                "%d messages so far were not sealed with our secret, for this namespace: they are "
                "ignored. Do all workers and relays have the same ROTA_DISPATCH_SECRET?", self.refused,
            )  # fmt: skip

    # -- sending

    async def _send(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            out, self._out = self._out, []
            settled, self._settled = self._settled, []
            ended = self._ended
            if not out and not settled:
                if ended:
                    return
                continue
            answers = [
                (opened.worker, self._sealer.seal(opened.worker, "answer", text, opened.secret))
                for opened, text in out
            ]
            try:
                await self._broker.reply(answers, settled)
            except BrokerUnavailable as error:
                # Workers ask again; calls that are not settled are taken again.
                log.warning("%d answers could not be sent: %s", len(answers), error)
            except Exception:
                log.exception("%d answers could not be sent", len(answers))
            if ended:
                return


def _read(opened: Opened | None) -> Call | None:
    if opened is None:
        return None
    try:
        return _call.decode(opened.text)
    except msgspec.DecodeError:
        return None
