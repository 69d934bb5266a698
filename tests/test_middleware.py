"""Hooks of an app: middlewares, lifespans and state, submit hooks, propagated variables, injection."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any, Self

import dishka
import pytest

import rota.testing
from rota import (
    INJECTED,
    App,
    ConfigError,
    Context,
    DurableContext,
    Injected,
    InvalidArguments,
    Retry,
    State,
    Submission,
    lifecycle,
)
from rota.node import Node
from rota.testing import Sandbox
from tests.support import middleware_tasks
from tests.support.middleware_tasks import locale, seen, tenant


@pytest.fixture
async def world(
    make_app: Callable[..., App], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Path]:
    """A node of the app, and the file with what its processes noted."""
    notes = tmp_path / "notes"
    notes.touch()
    monkeypatch.setenv("MIDDLEWARE_NOTES", str(notes))
    seen.clear()
    settings = make_app(processes=1, heartbeat=0.5, kill_grace=10).settings
    async with middleware_tasks.app.using(settings):
        yield notes


def task(name: str) -> Any:
    return middleware_tasks.app.require_task(name)


async def result_of(name: str, *args: Any) -> Any:
    return await (await task(name).submit(*args)).result(60)


async def test_middlewares_run_where_the_handler_does(world: Path) -> None:
    async with Node(middleware_tasks.app).running():
        seen.clear()
        for name, kind in (
            ("on_loop", "coroutine"), ("in_thread", "function"), ("in_child", "function"),
        ):  # fmt: skip
            before = world.read_text()
            await result_of(name, 7)
            noted = world.read_text().removeprefix(before).splitlines()
            assert noted[:2] == [f"outer {name} {name}", kind]
            assert noted[2].startswith("outer returned [7")
        assert await result_of("without_context", 8) == 8
    assert ("outer", "in_thread", "in_thread") in seen
    assert ("outer", "in_child", "in_child") not in seen  # it was another process


async def test_lifespans_open_before_the_first_job_and_close_after_the_last(world: Path) -> None:
    async with Node(middleware_tasks.app).running():
        [_, in_worker, *_] = await result_of("on_loop", 1)
        [_, in_thread, *_] = await result_of("in_thread", 1)
        [_, in_child, *_] = await result_of("in_child", 1)
    assert in_worker == in_thread == f"pool of {os.getpid()}"
    assert in_child.startswith("model of ")
    assert in_child != f"model of {os.getpid()}"
    noted = world.read_text().splitlines()
    assert noted.index("pool opened") < noted.index("outer on_loop on_loop")
    assert noted.index("model opened") < noted.index("outer in_child in_child")
    assert {"pool closed", "model closed"} == set(noted[-2:])


async def test_variables_travel_from_the_submit_to_the_handler(world: Path) -> None:
    async with Node(middleware_tasks.app).running():
        for name in ("on_loop", "in_thread", "in_child"):
            token = tenant.set("acme")
            job = await task(name).submit(1)
            tenant.reset(token)
            assert (await job.result(60))[2:] == ["acme", "en"]
            assert (await result_of(name, 1))[2:] == ["nobody", "en"]

            def submit(name: str = name) -> Any:
                tenant.set("sync")
                locale.set("fr")
                return task(name).submit_sync(1)

            in_thread = await asyncio.to_thread(copy_context().run, submit)
            assert (await in_thread.result(60))[2:] == ["sync", "fr"]


async def test_a_middleware_sees_the_exception_and_cant_hide_it(world: Path) -> None:
    async with rota.testing.isolated(middleware_tasks.app) as sandbox:
        seen.clear()
        await task("failing").options(max_attempts=1).submit()
        await task("failing_in_child").options(max_attempts=1).submit()
        jobs = await sandbox.run_due()
    assert [job.state for job in jobs] == ["failed", "failed"]
    assert seen.count(("outer raised", "LookupError")) == 2


async def test_dependencies_are_got_in_a_scope_of_each_call(world: Path) -> None:
    async with Node(middleware_tasks.app).running():
        assert await result_of("injected", 7) == "7 injected"
        assert await result_of("injected_in_child", 8) == "8 injected_in_child"
    noted = world.read_text().splitlines()
    assert noted.count("scope opened") == noted.count("scope closed") == 2


def test_what_is_injected_is_no_argument() -> None:
    schema = task("injected").arguments.json_schema()
    assert list(schema["properties"]) == ["number"]
    with pytest.raises(RuntimeError, match="called directly, so that nothing is injected"):
        INJECTED.execute()


# -- one by one, in a sandbox


async def run(sandbox: Sandbox, task: Any, *args: Any) -> Any:
    job = await task.options(max_attempts=1).submit(*args)
    await sandbox.run_due()
    return await job.status()


async def test_the_first_is_the_outermost_and_kinds_can_be_mixed(sandbox: Sandbox) -> None:
    app, order = sandbox.app, []

    def generator(name: str) -> None:
        @app.middleware
        def middleware(context: Any) -> Iterator[None]:
            order.append(f"{name} begins")
            yield
            order.append(f"{name} ends")

    generator("a")
    generator("b")

    @app.middleware
    async def replace(call_next: Any, context: Any) -> Any:
        order.append("c begins")
        return [await call_next(), "replaced"]

    generator("d")

    @app.task
    async def work() -> str:
        order.append("work")
        return "done"

    job = await run(sandbox, work)
    assert job.result == ["done", "replaced"]
    assert order == [
        "a begins",
        "b begins",
        "c begins",
        "d begins",
        "work",
        "d ends",
        "b ends",
        "a ends",
    ]


@pytest.mark.parametrize("sync", [False, True])
async def test_what_a_middleware_does_wrong_fails_the_attempt_and_others_see_it(  # noqa: C901
    sandbox: Sandbox, sync: bool
) -> None:
    app, seen = sandbox.app, []

    @app.middleware
    def watch(context: Any) -> Iterator[None]:
        try:
            yield
            seen.append("fine")
        except Exception as error:  # noqa: BLE001 - it notes and hides, or tries to
            seen.append(type(error).__name__)

    @app.middleware
    def odd(context: Any) -> Iterator[None]:
        how = context.job.task
        if how == "early":
            raise KeyError("before it began")
        try:
            yield
        except ValueError:
            if how == "other":
                raise TypeError("another one") from None
        if how == "late":
            raise OSError("after it ended")
        if how == "twice":
            yield

    async def coroutine() -> str:
        raise ValueError("its own")

    async def good() -> str:
        return "good"

    def make(name: str, fails: bool) -> Any:
        function: Any = coroutine if fails else good
        if sync:

            def function() -> str:  # type: ignore[no-redef] # fmt: skip
                if fails:
                    raise ValueError("its own")
                return "good"

        return app.task(name=name)(function)

    expected = {
        "early": (False, "KeyError"), "late": (False, "OSError"), "twice": (False, "RuntimeError"),
        "other": (True, "TypeError"), "same": (True, "ValueError"),
    }  # fmt: skip
    for name, (fails, error) in expected.items():
        job = await run(sandbox, make(name, fails))
        assert (job.state, job.error.type) == ("failed", error)
        assert seen.pop() == error
    assert (await run(sandbox, make("well", False))).result == "good"
    assert seen == ["fine"]


async def test_a_middleware_runs_inside_the_transaction_and_for_each_member(
    sandbox: Sandbox,
) -> None:
    app, seen = sandbox.app, []

    @app.middleware
    def look(context: Any) -> Iterator[None]:
        with_transaction = context._connection is not None
        result = yield
        seen.append((context.job.task, with_transaction, result))

    @app.task(guarantee="exactly_once")
    async def write() -> int:
        return 1

    @app.task
    async def member(number: int) -> int:
        return number

    @app.durable
    async def function(ctx: DurableContext) -> int:
        return await ctx.call(write)

    await run(sandbox, write)
    await app.map(member, over=[1, 2])
    handle = await function.start()
    await sandbox.run_due(raise_errors=True)
    assert await handle.result(10) == 1
    assert seen.count(("write", True, 1)) == 2
    assert [each for each in seen if each[0] == "member"] == [
        ("member", False, 1),
        ("member", False, 2),
    ]
    # Once until it waits for the call, and once to its end.
    assert [each[2] for each in seen if each[0] == "function"] == [None, 1]


async def test_a_submit_hook_can_refuse_and_sees_runs(sandbox: Sandbox) -> None:
    app, seen = sandbox.app, []

    @app.on_submit
    def judge(submission: Any) -> None:
        seen.append((submission.task, submission.is_run))
        if submission.task == "never":
            raise PermissionError("not now")
        submission.headers["by"] = "hook"

    @app.task
    async def never() -> None: ...

    @app.task
    async def ok(ctx: Context) -> Any:
        return ctx.job.headers

    with pytest.raises(PermissionError, match="not now"):
        await never.submit()
    assert await app.jobs.list() == []
    job = await ok.options(headers={"mine": 1}, tags="a").submit()
    flow = app.workflow("flow")
    flow.step(ok)
    await flow.start()
    await ok.submit_many([(), ()])
    ended = await sandbox.run_due(raise_errors=True)
    assert (await job.result(10)) == {"mine": 1, "tags": ["a"], "by": "hook"}
    assert all(job.result["by"] == "hook" for job in ended)
    assert seen == [("never", False), ("ok", False), ("flow", True), ("ok", False)]


async def test_a_lifespan_that_raises_stops_the_start_and_closes_the_others(
    make_app: Callable[..., App],
) -> None:
    app, seen = make_app(), []

    @app.task
    async def work() -> None: ...

    @app.lifespan
    def first(state: State) -> Iterator[None]:
        seen.append("opened")
        yield
        seen.append("closed")

    @app.lifespan
    async def second(state: State) -> AsyncIterator[None]:
        raise OSError("no such pool")
        yield

    with pytest.raises(OSError, match="no such pool"):
        async with Node(app).running():
            pass
    assert seen == ["opened", "closed"]
    assert await app.nodes.list() == []


async def test_each_lifespan_is_ended_whatever_the_others_do_at_the_end(
    make_app: Callable[..., App], caplog: pytest.LogCaptureFixture
) -> None:
    app, seen = make_app(kill_grace=0.2), []

    @app.task
    async def work() -> None: ...

    @app.lifespan
    async def first(state: State) -> AsyncIterator[None]:
        yield
        seen.append("first closed")

    @app.lifespan
    def second(state: State) -> Iterator[None]:
        yield
        raise OSError("can't close")

    @app.lifespan
    async def third(state: State) -> AsyncIterator[None]:
        yield
        seen.append("third hangs")
        await asyncio.Event().wait()

    with pytest.raises(OSError, match="can't close"):
        async with Node(app).running():
            pass
    assert seen == ["third hangs", "first closed"]
    assert "third did not end within 0.2 s" in caplog.text


def test_each_lifespan_of_a_child_is_ended_whatever_the_others_do() -> None:
    seen = []

    def first(state: State) -> Iterator[None]:
        yield
        seen.append("first closed")

    def second(state: State) -> Iterator[None]:
        yield
        raise OSError("can't close")

    def third(state: State) -> Iterator[None]:
        raise ValueError("can't open")
        yield

    begun = lifecycle.begin_in_child([first, second], State())
    with pytest.raises(OSError, match="can't close"):
        lifecycle.end_in_child(begun)
    assert seen == ["first closed"]
    with pytest.raises(ValueError, match="can't open"):
        lifecycle.begin_in_child([first, second, third], State())
    assert seen == ["first closed", "first closed"]


def test_what_is_no_hook_is_refused_where_it_is_registered(app: App) -> None:
    async def coroutine(state: Any) -> None: ...

    def one(context: Any) -> None: ...

    async def async_generator(context: Any) -> AsyncIterator[None]:
        yield

    with pytest.raises(ConfigError, match=r"one: it must take \(call_next, context\)"):
        app.middleware(one)
    with pytest.raises(ConfigError, match="a middleware is a generator function"):
        app.middleware(async_generator)
    with pytest.raises(ConfigError, match="a lifespan is a generator function"):
        app.lifespan(coroutine)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="a lifespan is a generator function of"):
        app.child_lifespan(async_generator)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="not a coroutine"):
        app.on_submit(coroutine)  # type: ignore[type-var]
    app.propagate(tenant)
    with pytest.raises(ConfigError, match="two variables"):
        app.propagate(tenant)
    with pytest.raises(ConfigError, match="inject"):
        app.inject("scope")  # type: ignore[arg-type]


async def test_a_missing_scope_and_a_missing_state_say_what_to_do(
    make_app: Callable[..., App], sandbox: Sandbox
) -> None:
    app = make_app()

    @app.task
    async def work(clock: Injected[int] = INJECTED) -> None: ...

    with pytest.raises(
        ConfigError, match=r"task 'work' has injected parameters \(clock\).*`scope`"
    ):
        async with Node(app).running():
            pass

    @sandbox.app.task
    async def lost(ctx: Context) -> None:
        ctx.state.pool.execute()

    job = await run(sandbox, lost)
    assert "state.pool is not set in this process" in job.error.message

    with pytest.raises(ConfigError, match="differ at each replay"):

        @app.durable
        async def function(ctx: DurableContext, clock: Injected[int] = INJECTED) -> None: ...


class Pool:
    def __init__(self, size: int) -> None:
        self.size = size


class Session:
    def __init__(self, pool: Pool) -> None:
        self.pool = pool


closed: list[int] = []


class Shop(dishka.Provider):
    @dishka.provide(scope=dishka.Scope.APP)
    def pool(self) -> Pool:
        return Pool(5)

    @dishka.provide(scope=dishka.Scope.REQUEST)
    async def session(self, pool: Pool) -> AsyncIterator[Session]:
        yield Session(pool)
        closed.append(pool.size)


async def test_dishka_injects_what_its_providers_make(sandbox: Sandbox) -> None:
    container = dishka.make_async_container(Shop())
    app = sandbox.app
    app.inject(lambda context: container())

    @app.task
    async def buy(order: int, session: Injected[Session] = INJECTED) -> int:
        return order + session.pool.size

    assert (await run(sandbox, buy, 1)).result == 6
    assert (await run(sandbox, buy, 2)).result == 7
    assert closed == [5, 5]
    await container.close()


async def test_a_scope_that_must_be_awaited_is_refused_for_a_plain_function(
    sandbox: Sandbox,
) -> None:
    @asynccontextmanager
    async def scope(context: Any) -> AsyncIterator[Any]:
        yield None

    sandbox.app.inject(sync=scope)

    @sandbox.app.task
    def work(clock: Injected[int] = INJECTED) -> None: ...

    job = await run(sandbox, work)
    assert "App.inject() needs a `sync` scope" in job.error.message


# -- middlewares of every kind


class Around:
    """An object whose `__call__` is a coroutine function."""

    async def __call__(self, call_next: Any, context: Any) -> Any:
        return ["around", await call_next()]


class PlainAround:
    def __call__(self, call_next: Any, context: Any) -> Any:
        return ["plain", call_next()]


class Before:
    def __init__(self, seen: list[str]) -> None:
        self._seen = seen

    def __call__(self, context: Any) -> Iterator[None]:
        self._seen.append("begun")
        yield
        self._seen.append("ended")


async def test_objects_are_middlewares_as_functions_are(sandbox: Sandbox) -> None:
    app, noted = sandbox.app, list[str]()
    for middleware in (Around(), PlainAround(), Before(noted)):
        app.middleware(middleware)

    @app.task
    async def on_loop() -> Any:
        return 1

    @app.task(runner="thread")
    def in_thread() -> Any:
        return 2

    jobs = [await on_loop.submit(), await in_thread.submit()]
    await sandbox.run_due(raise_errors=True)
    assert [await job.result(1) for job in jobs] == [["around", 1], ["plain", 2]]
    assert noted == ["begun", "ended"] * 2


async def test_a_middleware_that_goes_on_yielding_ends_the_others_all_the_same(
    sandbox: Sandbox,
) -> None:
    app, noted = sandbox.app, list[str]()

    @app.middleware
    def outer(context: Any) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            noted.append(str(error))
            raise
        finally:
            noted.append("outer ended")

    @app.middleware
    def endless(context: Any) -> Iterator[None]:
        for _ in range(3):
            with contextlib.suppress(BaseException):  # as a careless one does
                yield

    @app.task(retry=Retry(max_attempts=1))
    async def works() -> int:
        return 1

    @app.task(retry=Retry(max_attempts=1))
    async def fails() -> None:
        raise ValueError("no")

    jobs = [await works.submit(), await fails.submit()]
    await sandbox.run_due()
    states = [await job.status() for job in jobs]
    assert [each.state for each in states] == ["failed", "failed"]
    assert [each.error.type for each in states if each.error] == ["RuntimeError", "ValueError"]
    assert "must yield once" in noted[0]
    assert noted[1:] == ["outer ended", "outer ended"]


@pytest.mark.parametrize("sync", [False, True])
async def test_a_handler_that_was_skipped_or_run_twice_is_no_success(  # noqa: C901
    sandbox: Sandbox, sync: bool
) -> None:
    app, ran = sandbox.app, []

    @app.middleware
    async def around(call_next: Any, context: Any) -> Any:
        if context.job.task == "forgotten":
            return None
        if context.job.task == "replaced":
            return "from the cache"
        if context.job.task == "twice":
            await call_next()
        return await call_next()

    @app.middleware
    def around_plain(call_next: Any, context: Any) -> Any:
        if context.job.task == "forgotten":
            return None
        if context.job.task == "replaced":
            return "from the cache"
        if context.job.task == "twice":
            call_next()
        return call_next()

    def make(name: str) -> Any:
        async def work() -> None:
            ran.append(name)

        def plain() -> None:
            ran.append(name)

        return app.task(name=name, retry=Retry(max_attempts=1))(plain if sync else work)

    forgotten = await run(sandbox, make("forgotten"))
    assert forgotten.state == "failed"
    assert "returned nothing without calling `call_next`" in forgotten.error.message
    twice = await run(sandbox, make("twice"))
    assert twice.state == "failed"
    assert "called `call_next` twice" in twice.error.message
    assert (await run(sandbox, make("replaced"))).result == "from the cache"
    assert (await run(sandbox, make("once"))).state == "succeeded"
    assert ran == ["twice", "once"]


class Hiding:
    """A scope that hides the exceptions of what runs inside it, with and without awaiting."""

    def get(self, kind: Any) -> Any:
        return kind()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> bool:
        return True


class AsyncHiding(Hiding):
    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> bool:
        return True


@pytest.mark.parametrize("scope", [Hiding, AsyncHiding])
async def test_a_scope_can_t_hide_that_an_attempt_failed(sandbox: Sandbox, scope: Any) -> None:
    app = sandbox.app
    app.inject(lambda context: scope(), sync=lambda context: Hiding())

    @app.task(retry=Retry(max_attempts=1))
    async def pay(wallet: Injected[dict] = INJECTED) -> None:  # type: ignore[type-arg]
        raise ValueError("no money")

    @app.task(retry=Retry(max_attempts=1))
    def pay_plain(wallet: Injected[dict] = INJECTED) -> None:  # type: ignore[type-arg]
        raise ValueError("no money")

    for task in (pay, pay_plain):
        job = await run(sandbox, task)
        assert (job.state, job.error.type) == ("failed", "ValueError")


async def test_headers_of_a_hook_that_are_no_json_are_named(sandbox: Sandbox) -> None:
    @sandbox.app.on_submit
    def stamp(submission: Submission) -> None:
        submission.headers["release"] = object()

    @sandbox.app.task
    async def work() -> None: ...

    with pytest.raises(InvalidArguments, match=r"in its headers field, 'release': objects of type"):
        await work.submit()
    assert await sandbox.app.jobs.list() == []
