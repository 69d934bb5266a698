"""Connections that perform exchanges, blocking or awaited, and methods that work with both."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

import httpx

from rota.client.exchanges import Exchange, Pages, RetryPolicy, Sleep, with_retries
from rota.client.streams import CLOSED, Stream
from rota.client.transport import (
    NoResponse,
    Request,
    Response,
    request_arguments,
    to_no_response,
    to_response,
)

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")


class BlockingConnection:
    """Performs exchanges in the calling thread."""

    def __init__(self, http: dict[str, Any], policy: RetryPolicy) -> None:
        self.http = httpx.Client(**http)
        self._policy = policy

    def run(self, exchange: Callable[P, Exchange[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        steps = with_retries(exchange(*args, **kwargs), self._policy)
        received: Response | NoResponse | None = None
        while True:
            try:
                step = steps.send(received)
            except StopIteration as end:
                result: T = end.value
                return result
            received = self._perform(step)

    def _perform(self, step: Request | Sleep) -> Response | NoResponse | None:
        if isinstance(step, Sleep):
            time.sleep(step.seconds)
            return None
        try:
            return to_response(self.http.request(**request_arguments(step)))
        except httpx.RequestError as error:
            return to_no_response(error)

    def iterate(
        self, source: Callable[P, Pages[T] | Stream[T]], *args: P.args, **kwargs: P.kwargs
    ) -> Generator[T, None, None]:
        found = source(*args, **kwargs)
        return self._follow(found) if isinstance(found, Stream) else self._read(found)

    def _read(self, pages: Pages[T]) -> Generator[T, None, None]:
        while pages.is_more:
            yield from self.run(pages.next_page)

    def _follow(self, stream: Stream[T]) -> Generator[T, None, None]:
        while not stream.has_ended:
            received: Response | NoResponse = CLOSED
            try:
                with self.http.stream(**request_arguments(stream.request())) as response:
                    if response.status_code != 200:
                        response.read()
                        received = to_response(response)
                    else:
                        for piece in response.iter_bytes():
                            yield from stream.feed(piece)
            except httpx.RequestError as error:
                received = to_no_response(error)
            if not stream.has_ended:
                time.sleep(stream.reconnect_delay(received, self._policy.timeout))


class AsyncConnection:
    """Performs exchanges on the event loop."""

    def __init__(self, http: dict[str, Any], policy: RetryPolicy) -> None:
        self.http = httpx.AsyncClient(**http)
        self._policy = policy

    async def run(self, exchange: Callable[P, Exchange[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        steps = with_retries(exchange(*args, **kwargs), self._policy)
        received: Response | NoResponse | None = None
        while True:
            try:
                step = steps.send(received)
            except StopIteration as end:
                result: T = end.value
                return result
            received = await self._perform(step)

    async def _perform(self, step: Request | Sleep) -> Response | NoResponse | None:
        if isinstance(step, Sleep):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return to_response(await self.http.request(**request_arguments(step)))
        except httpx.RequestError as error:
            return to_no_response(error)

    def iterate(
        self, source: Callable[P, Pages[T] | Stream[T]], *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]:
        found = source(*args, **kwargs)
        return self._follow(found) if isinstance(found, Stream) else self._read(found)

    async def _read(self, pages: Pages[T]) -> AsyncGenerator[T, None]:
        while pages.is_more:
            for one in await self.run(pages.next_page):
                yield one

    async def _follow(self, stream: Stream[T]) -> AsyncGenerator[T, None]:
        while not stream.has_ended:
            received: Response | NoResponse = CLOSED
            try:
                async with self.http.stream(**request_arguments(stream.request())) as response:
                    if response.status_code != 200:
                        await response.aread()
                        received = to_response(response)
                    else:
                        async for piece in response.aiter_bytes():
                            for one in stream.feed(piece):
                                yield one
            except httpx.RequestError as error:
                received = to_no_response(error)
            if not stream.has_ended:
                await asyncio.sleep(stream.reconnect_delay(received, self._policy.timeout))


C = TypeVar("C", bound=BlockingConnection | AsyncConnection)


class Resource(Generic[C]):
    """A group of methods on a connection, such as `client.jobs`."""

    def __init__(self, connection: C) -> None:
        self._connection = connection


class Method(Generic[P, B, A]):
    """A method of a resource. It returns B on a blocking connection, and A on an asynchronous one."""

    def __init__(self, function: Callable[..., Any], perform: Literal["run", "iterate"]) -> None:
        self.function = function
        self._perform = perform
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, resource: Resource[BlockingConnection], owner: Any) -> Callable[P, B]: ...
    @overload
    def __get__(self, resource: Resource[AsyncConnection], owner: Any) -> Callable[P, A]: ...

    def __get__(self, resource: Any, owner: Any) -> Any:
        if resource is None:
            return self.function
        perform = getattr(resource._connection, self._perform)
        method = self.function.__get__(resource)

        @functools.wraps(method)
        def bound(*args: Any, **kwargs: Any) -> Any:
            return perform(method, *args, **kwargs)

        return bound


def call(
    function: Callable[Concatenate[Any, P], Exchange[T]],
) -> Method[P, T, Coroutine[Any, Any, T]]:
    """Make a method that performs an exchange and returns its result."""
    return Method(function, "run")


def iteration(
    function: Callable[Concatenate[Any, P], Pages[T] | Stream[T]],
) -> Method[P, Generator[T, None, None], AsyncGenerator[T, None]]:
    """Make a method that returns an iterator over a list or a stream."""
    return Method(function, "iterate")
