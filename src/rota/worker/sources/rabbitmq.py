"""Messages of a stream of RabbitMQ: `amqp://user:password@host:5672/STREAM`.

A stream (`x-queue-type: stream`) keeps its messages after they were read, and numbers them; a queue
does neither. We read after our own position: the number of a message, with a digest of its contents.
Acknowledgements only let the server send more.

Streams say nothing about when they were made, and a number past the end is silently taken as the end.
So each time that we attach, we ask for the message at our position itself, and compare it. If there is
none, or it is another, the stream was made anew or has lost its end: what follows is not guessed, it is
a fault until a person rewinds. If the server only has later messages, it dropped those before. We
attach again whenever nothing has come: the server doesn't always say that it stopped sending.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from typing import Any

from rota.errors import ConfigError
from rota.lib.addresses import Address
from rota.operations.triggers import Message
from rota.worker.sources import Read, SourceUnavailable

try:
    import aio_pika
    from aio_pika.exceptions import AMQPError, ChannelInvalidStateError, ChannelNotFoundEntity
except ModuleNotFoundError as missing:  # pragma: no cover - an installation without the extra
    raise ConfigError(
        "triggers of RabbitMQ need its client: pip install 'rota[rabbitmq]'"
    ) from missing

_ANSWER = 10.0  # seconds
_EMPTY = 1.0  # seconds without a message after which a stream that counts none is empty
_MORE = 0.01  # seconds
_NUMBER = "x-stream-offset"
FAULTS = (AMQPError, OSError, TimeoutError, asyncio.InvalidStateError, ChannelInvalidStateError)


class RabbitSource:
    def __init__(self, address: Address) -> None:
        self._stream = address.path
        self._address = address
        self._line: Any = None
        self._reader: _Reader | None = None

    async def end(self) -> str | None:
        last = await self._ask(self._last)
        return None if last is None else _position(last)

    async def read(self, position: str | None, limit: int, wait: float) -> Read:
        return await self._ask(lambda: self._read(position, limit, wait))  # type: ignore[no-any-return]

    async def _read(self, position: str | None, limit: int, wait: float) -> Read:
        number, digest = _parse(position) if position else (-1, "")
        reader = self._reader
        if reader is None or reader.number != number:
            reader = await self._attach(number, digest, limit)
            if reader is None:
                await asyncio.sleep(wait)
                return Read([], position)
        found = await reader.take(limit, wait)
        if not found:
            await self._detach()  # and attach again
            return Read([], position)
        return Read([_message(each) for each in found], _position(found[-1]))

    async def _attach(self, number: int, digest: str, limit: int) -> _Reader | None:
        """Read after a number, from now on. Returns None if there is no such stream."""
        await self._detach()
        if await self._count() is None:
            return None
        reader = _Reader(self._stream, number)
        await reader.open(self._line, max(number, 0) if number >= 0 else "first", 2 * limit)
        if number >= 0:
            first = await reader.first()
            if first is None or _number(first) < number:
                await reader.close()
                raise SourceUnavailable(
                    f"the stream {self._stream!r} ends before our position {number}: it was made anew, "
                    "or has lost messages. Set a position: `rota triggers rewind`"
                )
            if _number(first) == number:
                reader.waiting.get_nowait()
                if digest and _digest(first) != digest:
                    await reader.close()
                    raise SourceUnavailable(
                        f"message {number} of the stream {self._stream!r} is not the one that was read: "
                        "the stream was made anew, or has lost messages. Set a position: `rota triggers "
                        "rewind`"
                    )
            else:
                reader.number = _number(first) - 1
        self._reader = reader
        return reader

    async def lag(self, position: str | None) -> int | None:
        last = await self._ask(self._last)
        number = _parse(position)[0] if position else -1
        return 0 if last is None else max(_number(last) - number, 0)

    async def close(self) -> None:
        line, self._line, self._reader = self._line, None, None
        if line is not None:
            await line.close()

    async def _last(self) -> Any:
        """Return the last message; None: there is none."""
        count = await self._count()
        if count is None:
            return None
        reader = _Reader(self._stream, -1)
        await reader.open(self._line, "last", 1)
        # The count of a stream comes late: none may mean some. A server that counts some must send one.
        last = await reader.first(_ANSWER if count else _EMPTY)
        if count and last is None:
            raise TimeoutError(
                f"the stream {self._stream!r} has messages, and doesn't send the last"
            )
        await reader.close()  # which ends after all that the server has sent: a block of messages
        while not reader.waiting.empty():
            last = reader.waiting.get_nowait()
        return last

    async def _count(self) -> int | None:
        """Return how many messages there are; None: there is no such stream."""
        channel = await self._line.channel()
        try:
            found = await channel.declare_queue(self._stream, passive=True)
        except ChannelNotFoundEntity as error:
            if "no queue" in str(error):
                return None
            raise  # it is there, and the node that has it is not
        await channel.close()
        return int(found.declaration_result.message_count or 0)

    async def _detach(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await reader.close()

    async def _ask(self, call: Any) -> Any:
        try:
            async with asyncio.timeout(3 * _ANSWER):
                if self._line is None or self._line.is_closed:
                    self._line, self._reader = await connect(self._address), None
                return await call()
        except FAULTS as error:
            line, self._line, self._reader = self._line, None, None
            if line is not None:
                await close_quietly(line)
            raise SourceUnavailable(f"RabbitMQ: {type(error).__name__} {error}".rstrip()) from error


class _Reader:
    """A channel on which the server sends messages, in order."""

    def __init__(self, stream: str, number: int) -> None:
        self.number = number  # of the last message that was taken
        self.waiting: asyncio.Queue[Any] = asyncio.Queue()
        self._stream = stream
        self._channel: Any = None
        self._queue: Any = None
        self._tag = ""

    async def open(self, line: Any, after: int | str, ahead: int) -> None:
        self._channel = await line.channel()
        await self._channel.set_qos(prefetch_count=ahead)
        self._queue = await self._channel.get_queue(self._stream, ensure=False)
        self._tag = await self._queue.consume(self._arrived, arguments={_NUMBER: after})

    async def _arrived(self, message: Any) -> None:
        self.waiting.put_nowait(message)

    async def first(self, wait: float = _ANSWER) -> Any:
        """Wait for the first message, and leave it there. None: there is none."""
        try:
            async with asyncio.timeout(wait):
                found = await self.waiting.get()
        except TimeoutError:
            return None
        rest, self.waiting = self.waiting, asyncio.Queue()
        self.waiting.put_nowait(found)
        while not rest.empty():
            self.waiting.put_nowait(rest.get_nowait())
        return found

    async def take(self, limit: int, wait: float) -> list[Any]:
        found: list[Any] = []
        try:
            async with asyncio.timeout(wait):
                found.append(await self.waiting.get())
        except TimeoutError:
            return found
        while len(found) < limit:
            if self.waiting.empty():
                await asyncio.sleep(_MORE)  # a block of messages arrives one by one
                if self.waiting.empty():
                    break
            found.append(self.waiting.get_nowait())
        for place, message in enumerate(found):
            if _number(message) != self.number + 1 + place and (place or self.number >= 0):
                return found[:place]  # some are missing: we attach again, after those before
        self.number = _number(found[-1])
        await found[-1].ack(multiple=True)
        return found

    async def close(self) -> None:
        if not self._channel.is_closed:
            await self._queue.cancel(self._tag)
            await self._channel.close()


async def connect(address: Address) -> Any:
    """Connect to the first host that answers."""
    error: Exception = OSError("no host")
    for host in address.hosts:
        name, _, port = host.rpartition(":")
        try:
            return await aio_pika.connect(
                host=name.strip("[]"), port=int(port), login=address.user or "guest",
                password=address.password or "guest", timeout=_ANSWER / 2,
                virtualhost=address.options.get("vhost", "/"), ssl=address.tls,
                ssl_context=address.ssl_context("source"),
            )  # fmt: skip
        except FAULTS as failed:
            error = failed
    raise error


async def close_quietly(line: Any) -> None:
    """Close a line that may be broken, without waiting for long."""
    await asyncio.wait({asyncio.create_task(_close(line))}, timeout=1.0)


async def _close(line: Any) -> None:
    with contextlib.suppress(*FAULTS):  # it is gone
        await line.close()


def _number(message: Any) -> int:
    number = message.headers.get(_NUMBER)
    if not isinstance(number, int):
        raise SourceUnavailable(
            "this is a queue, not a stream: declare one with x-queue-type: stream, and bind it to the "
            "exchange that the messages are sent to"
        )
    return number


def _digest(message: Any) -> str:
    headers = sorted((str(k), str(v)) for k, v in message.headers.items() if k != _NUMBER)
    about = (message.routing_key, message.message_id, str(message.timestamp), headers)
    return hashlib.blake2b(repr(about).encode() + message.body, digest_size=8).hexdigest()


def _position(message: Any) -> str:
    return f"{_number(message)}/{_digest(message)}"


def _message(message: Any) -> Message:
    headers = {str(k): str(v) for k, v in message.headers.items() if k != _NUMBER}
    if message.message_id:
        headers.setdefault("message_id", message.message_id)
    return Message(
        position=_position(message),
        body=message.body,
        headers=headers,
        topic=message.routing_key or "",
    )


def _parse(position: str) -> tuple[int, str]:
    number, _, digest = position.partition("/")
    try:
        if int(number) < 0:
            raise ValueError(number)
        return int(number), digest
    except ValueError:
        raise SourceUnavailable(
            f"{position!r} is no position of RabbitMQ (NUMBER/DIGEST). `rota triggers rewind` takes one "
            "that `rota triggers show` or a job's header shows, or a number alone"
        ) from None
