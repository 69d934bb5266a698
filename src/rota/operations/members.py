"""Reads the members of maps, in pages, and how far maps have come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec

from rota.core.workflow.model import StepState
from rota.errors import ConfigError
from rota.model import MapMember, MapProgress
from rota.operations.map_chunks import items_field, results_of
from rota.store.encrypted import Encryption
from rota.store.maps import MapStore

MOST_MEMBERS = 10_000
_LAST = 2**62
_STATES = ("waiting", "running", "succeeded", "failed", "cancelled")


def progress_of(row: Any) -> MapProgress:
    """Return the counts of a map. Members of chunks that run count as far as they are recorded."""
    return MapProgress(
        members=row["members"], succeeded=row["succeeded"], failed=row["failed"],
        under_way=int(row["under_way"]), chunks=row["chunks"], ended_chunks=row["ended"],
        running_jobs=row["running"], at_once=row["at_once"], closed=row["closed"],
        each="job" if row["each_job"] else "chunk",
    )  # fmt: skip


class Members:
    """The members of one map of a run."""

    def __init__(self, store: MapStore, encryption: Encryption, run: UUID, step: int) -> None:
        self._store = store
        self._encryption = encryption
        self._run = run
        self._step = step

    async def page(self, after: int, state: str | None, limit: int) -> list[MapMember]:
        """Return members after a number; of a state, perhaps."""
        if not 1 <= limit <= MOST_MEMBERS:
            raise ConfigError(
                f"limit must be from 1 to {MOST_MEMBERS:,}, not {limit}", field="limit"
            )
        if state is not None and state not in _STATES:
            raise ConfigError(
                f"state must be one of {', '.join(_STATES)}, not {state!r}", field="state"
            )
        rows = await self._store.progress(self._run, self._step)
        if not rows:
            return []
        if state == StepState.FAILED.label:
            return await self._failed(rows[0], after, limit)
        found: list[MapMember] = []
        while len(found) < limit:
            some = await self._some(rows[0], after, limit)
            if not some:
                break
            found += [each for each in some if state is None or each.state == state]
            after = some[-1].number
        return found[:limit]

    async def _failed(self, of_map: Any, after: int, limit: int) -> list[MapMember]:
        rows = await self._store.members(
            self._run, self._step, after + 1, _LAST, StepState.FAILED, limit
        )
        if not rows:
            return []
        chunks = await self._store.chunks_of(self._run, self._step, [row["number"] for row in rows])
        holding = {
            number: chunk
            for chunk in chunks
            for number in range(chunk["first"], chunk["first"] + chunk["size"])
        }
        items = {chunk["number"]: self._items(of_map, chunk) for chunk in chunks}
        return [
            self._member(of_map, holding[row["number"]], items, row["number"], {}, row)
            for row in rows
            if row["number"] in holding
        ]

    async def _some(self, of_map: Any, after: int, limit: int) -> list[MapMember]:
        """Return the next members, up to the limit, of at most so many chunks."""
        first = after + 1
        chunks: list[Any] = []
        size = 0
        for chunk in await self._store.chunks(self._run, self._step, first, limit):
            if size >= limit:
                break
            left = chunk["first"] + chunk["size"] - max(first, chunk["first"])
            size += max(0, left)
            chunks.append(chunk)
        if not size:
            return []
        last = min(first + limit, chunks[-1]["first"] + chunks[-1]["size"]) - 1
        failed = {
            row["number"]: row
            for row in await self._store.members(self._run, self._step, first, last, None, None)
        }
        values: dict[int, Any] = {}
        if not of_map["each_job"]:
            values = {
                number: value
                async for number, value in results_of(
                self._store, self._encryption, self._run, self._step, of_map["id"], first, last,
                shown=True,
            )
            }  # fmt: skip
        items = {chunk["number"]: self._items(of_map, chunk) for chunk in chunks}
        return [
            self._member(of_map, chunk, items, number, values, failed.get(number))
            for chunk in chunks
            for number in range(
                max(first, chunk["first"]), min(last + 1, chunk["first"] + chunk["size"])
            )
        ]

    def _items(self, of_map: Any, chunk: Any) -> Any:
        field = items_field(chunk["number"])
        return self._encryption.shown(chunk["items"], of_map["id"], field)

    def _member(
        self, of_map: Any, chunk: Any, items: Mapping[int, Any], number: int,
        values: Mapping[int, Any], row: Any,
    ) -> MapMember:  # fmt: skip
        place, each_job = number - chunk["first"], of_map["each_job"]
        done = chunk["state"] == StepState.SUCCEEDED if each_job else place < chunk["done"]
        state = StepState.SUCCEEDED if done else StepState(chunk["state"])
        if row is not None:
            state = StepState(row["state"])
        elif not done and not each_job and state is StepState.RUNNING and place > chunk["done"]:
            state = StepState.WAITING
        listed = items[chunk["number"]]
        result = values.get(number)
        if each_job:
            result = self._encryption.shown(
                chunk["result"], chunk["job_id"] or of_map["id"], "result"
            )
        error = None
        if row is not None and row["error"] is not None and state is not StepState.SUCCEEDED:
            owner = chunk["job_id"] if each_job else of_map["id"]
            error = msgspec.json.decode(row["error"])
            for name in ("message", "traceback"):
                if error.get(name):
                    error[name] = self._encryption.shown_text(error[name], owner)
        return MapMember(
            number=number, state=state.label, attempt=1 if row is None else row["attempt"],
            item=listed[place] if isinstance(listed, list) else listed, result=result, error=error,
            job_id=chunk["job_id"], ended_at=chunk["ended_at"] if row is None else row["ended_at"],
        )  # fmt: skip
