"""Lists in pages, as the requests for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from rota.client.asking import Page, Talk, get

T = TypeVar("T")


class Pages(Generic[T]):
    """A list to be read page by page: `ask` for the next while there `is_more`."""

    def __init__(
        self, path: str, kind: type[Page[T]], query: Mapping[str, Any], limit: int | None, size: int
    ) -> None:
        self._path = path
        self._kind = kind
        self._query = query
        self._left = limit
        self._size = size
        self._cursor: str | None = None
        self.is_more = limit is None or limit > 0

    def ask(self) -> Talk[list[T]]:
        size = self._size if self._left is None else min(self._size, self._left)
        query = {**self._query, "limit": size, "cursor": self._cursor}
        page = yield from get(self._path, self._kind, **query)
        self._cursor = page.next
        if self._left is not None:
            self._left -= len(page.items)
        self.is_more = page.next is not None and self._left != 0
        return page.items
