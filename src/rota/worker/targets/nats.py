"""Events to a subject of NATS JetStream: `nats://host:4222/SUBJECT`. A stream must have the subject.

Each is confirmed before the next is sent. The header `Nats-Msg-Id` lets JetStream itself drop an event
that is sent again soon. It is a digest of the event: another installation that sends to the same stream
has events of the same ids, and JetStream would drop them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nats.errors import Error as NatsError

from rota.core.cloudevents import CONTENT_TYPE, CloudEvent
from rota.lib.addresses import Address
from rota.worker.sources import SourceUnavailable
from rota.worker.sources.nats import connect

_ANSWER = 5.0  # seconds


class NatsTarget:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._line: Any = None

    async def send(self, events: Sequence[CloudEvent]) -> None:
        try:
            if self._line is None:
                self._line = await connect(self._address)
            stream = self._line.jetstream(timeout=_ANSWER)
            for event in events:
                headers = {"Nats-Msg-Id": event.digest, "Content-Type": CONTENT_TYPE}
                await stream.publish(self._address.path, event.body, headers=headers)
        except (NatsError, OSError, TimeoutError) as error:
            await self.close()
            raise SourceUnavailable(f"NATS: {type(error).__name__} {error}".rstrip()) from error

    async def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.close()
