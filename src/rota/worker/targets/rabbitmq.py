"""Events to an exchange of RabbitMQ: `amqp://host:5672/EXCHANGE`. The routing key is the event's type.

Each is confirmed before the next is sent. An event that no queue takes is returned by the broker, and is
a fault: it is not lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import aio_pika

from rota.core.cloudevents import CONTENT_TYPE, CloudEvent
from rota.lib.addresses import Address
from rota.worker.sources import SourceUnavailable
from rota.worker.sources.rabbitmq import FAULTS, close_quietly, connect


class RabbitTarget:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._line: Any = None
        self._exchange: Any = None

    async def send(self, events: Sequence[CloudEvent]) -> None:
        try:
            if self._exchange is None or self._line.is_closed:
                self._line = await connect(self._address)
                channel = await self._line.channel(publisher_confirms=True, on_return_raises=True)
                self._exchange = await channel.get_exchange(self._address.path, ensure=True)
            for event in events:
                message = aio_pika.Message(
                    event.body, content_type=CONTENT_TYPE, message_id=event.id, type=event.type,
                    delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                )  # fmt: skip
                await self._exchange.publish(message, routing_key=event.type, mandatory=True)
        except FAULTS as error:
            await self.close()
            raise SourceUnavailable(f"RabbitMQ: {type(error).__name__} {error}".rstrip()) from error

    async def close(self) -> None:
        line, self._line, self._exchange = self._line, None, None
        if line is not None:
            await close_quietly(line)
