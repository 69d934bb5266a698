"""Makes chunks of the items that a map is over, and reads the results of its members again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

import msgspec

from rota.core.codec import encode_hook
from rota.core.workflow.model import StepState
from rota.errors import ConfigError, InvalidArguments
from rota.store.encrypted import Encryption
from rota.store.maps import MapStore, NewChunk

LARGEST_SIZE = 1_000  # members in a chunk, unless somebody asks for more
_LAST = 2**62


def chosen_size(
    definition: Mapping[str, Any], count: int | None = None, *, rated: bool = False
) -> int:
    """Return how many members a chunk has: the window shares the list, unless it is said. A rate counts
    jobs that start, and is meant for members."""
    if definition["each"] == "job" or rated:
        return 1
    size: int | None = definition["size"]
    if size is not None:
        return size
    at_once: int = definition["at_once"]
    return 100 if count is None else max(1, min(LARGEST_SIZE, -(-count // at_once)))


class Chunker:
    """Cuts items into chunks: of so many members at most, and not larger than a payload may be."""

    def __init__(
        self, encryption: Encryption, map_id: UUID, size: int, limit: int, where: str,
        first: int = 0, number: int = 0,
    ) -> None:  # fmt: skip
        self._encryption = encryption
        self._map_id = map_id
        self._size = size
        self._limit = limit
        self._where = where
        self._first = first
        self._number = number
        self._items: list[bytes] = []
        self._bytes = 0

    def add(self, item: Any) -> NewChunk | None:
        """Add an item, and return the chunk that is full now, if one is."""
        try:
            text = msgspec.json.encode(item, enc_hook=encode_hook)
        except Exception as error:
            raise InvalidArguments(
                f"{self._where}: item {self._first + len(self._items)} can't be written as JSON: {error}"
            ) from error
        return self.add_text(text)

    def add_text(self, text: bytes) -> NewChunk | None:
        """Add an item that is JSON already."""
        if len(text) > self._limit:
            raise ConfigError(
                f"{self._where}: item {self._first + len(self._items)} has {len(text):,} bytes, over "
                f"max_payload_bytes ({self._limit:,}): store large data elsewhere and pass references"
            )
        full = None
        if self._items and (
            len(self._items) >= self._size or self._bytes + len(text) > self._limit
        ):
            full = self.rest()
        self._items.append(text)
        self._bytes += len(text) + 1
        return full

    def rest(self) -> NewChunk | None:
        """Return what is left as a chunk."""
        if not self._items:
            return None
        items, self._items, self._bytes = self._items, [], 0
        text = b"[" + b",".join(items) + b"]"
        number, first = self._number, self._first
        self._number, self._first = number + 1, first + len(items)
        if self._encryption.required:
            text = self._encryption.for_job(self._map_id).json(items_field(number), text).encode()
        return NewChunk(number, first, len(items), msgspec.Raw(text))

    def all(self, items: Iterable[Any]) -> Iterator[NewChunk]:
        for item in items:
            if (chunk := self.add(item)) is not None:
                yield chunk
        if (chunk := self.rest()) is not None:
            yield chunk


def items_field(chunk: int) -> str:
    """Return under which name the items of a chunk are encrypted."""
    return f"items {chunk}"


def results_field(first: int) -> str:
    return f"results {first}"


async def results_of(
    store: MapStore, encryption: Encryption, run: UUID, step: int, map_id: UUID, first: int,
    last: int, *, shown: bool,
) -> AsyncIterator[tuple[int, Any]]:  # fmt: skip
    """Yield the results of members of chunks, by their numbers, but for those that are null."""
    read = encryption.shown if shown else encryption.value
    for row in await store.results(run, step, max(0, first - LARGEST_RECORD), last):
        values = read(row["results"], map_id, results_field(row["first"]))
        if isinstance(values, list):
            for number, value in enumerate(values, row["first"]):
                if value is not None:
                    yield number, value
    for row in await store.members(run, step, first, last, StepState.SUCCEEDED, None):
        [value] = read(row["result"] or "[null]", map_id, results_field(row["number"])) or [None]
        yield row["number"], value


LARGEST_RECORD = 10_000  # members that are recorded at once, at most


async def all_results(
    store: MapStore, encryption: Encryption, run: UUID, step: int, limit: int, name: str
) -> list[Any]:
    """Return the results of all members, None for those that failed. They must fit into one value."""
    [row] = await store.progress(run, step) or [None]
    if row is None:
        return []
    size = await store.size_of_results(run, step)
    if size > limit:
        raise InvalidArguments(
            f"step {name!r}: the results of {row['members']:,} members have about {size:,} bytes, over "
            f"max_result_bytes ({limit:,}): pass the map itself, and read the results in pages"
        )
    found: list[Any] = [None] * row["members"]
    if row["each_job"]:
        for chunk in await store.chunks(run, step, 0, row["members"]):
            found[chunk["first"]] = encryption.value(chunk["result"], chunk["job_id"], "result")
        return found
    async for number, value in results_of(
        store, encryption, run, step, row["id"], 0, _LAST, shown=False
    ):
        found[number] = value
    return found
