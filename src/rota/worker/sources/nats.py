"""Messages of a stream of NATS JetStream: `nats://host:4222/STREAM`.

Messages are read by an ephemeral consumer that acknowledges nothing and begins after our own position:
the sequence number of a message, with the time at which the stream was made and the time of the
message. A stream that was made anew is read from its beginning. JetStream acknowledges a publish
before it is on the disk, by default: a server that crashes may lose the end of a stream, and give the
same numbers to other messages. So the message at our position is compared with what it was; if it is
another, that is a fault that a person has to decide about, by a rewind.
"""

from __future__ import annotations

import asyncio
from typing import Any

from rota.errors import ConfigError
from rota.lib.addresses import Address
from rota.operations.triggers import Message
from rota.worker.sources import Read, SourceUnavailable

try:
    import nats
    from nats.errors import Error as NatsError
    from nats.errors import TimeoutError as NatsTimeout
    from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
    from nats.js.errors import NotFoundError
except ModuleNotFoundError as missing:  # pragma: no cover - an installation without the extra
    raise ConfigError("triggers of NATS need its client: pip install 'rota[nats]'") from missing

_ANSWER = 5.0  # seconds
_IDLE = 60.0  # seconds after which the server forgets a consumer that nobody reads from


class NatsSource:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._stream = address.path
        self._line: Any = None
        self._reader: Any = None
        self._made = ""  # when the stream was made
        self._next: int | None = None  # the sequence number that the consumer gives next
        self._sent = 0  # how many messages the consumer has given

    async def end(self) -> str | None:
        info = await self._info()
        if info is None or info.state.last_seq == 0:
            return None
        last = info.state.last_seq
        # The last message may be deleted, which does not make those before it new.
        return await self._position_at(info, last) or f"{_stamp(info.created)}/{last}/0"

    async def read(self, position: str | None, limit: int, wait: float) -> Read:
        info = await self._info() if self._reader is None else None
        if self._reader is None and info is None:
            await asyncio.sleep(wait)
            return Read([], position)
        sequence = _parse(position)[1] if position else 0
        if self._reader is None or self._next != sequence + 1:
            info = info or await self._info()
            sequence = await self._checked(info, position)
            await self._consume(sequence + 1)
            self._made = _stamp(info.created)
        try:
            found = await self._reader.fetch(limit, timeout=max(wait, 0.05))
        except (NatsTimeout, TimeoutError):
            self._reader = None  # asked anew: the stream may have been made anew meanwhile
            return Read([], position)
        except (NatsError, OSError) as error:
            await self.close()
            raise SourceUnavailable(f"NATS: {type(error).__name__} {error}".rstrip()) from error
        messages = []
        for each in found:
            about = each.metadata
            # The consumer counts what it has sent: one that is missing was lost on the way to us, and is
            # not acknowledged, so that it would never come again. Asked anew, it does.
            if about.sequence.consumer != self._sent + 1:
                self._reader = None
                break
            self._sent = about.sequence.consumer
            place = f"{self._made}/{about.sequence.stream}/{_stamp(about.timestamp)}"
            headers = {str(name): str(value) for name, value in (each.headers or {}).items()}
            messages.append(
                Message(position=place, body=each.data, headers=headers, topic=each.subject)
            )
            self._next = about.sequence.stream + 1
        return Read(messages, messages[-1].position if messages else position)

    async def lag(self, position: str | None) -> int | None:
        info = await self._info()
        if info is None:
            return 0
        return max(int(info.state.last_seq) - (_parse(position)[1] if position else 0), 0)

    async def close(self) -> None:
        line, self._line, self._reader = self._line, None, None
        if line is not None:
            await line.close()

    async def _checked(self, info: Any, position: str | None) -> int:
        """Return the sequence number after which to go on."""
        if position is None:
            return 0
        made, sequence, time = _parse(position)
        if abs(made - int(_stamp(info.created))) > 1:
            return 0  # another stream: all of its messages are new
        if sequence > info.state.last_seq:
            raise SourceUnavailable(
                f"the stream {self._stream!r} ends at {info.state.last_seq}, before our position "
                f"{sequence}: the server has lost messages. Set a position: `rota triggers rewind`"
            )
        there = await self._position_at(info, sequence)
        if there is not None and abs(_parse(there)[2] - time) > 1:
            raise SourceUnavailable(
                f"message {sequence} of the stream {self._stream!r} is not the one that was read: the "
                "server has lost messages. Set a position: `rota triggers rewind`"
            )
        return sequence

    async def _position_at(self, info: Any, sequence: int) -> str | None:
        """Return the position of a message; None: it isn't kept any more."""
        try:
            found = await self._ask(lambda js: js.get_msg(self._stream, sequence))
        except NotFoundError:
            return None
        return f"{_stamp(info.created)}/{sequence}/{_stamp(found.time)}"

    async def _consume(self, first: int) -> None:
        settings = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=first,
            ack_policy=AckPolicy.NONE, inactive_threshold=_IDLE, mem_storage=True, num_replicas=1,
        )  # fmt: skip
        made = await self._ask(lambda js: js.add_consumer(self._stream, settings))
        self._reader = await self._ask(
            lambda js: js.pull_subscribe_bind(consumer=made.name, stream=self._stream)
        )
        self._next, self._sent = first, 0

    async def _info(self) -> Any:
        try:
            return await self._ask(lambda js: js.stream_info(self._stream))
        except NotFoundError:
            return None

    async def _ask(self, call: Any) -> Any:
        try:
            if self._line is None:
                self._line = await connect(self._address)
            return await call(self._line.jetstream(timeout=_ANSWER))
        except NotFoundError:
            raise
        except (NatsError, OSError, TimeoutError) as error:
            await self.close()
            raise SourceUnavailable(f"NATS: {type(error).__name__} {error}".rstrip()) from error


async def connect(address: Address) -> Any:
    options: dict[str, Any] = {}
    if address.user:
        options = {"user": address.user, "password": address.password}
    if address.tls:
        options["tls"] = address.ssl_context("source")
    return await nats.connect(
        [f"{'tls' if address.tls else 'nats'}://{host}" for host in address.hosts],
        connect_timeout=_ANSWER, max_reconnect_attempts=1, allow_reconnect=False, error_cb=_quiet,
        **options,
    )  # fmt: skip


async def _quiet(_: Exception) -> None:
    """Do nothing: what goes wrong is raised where it was asked for."""


def _parse(position: str) -> tuple[int, int, int]:
    try:
        made, sequence, time = (int(part) for part in position.split("/"))
    except ValueError:
        raise SourceUnavailable(
            f"{position!r} is no position of NATS (STREAM'S TIME/SEQUENCE/TIME). `rota triggers rewind` "
            "takes one that `rota triggers show` or a job's header shows"
        ) from None
    return made, sequence, time


def _stamp(moment: Any) -> str:
    """Return milliseconds as text: the client rounds nanoseconds in more than one way."""
    return str(round(moment.timestamp() * 1000))
