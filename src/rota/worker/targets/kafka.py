"""Events to a topic of Kafka: `kafka://host:9092/TOPIC`. The key is the event's subject, so that the
events of a job are in one partition, in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from rota.core.cloudevents import CONTENT_TYPE, CloudEvent
from rota.lib.addresses import Address
from rota.lib.kafka import connection_settings, stop_client
from rota.worker.sources import SourceUnavailable


class KafkaTarget:
    def __init__(self, address: Address) -> None:
        self._topic = address.path
        self._settings = connection_settings("source", address)
        self._producer: Any = None

    async def send(self, events: Sequence[CloudEvent]) -> None:
        headers = [("content-type", CONTENT_TYPE.encode())]
        try:
            if self._producer is None:
                producer = AIOKafkaProducer(enable_idempotence=True, **self._settings)
                try:
                    await producer.start()
                except BaseException:
                    await stop_client(producer)
                    raise
                self._producer = producer
            sent = [
                await self._producer.send(
                    self._topic, event.body, key=event.subject.encode(), headers=headers
                )
                for event in events
            ]
            await asyncio.gather(*sent)
        except (KafkaError, OSError, TimeoutError) as error:
            await self.close()  # and with it what it would send later, out of order
            raise SourceUnavailable(f"Kafka: {type(error).__name__} {error}".rstrip()) from error

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await stop_client(producer)
