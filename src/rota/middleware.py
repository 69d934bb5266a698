"""Middlewares: code around every call of a task, where its handler runs; and what is injected into it.

A task without middlewares and injected parameters isn't touched: its `call` is that of its class. As
soon as an app has a middleware, each of its tasks gets a `call` of its own, composed once:

- a *generator function* wraps coroutines and plain functions alike: what is before its ``yield`` runs
  before the handler, what is after it afterwards. It sees the handler's exception at the ``yield``, and
  may raise another one. It can't hide it: a failed attempt must not become a success by accident.
- a *coroutine function* of ``(call_next, context)`` wraps coroutines, a *plain function* of the same
  wraps plain functions. It calls the handler itself, once, and may return something else. If it returns
  nothing without having called the handler, or calls it again, the attempt fails: neither a job that
  didn't run nor one that ran twice may pass for a success.

The first that was registered is the outermost. All of them run inside the transaction of an exactly_once
task, and count towards its timeout.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Annotated, Any, Protocol, TypeAlias, TypeVar

from rota.core.injected import Marker
from rota.errors import ConfigError
from rota.model import Outcome

T = TypeVar("T")

# ``async def send(order: int, db: Injected[Pool] = INJECTED)``: not an argument, but what the app's
# resolver gives for the type.
Injected = Annotated[T, Marker()]

GeneratorMiddleware: TypeAlias = Callable[[Any], Generator[Any, Any, Any]]
CallMiddleware: TypeAlias = Callable[[Callable[[], Any], Any], Any]
Middleware = TypeVar("Middleware", bound=Callable[..., Any])
Call: TypeAlias = Callable[[bytes, Any], Any]  # of a payload and a context


class Getter(Protocol):
    """A scope of dependencies: ``get(type)`` returns a dependency, or an awaitable of one."""

    def get(self, kind: Any, /) -> Any: ...


Scope: TypeAlias = Callable[
    [Any], AbstractAsyncContextManager[Getter] | AbstractContextManager[Getter]
]


class _NotInjected:
    """Stands in for what is injected, in a function that is called directly."""

    def __repr__(self) -> str:
        return "INJECTED"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(
            f"{name}: this function was called directly, so that nothing is injected. Pass it "
            "yourself, or submit the task"
        )


INJECTED: Any = _NotInjected()
_ENDED = object()  # in place of what a generator yields, when it yields nothing


def check_middleware(middleware: Any) -> None:
    """Refuse what is no middleware, where it is registered."""
    if not callable(middleware) or inspect.isasyncgenfunction(_code_of(middleware)):
        raise ConfigError(
            f"a middleware is a generator function of (context), or a function or coroutine function "
            f"of (call_next, context), not {middleware!r}"
        )
    takes = 1 if inspect.isgeneratorfunction(_code_of(middleware)) else 2
    try:
        inspect.signature(middleware).bind(*[None] * takes)
    except TypeError:
        shape = "(context) with one `yield`" if takes == 1 else "(call_next, context)"
        name = getattr(middleware, "__qualname__", middleware)
        raise ConfigError(f"middleware {name}: it must take {shape}") from None


def _code_of(middleware: Callable[..., Any]) -> Any:
    """Return what tells a middleware's kind: itself, or the `__call__` of an object that has one."""
    if inspect.isroutine(middleware) or isinstance(middleware, functools.partial | type):
        return middleware
    return type(middleware).__call__


def composed(call: Call, middlewares: Sequence[Callable[..., Any]], *, is_async: bool) -> Call:
    """Return a call with the middlewares that fit it around it."""
    pending: list[GeneratorMiddleware] = []
    for middleware in reversed(middlewares):
        code = _code_of(middleware)
        if inspect.isgeneratorfunction(code):
            pending.insert(0, middleware)
        elif inspect.iscoroutinefunction(code) == is_async:
            call = _around(middleware, _inside(call, pending, is_async), is_async)
            pending = []
    return _inside(call, pending, is_async)


def _inside(call: Call, generators: Sequence[GeneratorMiddleware], is_async: bool) -> Call:
    if not generators:
        return call
    inside = _inside_async if is_async else _inside_plain
    return inside(call, tuple(generators))


# Each runs to its `yield`. What one raises there, those before it see as the handler's exception.
# Written out twice, with a `next` that raises nothing: this is done for every job.


def _inside_async(call: Call, generators: Sequence[GeneratorMiddleware]) -> Call:
    async def call_inside(payload: bytes, context: Any) -> Any:
        running: list[Generator[Any, Any, Any]] = []
        try:
            for middleware in generators:
                generator = middleware(context)
                if next(generator, _ENDED) is not _ENDED:
                    running.append(generator)
            value = await call(payload, context)
        except BaseException as error:
            _failed(running, error)
            raise
        if running:
            _returned(running, value)
        return value

    return call_inside


def _inside_plain(call: Call, generators: Sequence[GeneratorMiddleware]) -> Call:
    def call_inside(payload: bytes, context: Any) -> Any:
        running: list[Generator[Any, Any, Any]] = []
        try:
            for middleware in generators:
                generator = middleware(context)
                if next(generator, _ENDED) is not _ENDED:
                    running.append(generator)
            value = call(payload, context)
        except BaseException as error:
            _failed(running, error)
            raise
        if running:
            _returned(running, value)
        return value

    return call_inside


