"""Keys of persons in the store. One short method per query."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from rota.core.administration import Person
from rota.store.database import Store


class Known(msgspec.Struct, frozen=True):
    """A person whose key is not destroyed."""

    id: UUID
    key: str


class KeyOrTime(msgspec.Struct, frozen=True):
    """The key of a person, or when it was destroyed."""

    key: str | None
    erased_at: datetime | None


class PersonStore(Store):
    async def find(self, namespace: str, fingerprints: Sequence[str]) -> Sequence[Known]:
        return await self._all(Known, "find_persons", namespace, list(fingerprints))

    async def add(self, namespace: str, id: UUID, fingerprint: str, key: str) -> None:
        await self.database.fetch("add_person", namespace, id, fingerprint, key)

    async def key(self, namespace: str, id: UUID) -> KeyOrTime | None:
        return await self._first(KeyOrTime, "key_of_person", namespace, id)

    async def by_id(self, namespace: str, ids: Sequence[UUID]) -> Sequence[Person]:
        return await self._all(Person, "known_persons", namespace, list(ids))

    async def list(self, namespace: str, erased: bool | None, limit: int) -> Sequence[Person]:
        return await self._all(Person, "list_persons", namespace, erased, limit)

    async def encryption_keys(self, namespace: str) -> Sequence[str]:
        """Return the encryption keys under which persons' keys are stored."""
        return await self._all(str, "encryption_keys_of_persons", namespace)

    async def erase(
        self, namespace: str, fingerprints: Sequence[str], ids: Sequence[UUID]
    ) -> Sequence[Person]:
        return await self._all(Person, "erase_persons", namespace, list(fingerprints), list(ids))
