"""Saved views in the store. One short method per query."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model import SavedView
from rota.store.database import Store


class SavedViewStore(Store):
    async def list(
        self, namespace: str, owner: str, *, skip: int = 0, most: int = 200
    ) -> list[SavedView]:
        """Return the owner's views, which are few, then those that others share."""
        own = await self._all(SavedView, "list_saved_views", namespace, owner)
        found = own[skip : skip + most]
        if len(found) < most:
            found += await self._all(
                SavedView, "list_shared_views", namespace, owner, most - len(found),
                max(skip - len(own), 0),
            )  # fmt: skip
        return found

    async def find(
        self, namespace: str, owner: str, piece: str, most: int, looked: int
    ) -> Sequence[SavedView]:
        return await self._all(SavedView, "find_views", namespace, owner, piece, most, looked)

    async def get(self, namespace: str, owner: str, name: str) -> SavedView | None:
        return await self._first(SavedView, "get_saved_view", namespace, owner, name)

    async def put(
        self, namespace: str, owner: str, name: str, address: str, shared: bool, most: int
    ) -> SavedView | None:
        """Store a view; None: its owner has `most` others already."""
        return await self._first(
            SavedView, "put_saved_view", namespace, owner, name, address, shared, most
        )

    async def remove(self, namespace: str, owner: str, name: str) -> SavedView | None:
        return await self._first(SavedView, "remove_saved_view", namespace, owner, name)
