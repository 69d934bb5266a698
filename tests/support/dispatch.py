"""What tests do with the connections of relays and workers to a broker."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from proof.waiting import eventually
from rota.runtime.dispatch import Broker, BrokerUnavailable, Delivery


async def taken(relay: Broker, count: int) -> list[Delivery]:
    found: list[Delivery] = []

    async def ask() -> bool:
        try:
            found.extend(await relay.take(100, 0.2))
        except BrokerUnavailable:
            return False
        return len(found) >= count

    await eventually(ask, what=f"{count} calls")
    return found


async def heard(worker: Broker, id: UUID, count: int = 1) -> Sequence[bytes]:
    found: list[bytes] = []

    async def ask() -> bool:
        try:
            found.extend(await worker.answers(id, 0.2))
        except BrokerUnavailable:
            return False
        return len(found) >= count

    await eventually(ask, what=f"{count} answers")
    return found
