"""Operations on signals: send them to durable functions, and list them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from rota.config import check_name
from rota.core.payloads import encode_payload
from rota.errors import InvalidArguments
from rota.lib.ids import new_id
from rota.model import Signal, SignalSent
from rota.store.drivers import send_through
from rota.store.durable_functions import DurableFunctionStore
from rota.store.rows import NewSignal

if TYPE_CHECKING:
    from rota.operations.rota import Rota

SignalList: TypeAlias = list[Signal]
MANY = 10_000


class Signals:
    """`app.signals`"""

    def __init__(self, rota: Rota) -> None:
        self._rota = rota

    async def send(
        self, name: str, key: str, payload: Any = None, *, once: str | None = None,
        connection: Any = None,
    ) -> SignalSent:  # fmt: skip
        """Send a signal: to the function that has waited longest for it, or to the next that will.

        `once`: the same text again is not another signal. `connection`: the caller's own open
        transaction; the signal is sent if and only if it commits.
        """
        check_name("signal", name)
        for field, text in (("key", key), ("once", once)):
            _check_text(field, text)
        encoded = encode_payload({"payload": payload}, self._rota.limits, name, "content")
        value = msgspec.json.encode(msgspec.json.decode(encoded)["payload"])
        store = await self._rota.store()
        encryption = await store.database.known_encryption()
        id = new_id()
        if encryption.required:
            value = encryption.for_job(id).json("result", value).encode()
        signal = NewSignal(
            id=id, namespace=self._rota.namespace, name=name, key=key, once=once,
            payload=msgspec.Raw(value), later=connection is not None,
        )  # fmt: skip
        if connection is not None:
            return await send_through(connection, signal, self._rota.settings.schema)
        signals = DurableFunctionStore(store.database)
        return await store.persistently(lambda _: signals.send_signal(signal))

    async def list(
        self, *, name: str | None = None, key: str | None = None, limit: int = 100
    ) -> SignalList:
        """List signals, newest first. Those without `taken_at` wait for a function."""
        if not 1 <= limit <= MANY:
            raise InvalidArguments(f"limit must be from 1 to {MANY}, not {limit}", field="limit")
        database = (await self._rota.store()).database
        rows = await DurableFunctionStore(database).list_signals(
            self._rota.namespace, name, key, limit
        )
        shown = database.encryption.shown
        return [
            Signal(**{**dict(row), "payload": shown(row["payload"], row["id"], "result")})
            for row in rows
        ]


def _check_text(field: str, text: object) -> None:
    if text is None and field == "once":
        return
    if not isinstance(text, str) or not 1 <= len(text) <= 255 or "\0" in text:
        raise InvalidArguments(
            f"{field} must be a text of 1 to 255 characters, none of them NUL, not {text!r:.100}",
            field=field,
        )
