"""Redis Streams: `redis://host:6379`, `redis+tls://user:password@host:6379/prefix?db=1`.

    PREFIX:NAMESPACE:calls          one stream for all calls, read by the group `relays`
    PREFIX:NAMESPACE:worker:ID      one stream of answers for each worker, which alone reads it

A relay acknowledges and deletes a call after it was answered; calls that a dead relay took and didn't
acknowledge are claimed by others after ten seconds. A worker reads its stream from the start and deletes
what it has read, so that nothing depends on the ids of entries, which may go back with Redis's clock.
Both streams are cut at a length that is far beyond what is ever in them, and the workers' expire, for
those that were killed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from time import monotonic
from typing import Any
from uuid import UUID

from rota.errors import ConfigError
from rota.lib.addresses import Address
from rota.lib.ids import new_id
from rota.runtime.dispatch import BrokerUnavailable, Delivery

try:
    from redis.asyncio import Redis
    from redis.exceptions import RedisError, ResponseError
except ModuleNotFoundError as missing:  # pragma: no cover - an installation without the extra
    raise ConfigError("dispatch by Redis needs its client: pip install 'rota[redis]'") from missing

_GROUP = "relays"
_FIELD = b"m"
_MOST_CALLS = 100_000
_MOST_ANSWERS = 10_000
_EXPIRE = 600  # seconds without an answer to it, after which a worker's stream is removed
_ABANDONED = 10.0  # seconds after which another relay takes a call
_LOOK_EVERY = 5.0
_FORGET = 3_600_000  # milliseconds after which a relay that was killed is forgotten
_TIMEOUT = 10.0


class RedisBroker:
    def __init__(self, address: Address, prefix: str, namespace: str) -> None:
        host, _, port = address.hosts[0].rpartition(":")
        tls: dict[str, Any] = {}
        if address.tls:
            tls = {"ssl": True, "ssl_ca_certs": address.options.get("ca"),
                   "ssl_certfile": address.options.get("cert"),
                   "ssl_keyfile": address.options.get("key")}  # fmt: skip
        self._redis = Redis(
            host=host.strip("[]"), port=int(port), db=int(address.options.get("db", "0")),
            username=address.user or None, password=address.password or None,
            socket_connect_timeout=5.0, socket_timeout=_TIMEOUT, **tls,
        )  # fmt: skip
        self._calls = f"{prefix}:{namespace}:calls"
        self._worker = f"{prefix}:{namespace}:worker:"
        self._consumer = new_id().hex
        self._look_at = 0.0
        self._read: dict[UUID, list[bytes]] = {}  # entries of workers that are to be deleted

    # -- of relays

    async def take(self, most: int, wait: float) -> Sequence[Delivery]:
        if monotonic() >= self._look_at:
            self._look_at = monotonic() + _LOOK_EVERY
            if abandoned := await self._take_abandoned(most):
                self._look_at = 0.0  # there may be more
                return abandoned
        found = await self._in_group(
            "XREADGROUP", "GROUP", _GROUP, self._consumer, "COUNT", most, "BLOCK",
            max(int(wait * 1000), 1), "STREAMS", self._calls, ">",
        )  # fmt: skip
        return _deliveries(_entries(found))

    async def _take_abandoned(self, most: int) -> Sequence[Delivery]:
        found = await self._in_group(
            "XAUTOCLAIM", self._calls, _GROUP, self._consumer, int(_ABANDONED * 1000), "0",
            "COUNT", most,
        )  # fmt: skip
        # Entries that were deleted meanwhile have no fields.
        return _deliveries([entry for entry in found[1] if entry and entry[1]])

    async def _in_group(self, *command: Any) -> Any:
        """Send a command that needs the group. The group is made when it isn't there (any more)."""
        try:
            return await self._ask(self._command(*command))
        except BrokerUnavailable as error:
            if "NOGROUP" not in str(error) and "no such key" not in str(error):
                raise
        with contextlib.suppress(_Exists):
            await self._ask(self._redis.xgroup_create(self._calls, _GROUP, "0", mkstream=True))
        await self._forget_relays()
        return await self._ask(self._command(*command))

    async def _forget_relays(self) -> None:
        for each in await self._ask(self._redis.xinfo_consumers(self._calls, _GROUP)):
            if each["pending"] == 0 and each["idle"] > _FORGET:
                await self._ask(self._redis.xgroup_delconsumer(self._calls, _GROUP, each["name"]))

    async def reply(
        self, answers: Sequence[tuple[UUID, bytes]], settled: Sequence[Delivery]
    ) -> None:
        pipe = self._redis.pipeline(transaction=False)
        for worker, body in answers:
            stream = self._worker + worker.hex
            pipe.xadd(stream, {_FIELD: body}, maxlen=_MOST_ANSWERS, approximate=True)
        for worker in {worker for worker, _ in answers}:
            pipe.expire(self._worker + worker.hex, _EXPIRE)
        if settled:
            receipts = [delivery.receipt for delivery in settled]
            pipe.xack(self._calls, _GROUP, *receipts)
            pipe.xdel(self._calls, *receipts)
        for answer in await self._ask(pipe.execute(raise_on_error=False)):
            if isinstance(answer, Exception) and "NOGROUP" not in str(answer):
                raise BrokerUnavailable(f"Redis: {answer}")

    # -- of workers

    async def call(self, bodies: Sequence[bytes]) -> None:
        pipe = self._redis.pipeline(transaction=False)
        for body in bodies:
            pipe.xadd(self._calls, {_FIELD: body}, maxlen=_MOST_CALLS, approximate=True)
        await self._ask(pipe.execute())

    async def answers(self, worker: UUID, wait: float) -> Sequence[bytes]:
        stream = self._worker + worker.hex
        block = max(int(wait * 1000), 1)
        command = ("XREAD", "COUNT", 1000, "BLOCK", block, "STREAMS", stream, "0")
        if read := self._read.get(worker):
            # Both in one trip: what comes next must not wait for what is done with.
            pipe = self._redis.pipeline(transaction=False)
            pipe.xdel(stream, *read)
            pipe.execute_command(*command, **_RAW)
            found = (await self._ask(pipe.execute()))[1]
        else:
            found = await self._ask(self._command(*command))
        entries = _entries(found)
        self._read[worker] = [id for id, _ in entries]
        return [delivery.body for delivery in _deliveries(entries)]

    async def leave(self, worker: UUID) -> None:
        self._read.pop(worker, None)
        await self._ask(self._redis.delete(self._worker + worker.hex))

    async def close(self) -> None:
        with contextlib.suppress(RedisError, OSError):
            await self._redis.aclose()

    def _command(self, *command: Any) -> Any:
        return self._redis.execute_command(*command, **_RAW)  # type: ignore[no-untyped-call]

    async def _ask(self, call: Any) -> Any:
        try:
            return await call
        except ResponseError as error:
            if "BUSYGROUP" in str(error):
                raise _Exists(str(error)) from error
            raise BrokerUnavailable(f"Redis: {error}") from error
        except (TimeoutError, RedisError, OSError) as error:
            raise BrokerUnavailable(f"Redis: {error}") from error


class _Exists(BrokerUnavailable):
    """Raised for a group that somebody else has made meanwhile."""


# Answers as the server gives them: what the client makes of them differs by its version.
_RAW: dict[str, Any] = {"NEVER_DECODE": True}


def _entries(found: Any) -> list[Any]:
    """Return the entries of the one stream that was read; of RESP 2 a list, of RESP 3 a mapping."""
    if not found:
        return []
    if isinstance(found, dict):
        return list(next(iter(found.values())))
    return list(found[0][1])


def _deliveries(entries: Sequence[Any]) -> list[Delivery]:
    deliveries = []
    for id, fields in entries:
        named = (
            fields
            if isinstance(fields, dict)
            else dict(zip(fields[::2], fields[1::2], strict=True))
        )
        deliveries.append(Delivery(named.get(_FIELD, b""), id))
    return deliveries
