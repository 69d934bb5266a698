"""Maps over what a generator yields: a run whose members are added while it runs.

Protocol. The run is one map that is open. The submitter appends chunks in batches, each in one statement
that also counts them; repeated because its answer was lost, the statement finds its chunks there. The
end of the list closes the map. A submitter that dies leaves the map open: its members run, and the run
waits. The same call with the same key goes on after the members that are stored; to cancel the run gives
up.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rota.core.workflow.model import INLINE, STREAM
from rota.errors import ConfigError, Conflict
from rota.lib.ids import new_id
from rota.operations.map_chunks import Chunker, chosen_size
from rota.operations.run_advance import RunAdvance
from rota.run_handle import RunHandle
from rota.store.maps import MapStore, NewChunk
from rota.task import Task
from rota.workflow import Workflow

if TYPE_CHECKING:
    from rota.operations.rota import Rota

STEP = "members"
_BATCH_CHUNKS = 50
_BATCH_BYTES = 2_000_000


async def map_stream(
    rota: Rota, task: Task[..., Any], over: Any, given: Mapping[str, Any],
    options: Mapping[str, Any], run_options: Mapping[str, Any],
) -> RunHandle:  # fmt: skip
    """Start a map over what an iterable yields, and return when all of it is stored."""
    if not isinstance(over, AsyncIterable | Iterable) or isinstance(over, str | bytes | Mapping):
        raise ConfigError(
            f"over must be a list, a generator or an async generator, not {type(over).__name__}"
        )
    flow = Workflow(rota.runs, f"{INLINE}map.{task.name}")
    constants = {name: flow.input(name) for name in given}
    flow.add_map(task, {**options, "over": STREAM, "name": STEP}, constants)
    definition = flow.graph.compiled()[0].map
    assert definition is not None
    run = await flow.options(**run_options).start(**given)
    store = await rota.store()
    maps = MapStore(store.database)
    await store.persistently(
        lambda _: maps.make(
            run.id, 0, new_id(), each_job=definition["each"] == "job",
            at_once=definition["at_once"], tolerated=definition["tolerated"],
            share=definition["share"], closed=False, chunks=(),
        )
    )  # fmt: skip
    await RunAdvance(store.database).advance(run.id)
    [stored] = await maps.progress(run.id, 0)
    if not stored["closed"]:
        encryption = await store.database.known_encryption()
        chunker = Chunker(
            encryption, stored["id"], chosen_size(definition), rota.limits.payload_bytes,
            f"map of {task.name!r}", first=stored["members"], number=stored["chunks"],
        )  # fmt: skip
        await _append(rota, run, chunker, _skipped(over, stored["members"]))
    return run


async def _append(rota: Rota, run: RunHandle, chunker: Chunker, items: AsyncIterator[Any]) -> None:
    chunks: list[NewChunk] = []
    size = 0
    async for item in items:
        if (chunk := chunker.add(item)) is not None:
            chunks.append(chunk)
            size += len(bytes(chunk.items))
        if len(chunks) >= _BATCH_CHUNKS or size > _BATCH_BYTES:
            await _store(rota, run, chunks, closes=False)
            chunks, size = [], 0
    if (chunk := chunker.rest()) is not None:
        chunks.append(chunk)
    await _store(rota, run, chunks, closes=True)


async def _store(rota: Rota, run: RunHandle, chunks: list[NewChunk], *, closes: bool) -> None:
    store = await rota.store()
    maps = MapStore(store.database)
    kept = await store.persistently(lambda _: maps.add(run.id, 0, chunks, closes=closes))
    if not kept:
        raise Conflict(
            f"run {run.id} takes no more members: it was cancelled, or its list was closed by "
            "somebody else", code="closed", subject=run.id,
        )  # fmt: skip


async def _skipped(over: Any, count: int) -> AsyncIterator[Any]:
    """Yield what comes after the members that are stored already."""
    if isinstance(over, AsyncIterable):
        async for item in over:
            if count > 0:
                count -= 1
            else:
                yield item
        return
    for item in over:
        if count > 0:
            count -= 1
        else:
            yield item
