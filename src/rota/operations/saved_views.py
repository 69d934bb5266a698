"""Operations on saved views: addresses of pages of the dashboard, under a name.

A view belongs to whom the audit log names. Others see it if it is shared; only its owner changes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.errors import ConfigError, Conflict, NotFound
from rota.model import SavedView
from rota.operations.base import Operations
from rota.store.changes import current_actor
from rota.store.saved_views import SavedViewStore

_MOST = 100  # of a person
_LONGEST_NAME, _LONGEST_ADDRESS = 100, 2_000


class SavedViews(Operations):
    """`app.views`: pages of the dashboard with their filters, saved by a person."""

    async def list(self) -> Sequence[SavedView]:
        """List one's own views, then those that others share."""
        return await (await self._store()).list(self._namespace, current_actor().name)

    async def save(self, name: str, address: str, *, shared: bool = False) -> SavedView:
        """Save a view, or replace one's own view of that name.

        Args:
            name: of the view, 1 to 100 characters.
            address: a path of the dashboard with its query, such as ``/jobs?state=failed``.
            shared: show it to everybody who can see the namespace.
        """
        if not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable():
            raise ConfigError("name: must have 1 to 100 printable characters", field="name")
        if (
            not address.startswith("/") or address.startswith(("//", "/\\")) or not address.isascii()
            or not address.isprintable() or len(address) > _LONGEST_ADDRESS
        ):  # fmt: skip
            raise ConfigError(
                "address: must be a path of the dashboard, such as /jobs?state=failed",
                field="address",
            )
        store, owner = await self._store(), current_actor().name
        async with self._changing("save", f"view {name}") as change:
            change.before = await store.get(self._namespace, owner, name)
            saved = await store.put(self._namespace, owner, name, address, shared, _MOST)
            if saved is None:
                raise Conflict(f"you have {_MOST} views: remove one first", code="too-many")
            change.after = saved
        return saved

    async def remove(self, name: str) -> SavedView:
        """Remove one's own view."""
        store, owner = await self._store(), current_actor().name
        async with self._changing("remove", f"view {name[:_LONGEST_NAME]}") as change:
            removed = None if "\0" in name else await store.remove(self._namespace, owner, name)
            if removed is None:
                raise NotFound(f"you have no view {name!r}", subject=name)
            change.before = removed
        return removed

    async def _store(self) -> SavedViewStore:
        return SavedViewStore(await self._database())
