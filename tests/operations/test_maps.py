"""Maps: a step that calls a task for each item of a list."""

from __future__ import annotations

from typing import Any

import pytest

from rota import App
from rota.errors import ConfigError, Conflict
from rota.model import Retry
from rota.testing import Sandbox
from tests.support.shop import ended, states


class Factory:
    """A task that records its calls, and fails for some items."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.called: list[Any] = []
        self.broken: dict[Any, int] = {}  # items, and how often they still fail

        @app.task(retry=Retry(max_attempts=1))
        async def rows(count: int = 0, value: Any = None) -> Any:
            return list(range(count)) if value is None else value

        @app.task(retry=Retry(max_attempts=2, base=10, jitter=0))
        async def load(item: Any, times: int = 2) -> Any:
            self.called.append(item)
            if self.broken.get(item, 0) > 0:
                self.broken[item] -= 1
                raise ValueError(f"{item} is broken")
            return item * times

        @app.task(retry=Retry(max_attempts=1))
        async def keep(value: Any) -> Any:
            return value

        self.rows, self.load, self.keep = rows, load, keep


@pytest.fixture
def factory(sandbox: Sandbox) -> Factory:
    return Factory(sandbox.app)


@pytest.mark.parametrize("each", ["chunk", "job"])
@pytest.mark.parametrize("count", [0, 1, 7])
async def test_each_item_is_a_call_and_results_keep_their_order(
    sandbox: Sandbox, factory: Factory, each: str, count: int
) -> None:
    flow = sandbox.app.workflow("orders")
    rows = flow.step(factory.rows, count)
    size = {"size": 3} if each == "chunk" else {}
    parts = flow.map(factory.load, over=rows, each=each, name="parts", **size)
    flow.step(factory.keep, {"counts": parts, "results": parts.results}, when="parts.failed == 0")
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(factory.called) == list(range(count))
    counts = {"count": count, "succeeded": count, "failed": 0}
    doubled = [number * 2 for number in range(count)]
    assert await run.result() == {"counts": counts, "results": doubled}
    members = await run.members("parts")
    assert [(each.number, each.item, each.result, each.state) for each in members] == [
        (number, number, number * 2, "succeeded") for number in range(count)
    ]


async def test_constants_and_input_are_arguments_of_every_call(
    sandbox: Sandbox, factory: Factory
) -> None:
    flow = sandbox.app.workflow("constants")
    flow.map(factory.load, over=flow.input("items"), times=10, name="parts")
    run = await flow.start(items=[1, 2])
    assert (await ended(sandbox, run)).state == "succeeded"
    assert [each.result for each in await run.members("parts")] == [10, 20]


@pytest.mark.parametrize("each", ["chunk", "job"])
async def test_a_member_that_fails_is_tried_again_by_the_tasks_policy(
    sandbox: Sandbox, factory: Factory, each: str
) -> None:
    flow = sandbox.app.workflow("again")
    flow.map(factory.load, over=[1, 2, 3, 4], each=each, name="parts")
    factory.broken = {2: 1}
    run = await flow.start()
    await sandbox.run_due()
    assert (await states(run))["parts"] == "running"
    assert sorted(factory.called) == [1, 2, 3, 4]
    await sandbox.advance(seconds=11)
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(factory.called) == [1, 2, 2, 3, 4]
    assert [each.result for each in await run.members("parts")] == [2, 4, 6, 8]


@pytest.mark.parametrize("each", ["chunk", "job"])
@pytest.mark.parametrize(
    ("tolerate", "state"),
    [
        (0, "failed"), (1, "failed"), (2, "succeeded"), ("19%", "failed"), ("20%", "succeeded"),
        (0.2, "succeeded"),
    ],
)  # fmt: skip
async def test_failures_within_what_is_tolerated(
    sandbox: Sandbox, factory: Factory, each: str, tolerate: Any, state: str
) -> None:
    flow = sandbox.app.workflow("tolerant")
    flow.map(factory.load, over=list(range(10)), each=each, tolerate=tolerate, name="parts")
    factory.broken = {3: 9, 8: 9}
    run = await flow.start()
    await sandbox.run_due()
    await sandbox.advance(minutes=1)
    assert (await ended(sandbox, run)).state == state
    step = await sandbox.app.runs.step(run.id, "parts")
    assert step.result == {"count": 10, "succeeded": 8, "failed": 2}
    failed = await run.members("parts", state="failed")
    assert [(each.number, each.item, each.error["message"]) for each in failed] == [
        (3, 3, "3 is broken"),
        (8, 8, "8 is broken"),
    ]
    if state == "failed":
        assert "2 of 10 members failed" in step.error["message"]


async def test_resume_runs_only_what_failed(sandbox: Sandbox, factory: Factory) -> None:
    flow = sandbox.app.workflow("resumed")
    parts = flow.map(factory.load, over=list(range(10)), size=4, name="parts")
    flow.step(factory.keep, parts.results)
    factory.broken = {3: 2, 8: 2}
    run = await flow.start()
    await sandbox.run_due()
    await sandbox.advance(minutes=1)
    assert (await ended(sandbox, run)).state == "failed"
    factory.called.clear()
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(factory.called) == [3, 8]
    assert await run.result() == [number * 2 for number in range(10)]


async def test_one_member_is_retried_and_the_others_stay_failed(
    sandbox: Sandbox, factory: Factory
) -> None:
    flow = sandbox.app.workflow("single")
    parts = flow.map(factory.load, over=list(range(10)), size=4, tolerate=5, name="parts")
    flow.step(factory.keep, parts["failed"])
    factory.broken = {3: 2, 8: 2}
    run = await flow.start()
    await sandbox.run_due()
    await sandbox.advance(minutes=1)
    assert (await ended(sandbox, run)).state == "succeeded"
    assert await run.result() == 2
    factory.called.clear()
    with pytest.raises(Conflict, match="of these 2 members 1 have failed"):
        await run.retry_members("parts", [3, 4])
    await run.retry_members("parts", [3])
    assert (await ended(sandbox, run)).state == "succeeded"
    assert factory.called == [3]
    assert await run.result() == 1
    await run.retry_members("parts")
    assert (await ended(sandbox, run)).state == "succeeded"
    assert (factory.called, await run.result()) == ([3, 8], 0)
    with pytest.raises(Conflict, match="no member has failed"):
        await run.retry_members("parts")


async def test_retry_of_the_step_calls_every_member_again(
    sandbox: Sandbox, factory: Factory
) -> None:
    flow = sandbox.app.workflow("whole")
    flow.map(factory.load, over=[1, 2], name="parts")
    run = await flow.start()
    await sandbox.run_due()
    await run.retry("parts")
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(factory.called) == [1, 1, 2, 2]


@pytest.mark.parametrize("value", [{"a": 1}, "text", 5])
async def test_what_is_no_list_fails_the_step_and_says_so(
    sandbox: Sandbox, factory: Factory, value: Any
) -> None:
    flow = sandbox.app.workflow("no_list")
    flow.map(factory.load, over=flow.step(factory.rows, value=value), name="parts")
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "failed"
    step = await sandbox.app.runs.step(run.id, "parts")
    assert f"'parts' maps over a list, and was given a value of type {type(value).__name__}" in str(
        step.error
    )


async def test_an_item_that_is_too_large_fails_the_step(sandbox: Sandbox, factory: Factory) -> None:
    flow = sandbox.app.workflow("large")
    flow.map(factory.load, over=flow.step(factory.keep, ["x", "y" * 700, "z" * 2000]), name="parts")
    run = await flow.start()
    limited = sandbox._database.settings.replace(max_payload_bytes=1000)
    sandbox._database.settings = limited
    assert (await ended(sandbox, run)).state == "failed"
    step = await sandbox.app.runs.step(run.id, "parts")
    assert "item 2 has 2,002 bytes, over max_payload_bytes (1,000)" in step.error["message"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"size": 0}, "size must be a whole number from 1 to 10,000"),
        ({"size": 20_000}, "size must be"),
        ({"at_once": 0}, "at_once must be a whole number"),
        ({"tolerate": -1}, "tolerate"),
        ({"tolerate": "x%"}, "tolerate is a number or a share such as '1%'"),
        ({"tolerate": "101%"}, "tolerate"),
        ({"each": "member"}, "each must be chunk or job"),
        ({"each": "job", "size": 5}, "size has no meaning"),
        ({"over": 5}, "over must be a list"),
        ({"over": "stream"}, "over must be a list"),
        ({"over": (x for x in "ab")}, "app.map"),
        ({"item": "nothing"}, "no argument 'nothing'"),
    ],
)
def test_what_is_out_of_range_is_refused(app: App, options: dict[str, Any], problem: str) -> None:
    factory = Factory(app)
    flow = app.workflow("wrong")

    def declare() -> None:
        flow.map(factory.load, **{"over": [1], **options})
        _ = flow.graph

    with pytest.raises(ConfigError, match=problem):
        declare()


def test_a_workflow_and_an_exactly_once_task_are_refused(app: App) -> None:
    inner = app.workflow("inner")
    flow = app.workflow("outer")
    with pytest.raises(ConfigError, match="a map calls a task"):
        flow.map(inner, over=[1])  # type: ignore[arg-type]

    @app.task(guarantee="exactly_once")
    async def pay(item: int) -> None: ...

    flow.map(pay, over=[1])
    with pytest.raises(ConfigError, match='each="job"'):
        _ = flow.graph


async def test_the_window_bounds_the_jobs(sandbox: Sandbox, factory: Factory) -> None:
    flow = sandbox.app.workflow("window")
    flow.map(factory.load, over=list(range(20)), size=2, at_once=3, name="parts")
    await sandbox.app.queues.pause("default")
    run = await flow.start()
    await sandbox.run_due()
    assert len(await sandbox.jobs(state="ready")) == 3
    await sandbox.app.queues.resume("default")
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(factory.called) == list(range(20))


async def test_cancel_stops_chunks_and_resume_runs_the_rest(
    sandbox: Sandbox, factory: Factory
) -> None:
    flow = sandbox.app.workflow("cancelled")
    flow.map(factory.load, over=list(range(6)), size=2, at_once=1, name="parts")
    run = await flow.start()

    await sandbox.app.queues.pause("default")
    await sandbox.run_due()
    await run.cancel()
    await sandbox.app.queues.resume("default")
    assert (await ended(sandbox, run)).state == "cancelled"
    assert factory.called == []
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert factory.called == list(range(6))


async def test_pause_holds_back_chunks(sandbox: Sandbox, factory: Factory) -> None:
    flow = sandbox.app.workflow("paused")
    flow.map(factory.load, over=list(range(6)), size=2, at_once=1, name="parts")
    await sandbox.app.queues.pause("default")
    run = await flow.start()
    await sandbox.run_due()
    await run.pause()
    await sandbox.app.queues.resume("default")
    await sandbox.run_due()
    assert factory.called == [0, 1]
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert factory.called == list(range(6))


async def test_a_paused_map_between_chunks_can_be_cancelled(
    sandbox: Sandbox, factory: Factory
) -> None:
    flow = sandbox.app.workflow("paused")
    parts = flow.map(factory.load, over=list(range(6)), size=2, at_once=1, name="parts")
    flow.step(factory.keep, 1, after=parts, rule="always")
    await sandbox.app.queues.pause("default")
    run = await flow.start()
    await sandbox.run_due()
    await run.pause()
    await sandbox.app.queues.resume("default")
    await sandbox.run_due()
    await run.cancel()
    assert (await ended(sandbox, run)).state == "cancelled"
    assert await states(run) == {"parts": "cancelled", "keep": "succeeded"}
    assert factory.called == [0, 1]


async def test_a_deadline_ends_a_map(sandbox: Sandbox, factory: Factory) -> None:
    flow = sandbox.app.workflow("late", deadline="1h")
    flow.map(factory.load, over=list(range(6)), name="parts")
    await sandbox.app.queues.pause("default")
    run = await flow.start()
    await sandbox.run_due()
    await sandbox.advance(hours=2)
    assert (await ended(sandbox, run)).state == "failed"
    assert (await states(run))["parts"] == "cancelled"
    assert factory.called == []


async def test_a_map_may_be_skipped(sandbox: Sandbox, factory: Factory) -> None:
    flow = sandbox.app.workflow("skipped")
    parts = flow.map(factory.load, over=[1, 2], name="parts")
    flow.step(factory.keep, parts["failed"])
    factory.broken = {1: 5}
    run = await flow.start()
    await sandbox.run_due()
    await sandbox.advance(minutes=1)
    assert (await ended(sandbox, run)).state == "failed"
    await run.skip("parts", {"count": 2, "succeeded": 2, "failed": 0})
    assert (await ended(sandbox, run)).state == "succeeded"
    assert await run.result() == 0


# -- limits of the task


async def test_each_member_of_a_task_with_a_rate_is_a_job(
    sandbox: Sandbox, factory: Factory
) -> None:
    @sandbox.app.task(rate="10/minute")
    async def rated(item: int) -> int:
        return item

    flow = sandbox.app.workflow("rated")
    flow.map(rated, over=list(range(5)), name="parts")
    run = await flow.start()
    await sandbox.run_due()
    [parts] = await run.steps()
    assert parts.progress is not None
    assert (parts.progress.chunks, parts.progress.members) == (5, 5)
    with pytest.raises(
        ConfigError,
        match=r"workflow 'rated', step 'more': task 'rated' has a rate, which counts the jobs that start"
        r", and a chunk of 10 members is one job: leave size out, and each member is a job that waits",
    ):
        flow.map(rated, over=[1], size=10, name="more")


@pytest.mark.parametrize(
    ("key", "instead"),
    [("concurrency_key", "take the limit inside of the task"), ("order_key", "map a task that")],
)
async def test_a_task_with_keys_that_are_computed_is_not_mapped(
    sandbox: Sandbox, factory: Factory, key: str, instead: str
) -> None:
    @sandbox.app.task(**{key: "item"}, concurrency=1)
    async def keyed(item: int) -> None: ...

    flow = sandbox.app.workflow("keyed")
    with pytest.raises(
        ConfigError, match=f"task 'keyed' has a {key}, which is computed .*{instead}"
    ):
        flow.map(keyed, over=[1], each="job")
