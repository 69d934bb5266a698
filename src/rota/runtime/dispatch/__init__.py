"""Dispatch by a broker: what relays and workers share. docs/guide/dispatch.md has the protocol.

A relay answers calls of workers that reach a broker and no database. A broker carries two kinds of
messages: calls, which any relay may take, and answers, to one worker each. Nothing depends on what a
broker keeps: a call that isn't answered is sent again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

import msgspec

from rota.config import check_name
from rota.errors import ConfigError, RotaError
from rota.lib.addresses import Address, check_sasl, parse_address

PORTS = {"redis": 6379, "nats": 4222, "amqp": 5672, "kafka": 9092}
_OPTIONS = {
    "redis": {"db": "the number of a database"}, "nats": {}, "amqp": {"vhost": "a virtual host"},
    "kafka": {"sasl": "how Kafka is told the password"},
}  # fmt: skip


class BrokerUnavailable(RotaError):
    """Raised when a broker doesn't answer, or refuses what is asked of it."""


class Delivery(msgspec.Struct, frozen=True):
    """A call, as it arrived. `receipt`: what `settle` takes."""

    body: bytes
    receipt: Any


class Broker(Protocol):
    """One connection to a broker, of a relay or of a worker. Its methods may run side by side.

    Each raises `BrokerUnavailable` if the broker doesn't answer, and works again by itself when it
    does: whatever was there before (queues, groups, subscriptions) is made anew.
    """

    # -- of relays

    async def take(self, most: int, wait: float) -> Sequence[Delivery]:
        """Return calls, those included that another relay took and never settled; none if there are
        none within `wait` seconds."""
        ...

    async def reply(
        self, answers: Sequence[tuple[UUID, bytes]], settled: Sequence[Delivery]
    ) -> None:
        """Send answers to workers, and then settle calls: nobody is given them again.

        Kafka keeps that in order only: a relay that dies, or gives up some of its partitions, leaves
        also calls that it settled after one that it didn't settle.
        """
        ...

    # -- of workers

    async def call(self, bodies: Sequence[bytes]) -> None:
        """Send calls."""
        ...

    async def answers(self, worker: UUID, wait: float) -> Sequence[bytes]:
        """Return the answers for this worker; none if there are none within `wait` seconds."""
        ...

    async def leave(self, worker: UUID) -> None:
        """Remove what the broker keeps for a worker."""
        ...

    async def close(self) -> None: ...


def broker_address(text: str | None) -> Address:
    """Read the setting `dispatch`."""
    if not text:
        raise ConfigError(
            "dispatch: no broker is given: set ROTA_DISPATCH, such as redis://127.0.0.1:6379",
            field="dispatch",
        )
    scheme = text.partition("://")[0].removesuffix("+tls")
    address = parse_address("dispatch", text, PORTS, _OPTIONS.get(scheme))
    if "db" in address.options and not address.options["db"].isdecimal():
        raise ConfigError("dispatch: the option 'db' must be a number", field="dispatch")
    if scheme == "redis" and len(address.hosts) > 1:
        raise ConfigError(
            "dispatch: Redis is one host: name the one that writes, or a proxy", field="dispatch"
        )
    check_sasl("dispatch", address)
    if address.path:
        check_name("dispatch: the path", address.path)
    return address


def open_broker(text: str | None, namespace: str) -> Broker:
    """Return the broker of the setting `dispatch`. Its client is imported here, and nowhere else.

    The path of the address comes before the names of streams and queues, `rota` if there is none.
    """
    address = broker_address(text)
    prefix = address.path or "rota"
    if address.scheme == "redis":
        from rota.runtime.dispatch.redis import RedisBroker

        return RedisBroker(address, prefix, namespace)
    if address.scheme == "amqp":
        from rota.runtime.dispatch.rabbitmq import RabbitBroker

        return RabbitBroker(address, prefix, namespace)
    if address.scheme == "kafka":
        from rota.runtime.dispatch.kafka import KafkaBroker

        return KafkaBroker(address, prefix, namespace)
    from rota.runtime.dispatch.nats import NatsBroker

    return NatsBroker(address, prefix, namespace)
