"""Messages of a Redis stream: `redis://host:6379/STREAM`.

Entries are read by XREAD after our own position, the id of an entry. No consumer group: nothing that
Redis remembers about readers can lose or double a message. An entry with one field, or with the one
that the option `field` names, has that field's value as its body; of others the body is a JSON object
of all fields.

Ids that Redis gives (`XADD stream *`) rise with its clock, also after it was restarted or wiped. A
stream that ends before our position was made anew with ids of the sender's own, or has lost its end:
what follows is not guessed, it is a fault, until new entries have higher ids or a person rewinds.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rota.errors import ConfigError
from rota.lib.addresses import Address
from rota.operations.triggers import Message
from rota.worker.sources import Read, SourceUnavailable

try:
    from redis.asyncio import Redis
    from redis.exceptions import RedisError
except ModuleNotFoundError as missing:  # pragma: no cover - an installation without the extra
    raise ConfigError("triggers of Redis need its client: pip install 'rota[redis]'") from missing

_FIRST = "0-0"


class RedisSource:
    def __init__(self, address: Address) -> None:
        self._stream = address.path
        self._field = address.options.get("field")
        self._redis = connect(address)

    async def end(self) -> str | None:
        return (await self._info())[0]

    async def read(self, position: str | None, limit: int, wait: float) -> Read:
        after = position or _FIRST
        _order(after)
        answer = await self._ask(
            self._redis.xread({self._stream: after}, count=limit, block=max(int(wait * 1000), 1))
        )
        if not answer:
            last, _ = await self._info()
            if position is not None and last is not None and _order(last) < _order(position):
                raise SourceUnavailable(
                    f"the stream {self._stream!r} ends at {last}, before our position {position}: it "
                    "was created again or has lost entries. Set a position: `rota triggers rewind`"
                )
            return Read([], position)
        # As a list, or by stream as newer clients have it.
        entries = answer[0][1] if isinstance(answer, list) else next(iter(answer.values()))[0]
        return Read([self._message(id, fields) for id, fields in entries], entries[-1][0].decode())

    def _message(self, id: bytes, fields: dict[bytes, bytes]) -> Message:
        named = {name.decode("utf-8", "replace"): value for name, value in fields.items()}
        if self._field is not None:
            body = named.get(self._field, b"")
        elif len(named) == 1:
            body = next(iter(named.values()))
        else:
            texts = {name: value.decode("utf-8", "replace") for name, value in named.items()}
            body = msgspec.json.encode(texts)
        return Message(position=id.decode(), body=body, topic=self._stream)

    async def lag(self, position: str | None) -> int | None:
        _, length = await self._info()
        if position is None:
            return length
        # XRANGE counts at the server's cost: enough to tell none from many.
        after = await self._ask(self._redis.xrange(self._stream, f"({position}", "+", count=1_000))
        return len(after) if len(after) < 1_000 else max(1_000, length or 0)

    async def close(self) -> None:
        await self._redis.aclose()

    async def _info(self) -> tuple[str | None, int]:
        """Return the last id that was given, and how many entries there are."""
        try:
            found = await self._ask(self._redis.xinfo_stream(self._stream))
        except SourceUnavailable as error:
            if "no such key" in str(error).lower():
                return None, 0
            raise
        last = found["last-generated-id"]
        return (last.decode() if isinstance(last, bytes) else last), int(found["length"])

    async def _ask(self, call: Any) -> Any:
        try:
            return await call
        except (RedisError, OSError) as error:
            raise SourceUnavailable(f"Redis: {error}") from error


def connect(address: Address) -> Redis:
    host, _, port = address.hosts[0].rpartition(":")
    tls: dict[str, Any] = {}
    if address.tls:
        tls = {"ssl": True, "ssl_ca_certs": address.options.get("ca"),
               "ssl_certfile": address.options.get("cert"),
               "ssl_keyfile": address.options.get("key")}  # fmt: skip
    return Redis(
        host=host.strip("[]"), port=int(port), db=int(address.options.get("db", "0")),
        username=address.user or None, password=address.password or None,
        socket_connect_timeout=5.0, socket_timeout=10.0, **tls,
    )  # fmt: skip


def _order(id: str) -> tuple[int, int]:
    first, _, second = id.partition("-")
    try:
        return int(first), int(second or 0)
    except ValueError:
        raise SourceUnavailable(
            f"{id!r} is no id of a Redis stream. `rota triggers rewind` takes one that "
            "`rota triggers show` or a job's header shows"
        ) from None
