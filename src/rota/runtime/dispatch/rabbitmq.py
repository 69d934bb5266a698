"""RabbitMQ: `amqp://user:password@host:5672`, `amqp+tls://...`.

    PREFIX.NAMESPACE.calls        a queue for all calls, which relays consume
    PREFIX.NAMESPACE.worker.ID    a queue of answers for each worker, exclusive to its connection

A relay acknowledges a call after it was answered. Calls that a relay took and didn't acknowledge are
delivered to another when its connection is gone: at once when it was killed, after two missed
heartbeats when it hangs. Messages are not written to disk, and are sent without confirms: nothing
depends on them, and a call that isn't answered is sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from rota.errors import ConfigError
from rota.lib.addresses import Address
from rota.runtime.dispatch import BrokerUnavailable, Delivery

try:
    import aio_pika
    from aio_pika.exceptions import (
        AMQPError,
        ChannelInvalidStateError,
        ChannelPreconditionFailed,
    )
except ModuleNotFoundError as missing:  # pragma: no cover - an installation without the extra
    raise ConfigError(
        "dispatch by RabbitMQ needs its client: pip install 'rota[rabbitmq]'"
    ) from missing

_MOST_CALLS = 100_000
_OLDEST = 600_000  # milliseconds after which a call that no relay took is dropped
_AHEAD = 256  # calls that a relay is given before it has acknowledged others
_HEARTBEAT = 10
_ANSWER = 10.0
_FAULTS = (AMQPError, OSError, TimeoutError, asyncio.InvalidStateError, ChannelInvalidStateError)


class RabbitBroker:
    def __init__(self, address: Address, prefix: str, namespace: str) -> None:
        self._address = address
        self._calls, self._worker = f"{prefix}.{namespace}.calls", f"{prefix}.{namespace}.worker."
        self._hosts = deque(address.hosts)
        self._line: Any = None
        self._channel: Any = None
        self._opening = asyncio.Lock()
        self._taken: asyncio.Queue[Any] | None = None  # of a relay
        self._heard: dict[UUID, asyncio.Queue[Any]] = {}  # of workers

    # -- of relays

    async def take(self, most: int, wait: float) -> Sequence[Delivery]:
        channel = await self._connected()
        if self._taken is None:
            await self._ask(self._consume_calls(channel))
        assert self._taken is not None
        found = await self._next(self._taken, most, wait)
        return [Delivery(message.body, message) for message in found]

    async def _consume_calls(self, channel: Any) -> None:
        await channel.set_qos(prefetch_count=_AHEAD)
        await self._make_queue()
        queue = await channel.get_queue(self._calls)
        taken: asyncio.Queue[Any] = asyncio.Queue()
        await queue.consume(taken.put)
        self._taken = taken

    async def _make_queue(self) -> None:
        arguments = {"x-max-length": _MOST_CALLS, "x-message-ttl": _OLDEST}
        channel = await self._line.channel()  # an error closes it
        try:
            await channel.declare_queue(self._calls, durable=True, arguments=arguments)
        except ChannelPreconditionFailed:
            return  # made by an administrator or another version of Rota: any queue will do
        await channel.close()

    async def reply(
        self, answers: Sequence[tuple[UUID, bytes]], settled: Sequence[Delivery]
    ) -> None:
        channel = await self._connected()
        for worker, body in answers:
            await self._publish(channel, self._worker + worker.hex, body)
        for delivery in settled:
            await self._ask(delivery.receipt.ack())

    # -- of workers

    async def call(self, bodies: Sequence[bytes]) -> None:
        channel = await self._connected()
        for body in bodies:
            await self._publish(channel, self._calls, body)

    async def answers(self, worker: UUID, wait: float) -> Sequence[bytes]:
        channel = await self._connected()
        if worker not in self._heard:
            await self._ask(self._consume_answers(channel, worker))
        found = await self._next(self._heard[worker], 1000, wait)
        return [message.body for message in found]

    async def _consume_answers(self, channel: Any, worker: UUID) -> None:
        name = self._worker + worker.hex
        queue = await channel.declare_queue(name, exclusive=True, auto_delete=True)
        heard: asyncio.Queue[Any] = asyncio.Queue()
        await queue.consume(heard.put, no_ack=True)
        self._heard[worker] = heard

    async def leave(self, worker: UUID) -> None:
        if self._heard.pop(worker, None) is not None and self._is_open():
            await self._ask(self._channel.queue_delete(self._worker + worker.hex))

    async def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            with contextlib.suppress(*_FAULTS):
                async with asyncio.timeout(_ANSWER):
                    await line.close()

    # -- the connection

    def _is_open(self) -> bool:
        return self._line is not None and not (self._line.is_closed or self._channel.is_closed)

    async def _connected(self) -> Any:
        if self._is_open():
            return self._channel
        async with self._opening:
            if not self._is_open():
                await self.close()
                self._taken = None
                self._heard.clear()
                await self._ask(self._connect())
        return self._channel

    async def _connect(self) -> None:
        address = self._address
        self._hosts.rotate(-1)  # one that doesn't answer is followed by the next
        host, _, port = self._hosts[0].rpartition(":")
        line = await aio_pika.connect(
            host=host.strip("[]"), port=int(port), login=address.user or "guest",
            password=address.password or "guest", ssl=address.tls,
            ssl_context=address.ssl_context("dispatch"), timeout=5,
            virtualhost=address.options.get("vhost", "/"),
            client_properties={"connection_name": "rota"}, heartbeat=_HEARTBEAT,
        )  # fmt: skip
        self._line, self._channel = line, await line.channel(publisher_confirms=False)

    async def _publish(self, channel: Any, queue: str, body: bytes) -> None:
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.NOT_PERSISTENT)
        await self._ask(channel.default_exchange.publish(message, queue, mandatory=False))

    async def _next(self, waiting: asyncio.Queue[Any], most: int, wait: float) -> list[Any]:
        """Return what has arrived; wait for the first only."""
        try:
            async with asyncio.timeout(wait):
                found = [await waiting.get()]
        except TimeoutError:
            if not self._is_open():
                raise BrokerUnavailable("RabbitMQ: the connection was lost") from None
            return []
        while len(found) < most and not waiting.empty():
            found.append(waiting.get_nowait())
        return found

    async def _ask(self, call: Any) -> Any:
        try:
            async with asyncio.timeout(_ANSWER):
                return await call
        except _FAULTS as error:
            raise BrokerUnavailable(f"RabbitMQ: {type(error).__name__} {error}".rstrip()) from error
