"""NATS: `nats://host:4222`, `nats+tls://user:password@one:4222,two:4222/prefix`.

    PREFIX.NAMESPACE.calls        a subject of a JetStream work queue, read by the group `relays`
    PREFIX.NAMESPACE.worker.ID    a subject for the answers to each worker, which NATS doesn't keep

A relay acknowledges a call after it was answered; one that wasn't acknowledged within ten seconds is
delivered again. The stream is kept in memory: nothing depends on it. Calls and answers are published
without waiting for an acknowledgement, since a call that isn't answered is sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from time import monotonic
from typing import Any
from uuid import UUID

from rota.errors import ConfigError
from rota.lib.addresses import Address
from rota.runtime.dispatch import BrokerUnavailable, Delivery

try:
    import nats
    from nats.errors import Error as NatsError
    from nats.errors import TimeoutError as NatsTimeout
    from nats.js.api import (
        ConsumerConfig,
        DiscardPolicy,
        RetentionPolicy,
        StorageType,
        StreamConfig,
    )
    from nats.js.errors import BadRequestError, NotFoundError
except ModuleNotFoundError as missing:  # pragma: no cover - an installation without the extra
    raise ConfigError("dispatch by NATS needs its client: pip install 'rota[nats]'") from missing

_GROUP = "relays"
_OTHER_SETTINGS = 10058  # NATS: stream name already in use with a different configuration
_MOST_CALLS = 100_000
_OLDEST = 600.0  # seconds after which a call that no relay took is dropped
_ABANDONED = 10.0
_LOOK_EVERY = 2.0  # seconds between looks whether the stream is still there
_ANSWER = 5.0
# An answer has up to 4 MB of payloads, and a report up to 1 MB of results and one more.
_LEAST_PAYLOAD = 6_000_000


class NatsBroker:
    def __init__(self, address: Address, prefix: str, namespace: str) -> None:
        self._servers = [f"{'tls' if address.tls else 'nats'}://{host}" for host in address.hosts]
        self._options: dict[str, Any] = {}
        if address.user:
            self._options = {"user": address.user, "password": address.password}
        if address.tls:
            self._options["tls"] = address.ssl_context("dispatch")
        base = f"{_token(prefix)}.{_token(namespace)}"
        self._stream = base.replace(".", "_")
        self._calls, self._worker = f"{base}.calls", f"{base}.worker."
        self._line: Any = None
        self._opening = asyncio.Lock()
        self._taking: Any = None  # the subscription of a relay
        self._listening: dict[UUID, Any] = {}  # those of workers
        self._look_at = 0.0

    # -- of relays

    async def take(self, most: int, wait: float) -> Sequence[Delivery]:
        line = await self._connected()
        try:
            if self._taking is None or monotonic() >= self._look_at:
                await self._look(line)
            found = await _next(self._taking, most, wait)
        except (TimeoutError, NatsError, OSError) as error:
            self._taking = None
            raise _unavailable(error) from error
        return [Delivery(message.data, message) for message in found]

    async def _look(self, line: Any) -> None:
        """Make the stream and its consumer, if they aren't there (any more), and subscribe."""
        stream = line.jetstream(timeout=_ANSWER)
        try:
            await stream.consumer_info(self._stream, _GROUP)
        except NotFoundError:
            self._taking = None
        if self._taking is None:
            wanted = StreamConfig(
                name=self._stream, subjects=[self._calls], retention=RetentionPolicy.WORK_QUEUE,
                storage=StorageType.MEMORY, max_msgs=_MOST_CALLS, max_age=_OLDEST,
                discard=DiscardPolicy.OLD,
            )  # fmt: skip
            try:
                await stream.add_stream(wanted)
            except BadRequestError as error:
                # Made by an administrator or another version of Rota: any stream of calls will do.
                if error.err_code != _OTHER_SETTINGS:
                    raise
            self._taking = await stream.subscribe(
                self._calls, queue=_GROUP, durable=_GROUP, stream=self._stream, manual_ack=True,
                config=ConsumerConfig(ack_wait=_ABANDONED, max_ack_pending=10_000),
            )  # fmt: skip
        self._look_at = monotonic() + _LOOK_EVERY

    async def reply(
        self, answers: Sequence[tuple[UUID, bytes]], settled: Sequence[Delivery]
    ) -> None:
        line = await self._connected()
        try:
            for worker, body in answers:
                await line.publish(self._worker + worker.hex, body)
            for delivery in settled:
                await delivery.receipt.ack()
        except (TimeoutError, NatsError, OSError) as error:
            raise _unavailable(error) from error

    # -- of workers

    async def call(self, bodies: Sequence[bytes]) -> None:
        line = await self._connected()
        try:
            for body in bodies:
                await line.publish(self._calls, body)
        except (TimeoutError, NatsError, OSError) as error:
            raise _unavailable(error) from error

    async def answers(self, worker: UUID, wait: float) -> Sequence[bytes]:
        line = await self._connected()
        try:
            if worker not in self._listening:
                self._listening[worker] = await line.subscribe(self._worker + worker.hex)
            found = await _next(self._listening[worker], 1000, wait)
        except (TimeoutError, NatsError, OSError) as error:
            self._listening.pop(worker, None)
            raise _unavailable(error) from error
        return [message.data for message in found]

    async def leave(self, worker: UUID) -> None:
        if (listening := self._listening.pop(worker, None)) is not None:
            with contextlib.suppress(NatsError, OSError):
                await listening.unsubscribe()

    async def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            with contextlib.suppress(NatsError, OSError, asyncio.TimeoutError):
                async with asyncio.timeout(_ANSWER):
                    await line.flush()
            with contextlib.suppress(NatsError, OSError):
                await line.close()

    async def _connected(self) -> Any:
        if self._line is not None and self._line.is_connected:
            return self._line
        async with self._opening:
            if self._line is None or self._line.is_closed:
                await self._connect()
        if not self._line.is_connected:
            raise BrokerUnavailable("NATS: not connected, trying again")
        return self._line

    async def _connect(self) -> None:
        self._taking = None
        self._listening.clear()
        try:
            line = await nats.connect(
                self._servers, connect_timeout=5, ping_interval=5, error_cb=_quiet, **self._options,
                # Who asks connects anew, and says why it can't: the client itself would try for ever.
                allow_reconnect=False, max_reconnect_attempts=1,
            )  # fmt: skip
        except (TimeoutError, NatsError, OSError) as error:
            raise _unavailable(error) from error
        if line.max_payload < _LEAST_PAYLOAD:
            allowed = line.max_payload
            await line.close()
            raise BrokerUnavailable(
                f"NATS: its max_payload is {allowed:,} bytes, and calls and answers may have "
                f"{_LEAST_PAYLOAD:,}: set max_payload: 8MB in the server's configuration"
            )
        self._line = line


async def _next(subscription: Any, most: int, wait: float) -> list[Any]:
    """Return what has arrived; wait for the first only."""
    try:
        found = [await subscription.next_msg(timeout=wait)]
    except (TimeoutError, NatsTimeout):
        return []
    while len(found) < most and subscription.pending_msgs:
        found.append(await subscription.next_msg(timeout=1))
    return found


async def _quiet(error: Exception) -> None:
    """Log what the client would write with a traceback, each time it doesn't connect."""
    logging.getLogger("rota.dispatch").debug("NATS: %s", error)


def _unavailable(error: BaseException) -> BrokerUnavailable:
    return BrokerUnavailable(f"NATS: {type(error).__name__} {error}".rstrip())


def _token(name: str) -> str:
    """Write a name as one token of a subject, no two names alike."""
    return "".join(each if each.isalnum() or each == "-" else f"={ord(each):02x}" for each in name)