def _returned(running: list[Generator[Any, Any, Any]], value: Any) -> None:
    if type(value) is Outcome:  # of a durable function that waits, for one
        value = None
    while running:
        generator = running.pop()
        try:
            if value is None:  # most handlers return nothing; `next` then saves an exception
                if next(generator, _ENDED) is _ENDED:
                    continue
            else:
                generator.send(value)
        except StopIteration:
            continue
        except BaseException as error:
            _failed(running, error)
            raise
        _close(generator)
        again = _yielded_again(generator)
        _failed(running, again)
        raise again


def _failed(running: list[Generator[Any, Any, Any]], error: BaseException) -> None:
    """Throw the exception into each, the innermost first. What one raises instead, the others see."""
    while running:
        generator = running.pop()
        try:
            generator.throw(error)
        except StopIteration:
            continue
        except BaseException as raised:
            if raised is error:
                continue
            _failed(running, raised)
            raise
        _close(generator)


def _close(generator: Generator[Any, Any, Any]) -> None:
    """End a generator that goes on yielding; those around it must still be ended."""
    with contextlib.suppress(Exception):
        generator.close()


def _yielded_again(generator: Generator[Any, Any, Any]) -> RuntimeError:
    name = getattr(generator, "__qualname__", generator)
    return RuntimeError(f"middleware {name} must yield once, and did so twice")


class _Next:
    """The function that a middleware calls, once, to run the handler."""

    __slots__ = ("_call", "_context", "_payload", "was_called")

    def __init__(self, call: Call, payload: bytes, context: Any) -> None:
        self._call = call
        self._payload = payload
        self._context = context
        self.was_called = False

    def __call__(self) -> Any:
        if self.was_called:
            raise RuntimeError(
                "a middleware called `call_next` twice: a handler runs once in an attempt. Let the "
                "task's `retry` repeat it"
            )
        self.was_called = True
        return self._call(self._payload, self._context)


def _around(middleware: CallMiddleware, call: Call, is_async: bool) -> Call:
    async def around_async(payload: bytes, context: Any) -> Any:
        call_next = _Next(call, payload, context)
        value = await middleware(call_next, context)
        return value if call_next.was_called or value is not None else _never_called(middleware)

    def around_plain(payload: bytes, context: Any) -> Any:
        call_next = _Next(call, payload, context)
        value = middleware(call_next, context)
        return value if call_next.was_called or value is not None else _never_called(middleware)

    return around_async if is_async else around_plain


def _never_called(middleware: CallMiddleware) -> Any:
    name = getattr(middleware, "__qualname__", middleware)
    raise RuntimeError(
        f"middleware {name} returned nothing without calling `call_next`, so that the handler never "
        "ran. Call it, return a result in its place, or raise"
    )


# -- dependencies


def no_scope(task: str, wanted: Iterable[str], is_async: bool) -> ConfigError:
    kind, argument = ("coroutines", "scope") if is_async else ("plain functions", "sync")
    return ConfigError(
        f"task {task!r} has injected parameters ({', '.join(wanted)}), and the app doesn't say where "
        f"those of {kind} come from: give app.inject() a `{argument}`"
    )


def injecting(
    call: Callable[[bytes, Any, dict[str, Any]], Any], wanted: dict[str, Any],
    scope_of: Callable[[], Scope | None], task: str, *, is_async: bool,
) -> Call:  # fmt: skip
    """Return a call for which the dependencies are got in a scope of its own."""

    def opened_for(context: Any) -> Any:
        scope = scope_of()
        if scope is None:
            raise no_scope(task, wanted, is_async)
        return scope(context)

    inject = _injecting_async if is_async else _injecting_plain
    return inject(call, wanted, opened_for, task)


# A scope may hide an exception at its end, as any context manager may. The attempt has failed all the
# same: what follows the block is reached only then.


def _injecting_async(
    call: Any, wanted: dict[str, Any], opened_for: Callable[[Any], Any], task: str
) -> Call:
    async def call_with(getter: Getter, payload: bytes, context: Any, hidden: list[Any]) -> Any:
        try:
            found = {}
            for name, kind in wanted.items():
                value = getter.get(kind)
                found[name] = await value if isinstance(value, Awaitable) else value
            return await call(payload, context, found)
        except BaseException as error:
            hidden.append(error)
            raise

    async def call_async(payload: bytes, context: Any) -> Any:
        opened, hidden = opened_for(context), list[BaseException]()
        if isinstance(opened, AbstractAsyncContextManager):
            async with opened as getter:
                return await call_with(getter, payload, context, hidden)
        else:
            with opened as getter:
                return await call_with(getter, payload, context, hidden)
        raise hidden[0]

    return call_async


def _injecting_plain(
    call: Any, wanted: dict[str, Any], opened_for: Callable[[Any], Any], task: str
) -> Call:
    def call_plain(payload: bytes, context: Any) -> Any:
        opened, hidden = opened_for(context), list[BaseException]()
        if not isinstance(opened, AbstractContextManager):
            raise ConfigError(
                f"task {task!r} is a plain function: App.inject() needs a `sync` scope for it, a "
                "context manager that is entered without awaiting"
            )
        with opened as getter:
            try:
                found = {name: getter.get(kind) for name, kind in wanted.items()}
                return call(payload, context, found)
            except BaseException as error:
                hidden.append(error)
                raise
        raise hidden[0]

    return call_plain
