"""Operations on what a namespace stores encrypted: count it by key, and re-encrypt it."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import msgspec

from rota.config import check_name
from rota.lib.ids import new_nonce
from rota.store.changes import changing
from rota.store.reencryption import Reencryption, Rewritten

if TYPE_CHECKING:
    from rota.operations.rota import Rota

_KEY_BYTES = 32


class ValuesUnderKey(msgspec.Struct, frozen=True):
    """How many values are stored under a key; `key` None: they are not encrypted."""

    key: str | None
    values: int


class StoredEncryption:
    """`rota.encryption`"""

    def __init__(self, rota: Rota) -> None:
        self._rota = rota

    async def count(self) -> list[ValuesUnderKey]:
        database = (await self._rota.store()).database
        rows = await database.fetch("encrypted_values", self._rota.namespace)
        return [ValuesUnderKey(row["key"], row["count"]) for row in rows]

    async def rotate(self) -> Rewritten:
        """Re-encrypt everything that isn't under the current key."""
        database = (await self._rota.store()).database
        reencryption = Reencryption(database)
        # It is many transactions: the audit log records that they were begun.
        async with changing(database, "rotate", f"namespace {self._rota.namespace}"):
            pass
        return await reencryption.run()


def new_key(name: str) -> str:
    """Make a key for ROTA_ENCRYPTION_KEYS."""
    check_name("key", name)
    return f"{name}:{base64.b64encode(new_nonce(_KEY_BYTES)).decode()}"
