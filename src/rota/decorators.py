"""The types of what ``@app.task`` returns, for type checkers.

A task that takes its context first is submitted without it, and called directly with it. Coroutine
functions give their awaited type to `JobHandle.result`, and return a coroutine when called directly.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from rota.context import Context, SyncContext
from rota.task import P, R, Task

Q = ParamSpec("Q")
C = TypeVar("C")
T = TypeVar("T", bound=Task[..., Any])
# Both have two alternatives, so that a first parameter of type `object` is not taken for a context.
AnyContext = TypeVar("AnyContext", Context, SyncContext)


class _Nothing:
    pass


class _Nowhere:
    pass


# No function asks for these: what takes them nevertheless has a first parameter of type Any.
Untyped = TypeVar("Untyped", _Nothing, _Nowhere)

if TYPE_CHECKING:

    class DeclaredTask(Task[P, R], Generic[P, R, Q, C]):
        """A `Task` whose function takes `Q` and returns `C`."""

        def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> C: ...


class TaskDecorator(Protocol):
    """The decorator that ``@app.task(...)`` and ``@app.cron(...)`` return: from a function, or for the
    latter a task, to a task."""

    @overload
    def __call__(self, function: T, /) -> T: ...  # type: ignore[overload-overlap] # a task is callable

    @overload
    def __call__(self, function: Callable[Concatenate[Untyped, P], Any], /) -> Task[..., Any]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[AnyContext, P], Coroutine[Any, Any, R]], /
    ) -> DeclaredTask[P, R, Concatenate[AnyContext, P], Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[AnyContext, P], R], /
    ) -> DeclaredTask[P, R, Concatenate[AnyContext, P], R]: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> DeclaredTask[P, R, P, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> DeclaredTask[P, R, P, R]: ...
