"""Events to a Redis stream: `redis://host:6379/STREAM?maxlen=100000`. One field, `event`, is the event.

A batch is one transaction: an entry that is refused takes those after it along, and their order stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from redis.exceptions import RedisError

from rota.core.cloudevents import CloudEvent
from rota.lib.addresses import Address
from rota.worker.sources import SourceUnavailable
from rota.worker.sources.redis import connect


class RedisTarget:
    def __init__(self, address: Address) -> None:
        self._stream = address.path
        self._most = int(address.options["maxlen"]) if "maxlen" in address.options else None
        self._redis = connect(address)

    async def send(self, events: Sequence[CloudEvent]) -> None:
        try:
            async with self._redis.pipeline(transaction=True) as pipe:
                for event in events:
                    pipe.xadd(self._stream, {"event": event.body}, maxlen=self._most)
                await pipe.execute()
        except (RedisError, OSError) as error:
            raise SourceUnavailable(f"Redis: {error}") from error

    async def close(self) -> None:
        await self._redis.aclose()
