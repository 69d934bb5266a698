"""Sends events to topics of brokers. Each broker's module is imported when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rota.core.cloudevents import CloudEvent
from rota.errors import ConfigError
from rota.lib.addresses import Address


class Target(Protocol):
    """A topic of a broker."""

    async def send(self, events: Sequence[CloudEvent]) -> None:
        """Send events in their order, and return when the broker has confirmed all of them.

        Raises `SourceUnavailable` if it hasn't; some may have arrived.
        """
        ...

    async def close(self) -> None: ...


def open_target(address: Address) -> Target:
    try:
        return _open(address)
    except ModuleNotFoundError as missing:  # pragma: no cover - an installation without the extra
        extra = {"amqp": "rabbitmq"}.get(address.scheme, address.scheme)
        raise ConfigError(
            f"sinks of {address.scheme}:// need its client: pip install 'rota[{extra}]'"
        ) from missing


def _open(address: Address) -> Target:
    if address.scheme == "redis":
        from rota.worker.targets.redis import RedisTarget

        return RedisTarget(address)
    if address.scheme == "kafka":
        from rota.worker.targets.kafka import KafkaTarget

        return KafkaTarget(address)
    if address.scheme == "amqp":
        from rota.worker.targets.rabbitmq import RabbitTarget

        return RabbitTarget(address)
    from rota.worker.targets.nats import NatsTarget

    return NatsTarget(address)
