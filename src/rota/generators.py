"""Tasks that are generators: steps whose items become the members of maps.

Protocol. A generator runs as the job of its step. What it yields goes to the node in pages, which stores
it as chunks of the maps that are over the step (`rota.worker.generated`). Their members start when the
step has succeeded: a generator that fails in the middle has started none. Each attempt begins anew: what
an attempt before it had stored is forgotten by the first page.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
)
from typing import Any, TypeAlias

import msgspec

from rota.core.arguments import Arguments
from rota.core.codec import encode_hook
from rota.errors import ConfigError, InvalidArguments, LeaseLost, StoreUnavailable
from rota.model import Guarantee, Outcome, OutcomeKind
from rota.task import P, Task, TaskOptions

Items: TypeAlias = AsyncIterable[Any] | Iterable[Any]
ITEMS = "items"  # the call by which a page goes to the node
_PAGE_ITEMS = 1_000
_PAGE_BYTES = 256 * 1024
_RETURNED = Outcome(OutcomeKind.RETURNED)


class ItemPage(msgspec.Struct):
    """Items on their way to the node."""

    items: list[msgspec.Raw]
    last: bool = False


class GeneratorTask(Task[P, dict[str, int]]):
    """Made by ``@app.generator``. It is a step of workflows, with maps over it."""

    def __init__(
        self, submissions: Any, function: Callable[..., Any], name: str, options: TaskOptions
    ) -> None:
        super().__init__(submissions, function, name, options)
        if options.guarantee is Guarantee.EXACTLY_ONCE:
            raise ConfigError(
                f"task {name!r} is a generator, which can't be exactly_once: its items are stored while "
                "it runs. Leave the guarantee out: another attempt begins its list anew"
            )
        self.takes_context = True  # through which its items are stored

    def _check_kind(self) -> None:
        if not (
            inspect.isgeneratorfunction(self.function) or inspect.isasyncgenfunction(self.function)
        ):
            raise ConfigError(
                f"{self.name!r} is no generator: it has no `yield`. Declare it with @app.task"
            )

    def _read_arguments(self) -> Arguments:
        arguments = super()._read_arguments()
        arguments.returns = dict[str, int]  # how many items there were
        return arguments

    def call(self, payload: bytes, context: Any) -> Any:
        """Run the generator, and store what it yields. For runners."""
        return self._stored(super().call(payload, context), context)

    def _call_with(self, payload: bytes, context: Any, injected: Mapping[str, Any]) -> Any:
        return self._stored(super()._call_with(payload, context, injected), context)

    def _stored(self, items: Any, context: Any) -> Any:
        store = self._store_async if self.is_async else self._store_plain
        return store(items, context._channel)

    async def _store_async(self, items: AsyncGenerator[Any, None], channel: Any) -> Any:
        pages = _Pages(self.name)
        async with contextlib.aclosing(items):
            async for item in items:
                if pages.add(item) and not await _sent(channel.call(ITEMS, pages.take())):
                    return _RETURNED
        return (
            pages.result if await _sent(channel.call(ITEMS, pages.take(last=True))) else _RETURNED
        )

    def _store_plain(self, items: Generator[Any, None, None], channel: Any) -> Any:
        pages = _Pages(self.name)
        with contextlib.closing(items):
            for item in items:
                if pages.add(item) and not _sent_plain(channel, pages.take()):
                    return _RETURNED
        return pages.result if _sent_plain(channel, pages.take(last=True)) else _RETURNED

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        raise _not_submitted(self.name)

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        raise _not_submitted(self.name)

    async def submit_many(self, calls: Any) -> Any:
        raise _not_submitted(self.name)

    def submit_many_sync(self, calls: Any) -> Any:
        raise _not_submitted(self.name)

    def options(self, **given: Any) -> Any:
        raise _not_submitted(self.name)


class _Pages:
    """Gathers items until they are a page."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._items: list[msgspec.Raw] = []
        self._bytes = 0
        self._count = 0

    @property
    def result(self) -> dict[str, int]:
        return {"count": self._count}

    def add(self, item: Any) -> bool:
        """Add an item, and return whether the page is full."""
        try:
            text = msgspec.json.encode(item, enc_hook=encode_hook)
        except Exception as error:
            raise InvalidArguments(
                f"task {self._task!r}: item {self._count} can't be written as JSON: {error}"
            ) from error
        self._items.append(msgspec.Raw(text))
        self._bytes += len(text)
        self._count += 1
        return len(self._items) >= _PAGE_ITEMS or self._bytes > _PAGE_BYTES

    def take(self, *, last: bool = False) -> bytes:
        body = msgspec.json.encode(ItemPage(self._items, last))
        self._items, self._bytes = [], 0
        return body


# What the store says is not raised into the generator, nor taken for a failure of it.


async def _sent(call: Coroutine[Any, Any, bytes]) -> bool:
    try:
        await call
    except (LeaseLost, StoreUnavailable):
        return False
    return True


def _sent_plain(channel: Any, page: bytes) -> bool:
    try:
        channel.call(ITEMS, page)
    except (LeaseLost, StoreUnavailable):
        return False
    return True


def not_in_a_map(task: str) -> str:
    """Return why a generator can't run outside of a workflow, or without a map over it."""
    return (
        f"task {task!r} is a generator, whose items become the members of a map: make it a step of a "
        "workflow, and map a task over that step"
    )


def _not_submitted(name: str) -> ConfigError:
    return ConfigError(f"{not_in_a_map(name)}. `app.map` maps over a generator of your own process")
