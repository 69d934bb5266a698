"""Operations on what a namespace stores encrypted: count it by key, and re-encrypt it."""

from __future__ import annotations

import base64

import msgspec

from rota.config import check_name
from rota.lib.ids import new_nonce
from rota.operations.base import Operations
from rota.store.reencryption import Reencryption, Rewritten

_KEY_BYTES = 32


class ValuesUnderKey(msgspec.Struct, frozen=True):
    """The number of values that are stored under a key; `key` None: they are not encrypted."""

    key: str | None
    values: int


class StoredEncryption(Operations):
    """`rota.encryption`"""

    async def count(self) -> list[ValuesUnderKey]:
        """Count the stored values of this namespace by the key that encrypts them."""
        rows = await (await self._database()).fetch("encrypted_values", self._namespace)
        return [ValuesUnderKey(row["key"], row["count"]) for row in rows]

    async def rotate(self) -> Rewritten:
        """Re-encrypt everything that isn't under the current key."""
        reencryption = Reencryption(await self._database())
        # It is many transactions: the audit log records that they were begun.
        async with self._changing("rotate", f"namespace {self._namespace}"):
            pass
        return await reencryption.run()


def new_key(name: str) -> str:
    """Make a key for ROTA_ENCRYPTION_KEYS."""
    check_name("key", name)
    return f"{name}:{base64.b64encode(new_nonce(_KEY_BYTES)).decode()}"
