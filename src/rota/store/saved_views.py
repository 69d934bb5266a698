"""Saved views in the store. One short method per query."""

from __future__ import annotations

from rota.model import SavedView
from rota.store.database import Store


class SavedViewStore(Store):
    async def list(self, namespace: str, owner: str) -> list[SavedView]:
        return await self._all(SavedView, "list_saved_views", namespace, owner)

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
