"""The types of what ``@app.task`` gives: for type checkers, who read more from it than runs.

A task that takes its context first is submitted without it, and called directly with it. Coroutine
functions give their awaited type to `JobHandle.result`, and a coroutine to whoever calls them directly.
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
        """A `Task` whose function is called with `Q` and gives `C`."""

        def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> C: ...


class TaskDecorator(Protocol):
    """What ``@app.task(...)`` gives: from a function to its task."""

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


class ScheduleDecorator(Protocol):
    """What ``@app.cron(...)`` gives: from a function or a task to the task."""

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
