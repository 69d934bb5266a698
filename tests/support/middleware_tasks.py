"""An app with every kind of hook, whose plain functions run in child processes and threads."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rota import INJECTED, App, Context, Injected, State, Submission, SyncContext

app = App(processes=1)
tenant: ContextVar[str] = ContextVar("tenant")
locale: ContextVar[str] = ContextVar("locale", default="en")
seen: list[Any] = []  # in this process

app.propagate(tenant)
app.propagate(locale, name="language")


def note(*what: Any) -> None:
    """Also for other processes to read."""
    seen.append(what)
    if place := os.environ.get("MIDDLEWARE_NOTES"):
        with Path(place).open("a") as file:
            print(*what, file=file)


@app.on_submit
def stamp(submission: Submission) -> None:
    submission.headers["stamped"] = submission.task


@app.middleware
def outer(context: Any) -> Iterator[None]:
    note("outer", context.job.task, context.job.headers.get("stamped"))
    try:
        result = yield
        note("outer returned", result)
    except Exception as error:
        note("outer raised", type(error).__name__)
        raise


@app.middleware
async def around_coroutines(call_next: Any, context: Context) -> Any:
    note("coroutine")
    return await call_next()


@app.middleware
def around_functions(call_next: Any, context: SyncContext) -> Any:
    note("function")
    return call_next()


@app.lifespan
async def pool(state: State) -> AsyncIterator[None]:
    state.pool = f"pool of {os.getpid()}"
    note("pool opened")
    yield
    note("pool closed")


@app.child_lifespan
def model(state: State) -> Iterator[None]:
    state.model = f"model of {os.getpid()}"
    note("model opened")
    yield
    note("model closed")


class Clock:
    def __init__(self, job: str) -> None:
        self.job = job


class Container:
    def __init__(self, context: Any) -> None:
        self._context = context

    def get(self, kind: Any) -> Any:
        return kind(self._context.job.task)


class AsyncContainer(Container):
    async def get(self, kind: Any) -> Any:
        return super().get(kind)


@asynccontextmanager
async def scope(context: Any) -> AsyncIterator[AsyncContainer]:
    note("scope opened")
    yield AsyncContainer(context)
    note("scope closed")


@contextmanager
def sync_scope(context: Any) -> Iterator[Container]:
    note("scope opened")
    yield Container(context)
    note("scope closed")


app.inject(scope, sync=sync_scope)


@app.task
async def on_loop(ctx: Context, number: int) -> list[Any]:
    return [number, ctx.state.pool, tenant.get("nobody"), locale.get()]


@app.task(runner="thread")
def in_thread(ctx: SyncContext, number: int) -> list[Any]:
    return [number, ctx.state.pool, tenant.get("nobody"), locale.get()]


@app.task
def in_child(ctx: SyncContext, number: int) -> list[Any]:
    return [number, ctx.state.model, tenant.get("nobody"), locale.get()]


@app.task
async def without_context(number: int) -> int:
    return number


@app.task
async def failing() -> None:
    raise LookupError("no")


@app.task
def failing_in_child() -> None:
    raise LookupError("no")


@app.task
async def injected(number: int, clock: Injected[Clock] = INJECTED) -> str:
    return f"{number} {clock.job}"


@app.task
def injected_in_child(number: int, clock: Injected[Clock] = INJECTED) -> str:
    return f"{number} {clock.job}"
