"""Coroutines on the event loop: what they share (nothing), and what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from rota import App
from rota.config import Settings
from rota.lib.ids import new_id
from rota.model import Outcome, OutcomeKind
from rota.runtime.work import Work
from rota.worker.runners.base import NodeParts
from rota.worker.runners.loop import LoopRunner

NO_DESK: Any = None  # these handlers ask nothing of their node
customer: ContextVar[str] = ContextVar("customer", default="nobody")


class Stage:
    """A runner with handlers made on the spot; whoever ends makes room for the next, as in a worker."""

    def __init__(self, handlers: dict[str, Callable[[], Awaitable[Any]]]) -> None:
        app = App()
        for name, handler in handlers.items():
            app.task(handler, name=name)
        self.outcomes: dict[Work, Outcome] = {}
        self.then: list[str] = []
        self._ended = asyncio.Event()
        self.runner = LoopRunner(app.tasks, 100, NodeParts(Settings(), self._done, NO_DESK))

    def start(self, name: str, **limits: float) -> Work:
        work = Work(new_id(), name, b"{}", 7, 1, 5, **limits)
        self.runner.run(work)
        return work

    def _done(self, work: Work, outcome: Outcome) -> None:
        assert work not in self.outcomes, "reported twice"
        self.outcomes[work] = outcome
        if self.then:
            self.start(self.then.pop(0))
        self._ended.set()

    async def ended(self, count: int) -> list[OutcomeKind]:
        async with asyncio.timeout(60):
            while len(self.outcomes) < count:
                self._ended.clear()
                await self._ended.wait()
        return [outcome.kind for outcome in self.outcomes.values()]


def current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


@pytest.mark.parametrize("waits", [False, True], ids=["never waits", "waits"])
async def test_a_job_inherits_nothing_from_the_one_that_made_room_for_it(waits: bool) -> None:
    seen: list[str] = []

    async def serve() -> None:
        seen.append(customer.get())
        customer.set(f"customer {len(seen)}")
        if waits:
            await asyncio.sleep(0)
            assert customer.get() == f"customer {len(seen)}"

    stage = Stage({"serve": serve})
    stage.then = ["serve", "serve"]
    stage.start("serve")
    assert await stage.ended(3) == [OutcomeKind.SUCCEEDED] * 3
    assert seen == ["nobody"] * 3


async def test_a_runner_gives_its_handlers_the_context_it_was_made_in() -> None:
    seen: list[str] = []

    async def serve() -> None:
        seen.append(customer.get())

    customer.set("from the program")
    stage = Stage({"serve": serve})
    customer.set("later")
    stage.start("serve")
    await stage.ended(1)
    assert seen == ["from the program"]


async def test_jobs_that_wait_have_a_task_of_their_own_others_may_share_one() -> None:
    tasks: dict[str, list[asyncio.Task[Any]]] = {"quick": [], "waiting": []}

    async def quick() -> None:
        tasks["quick"].append(current_task())

    async def waiting() -> None:
        tasks["waiting"].append(current_task())
        await asyncio.sleep(0)
        assert current_task() is tasks["waiting"][-1] or current_task() in tasks["waiting"]

    stage = Stage({"quick": quick, "waiting": waiting})
    for name in ("quick", "waiting", "quick", "waiting", "quick", "quick"):
        stage.start(name)
    await stage.ended(6)
    assert len(set(tasks["waiting"])) == 2
    assert tasks["quick"][2] is tasks["quick"][3]  # that is what makes them cheap


async def test_the_current_task_stays_the_same_while_a_job_waits() -> None:
    async def handler() -> list[bool]:
        before = current_task()
        await asyncio.sleep(0)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0))
        return [current_task() is before, before.get_name() == "handler"]

    stage = Stage({"handler": handler})
    work = stage.start("handler")
    await stage.ended(1)
    assert stage.outcomes[work].result == b"[true,true]"


async def test_a_time_limit_inside_a_handler_ends_what_it_is_about() -> None:
    async def limited() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            await asyncio.sleep(0)
            return "went on"
        return "never"

    stage = Stage({"limited": limited})
    work = stage.start("limited")
    await stage.ended(1)
    assert stage.outcomes[work].result == b'"went on"'


async def test_a_cancellation_that_a_job_leaves_behind_meets_no_other() -> None:
    async def cancels_itself() -> None:
        current_task().cancel()

    async def waits() -> str:
        await asyncio.sleep(0.001)
        return "undisturbed"

    stage = Stage({"cancels_itself": cancels_itself, "waits": waits})
    works = [stage.start(name) for name in ("cancels_itself", "waits", "cancels_itself", "waits")]
    await stage.ended(4)
    assert [stage.outcomes[work].result for work in works[1::2]] == [b'"undisturbed"'] * 2


async def test_whoever_cancels_the_driver_between_two_jobs_holds_up_none() -> None:
    drivers: list[asyncio.Task[Any]] = []

    async def long() -> None:
        drivers.append(current_task())
        end = asyncio.get_running_loop().time() + 0.005
        while asyncio.get_running_loop().time() < end:
            pass  # more than a driver's slice of the loop: it pauses after this

    stage = Stage({"long": long})
    stage.start("long")
    stage.start("long")
    asyncio.get_running_loop().call_soon(lambda: drivers[0].cancel())
    assert await stage.ended(2) == [OutcomeKind.SUCCEEDED] * 2
    assert drivers[0] is not drivers[1]


async def test_jobs_that_never_wait_leave_the_loop_to_others_meanwhile() -> None:
    turns = 0

    async def quick() -> None:
        if len(stage.outcomes) < 20_000:
            stage.then.append("quick")

    async def elsewhere() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    stage = Stage({"quick": quick})
    other = asyncio.create_task(elsewhere())
    stage.start("quick")
    await stage.ended(20_000)
    other.cancel()
    assert turns > 5


async def test_what_is_stopped_before_its_first_step_is_not_begun() -> None:
    begun: list[int] = []

    async def handler() -> None:
        begun.append(1)

    stage = Stage({"handler": handler})
    work = stage.start("handler")
    stage.runner.stop_work(work, "cancel")
    assert await stage.ended(1) == [OutcomeKind.CANCELLED]
    assert begun == []


async def test_a_stop_ends_the_job_it_is_meant_for_and_no_other() -> None:
    async def waits() -> None:
        await asyncio.Event().wait()

    async def quick() -> None: ...

    stage = Stage({"waits": waits, "quick": quick})
    stopped, other = stage.start("waits"), stage.start("waits")
    stage.start("quick")
    await stage.ended(1)
    stage.runner.stop_work(stopped, "cancel")
    await stage.ended(2)
    assert stage.outcomes[stopped].kind is OutcomeKind.CANCELLED
    assert other not in stage.outcomes
    stage.runner.stop_work(other, "shutdown")
    await stage.ended(3)
    assert stage.outcomes[other].kind is OutcomeKind.RETURNED


async def test_a_handler_that_swallows_its_cancellation_is_cancelled_again() -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while swallowed < 3:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed += 1
        await asyncio.Event().wait()

    stage = Stage({"stubborn": stubborn})
    stage.start("stubborn", timeout=0.01)
    assert await stage.ended(1) == [OutcomeKind.TIMED_OUT]
    assert swallowed == 3


@pytest.mark.parametrize("limit", ["timeout", "heartbeat_timeout"])
async def test_a_handler_that_returns_after_it_was_stopped_has_succeeded(limit: str) -> None:
    """A retry would repeat what it has done."""

    async def completes() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "charged"
        return "not stopped"

    stage = Stage({"completes": completes})
    work = stage.start("completes", **{limit: 0.01})
    assert await stage.ended(1) == [OutcomeKind.SUCCEEDED]
    assert stage.outcomes[work].result == b'"charged"'
    assert work.stopping == limit.removesuffix("_timeout")


async def test_what_a_handler_raises_when_it_goes_on_is_its_outcome() -> None:
    async def fails() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
        raise ValueError("after waiting")

    stage = Stage({"fails": fails})
    work = stage.start("fails")
    assert await stage.ended(1) == [OutcomeKind.RAISED]
    failure = stage.outcomes[work].failure
    assert failure is not None
    assert failure.message == "after waiting"
    assert "in fails" in failure.traceback
