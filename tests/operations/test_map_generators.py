"""Maps over steps that are generators: lists that a worker stores in pages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from rota import App
from rota.errors import ConfigError
from rota.lib import failpoints
from rota.lib.ids import new_id
from rota.model import Retry
from rota.store.maps import Feed, MapStore, NewChunk
from rota.store.work import LaneClaim, WorkStore
from rota.testing import Sandbox
from tests.support.shop import ended, states


class Source:
    """A generator that records what it does, and a task for its items."""

    def __init__(self, app: App) -> None:
        self.called: list[Any] = []
        self.yielded: list[Any] = []
        self.least = 10**9  # how many were yielded when the first member ran
        self.stops_at: Any = None  # where its worker goes away
        self.breaks_at: Any = None
        self.broken: set[Any] = set()  # items for which the task fails

        @app.generator(retry=Retry(max_attempts=3, base=0, jitter=0))
        async def numbers(count: int, first: int = 0) -> AsyncIterator[int]:
            for number in range(first, first + count):
                if number == self.stops_at:
                    self.stops_at = None
                    raise asyncio.CancelledError
                if number == self.breaks_at:
                    raise ValueError(f"no more than {number}")
                self.yielded.append(number)
                yield number

        @app.task(retry=Retry(max_attempts=1))
        async def load(item: Any, times: int = 1) -> Any:
            self.called.append(item)
            self.least = min(self.least, len(self.yielded))
            if item in self.broken:
                raise ValueError("broken")
            return item * times

        @app.task
        async def keep(value: Any) -> Any:
            return value

        self.numbers, self.load, self.keep = numbers, load, keep


@pytest.fixture
def source(sandbox: Sandbox) -> Source:
    return Source(sandbox.app)


@pytest.mark.parametrize("each", ["chunk", "job"])
@pytest.mark.parametrize("count", [0, 1, 2_500])
async def test_what_a_generator_yields_becomes_the_members_of_a_map(
    sandbox: Sandbox, source: Source, each: str, count: int
) -> None:
    count = min(count, 60) if each == "job" else count
    flow = sandbox.app.workflow("generated")
    rows = flow.step(source.numbers)
    parts = flow.map(source.load, over=rows, each=each, times=2, name="parts")
    flow.step(source.keep, {"parts": parts, "rows": rows["count"]})
    run = await flow.start(count=count)
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(source.called) == list(range(count))
    counts = {"count": count, "succeeded": count, "failed": 0}
    assert await run.result() == {"parts": counts, "rows": count}
    last = await run.members("parts", after=count - 2)
    assert [each.result for each in last] == ([] if count == 0 else [2 * (count - 1)])


async def test_a_condition_may_ask_how_many_items_there_were(
    sandbox: Sandbox, source: Source
) -> None:
    flow = sandbox.app.workflow("asked")
    rows = flow.step(source.numbers, name="rows")
    flow.map(source.load, over=rows, name="parts", when="rows.count > 3")
    few, many = await flow.start(count=3), await flow.start(count=4)
    await sandbox.run_due()
    assert [(await states(run))["parts"] for run in (few, many)] == ["skipped", "succeeded"]


async def test_an_attempt_that_was_interrupted_leaves_nothing_to_the_next(
    sandbox: Sandbox, source: Source
) -> None:
    flow = sandbox.app.workflow("interrupted")
    flow.map(source.load, over=flow.step(source.numbers), size=10, name="parts")
    source.stops_at = 1_900
    run = await flow.start(count=2_000)
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(source.called) == list(range(2_000))
    # The second attempt began anew, and no member ran before the list was whole.
    assert len(source.yielded) == source.least == 3_900


async def test_a_generator_that_fails_starts_no_member_and_resume_begins_it_anew(
    sandbox: Sandbox, source: Source
) -> None:
    flow = sandbox.app.workflow("failing")
    flow.map(source.load, over=flow.step(source.numbers, name="rows"), size=10, name="parts")
    source.breaks_at = 1_500
    run = await flow.start(count=2_000)
    assert (await ended(sandbox, run)).state == "failed"
    assert await states(run) == {"rows": "failed", "parts": "upstream_failed"}
    assert source.called == []
    source.breaks_at = None
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(source.called) == list(range(2_000))


async def test_a_list_by_hand_takes_the_place_of_a_generator_that_failed(
    sandbox: Sandbox, source: Source
) -> None:
    flow = sandbox.app.workflow("skipped")
    flow.map(source.load, over=flow.step(source.numbers, name="rows"), size=10, name="parts")
    source.breaks_at = 1_500
    run = await flow.start(count=2_000)
    await sandbox.run_due()
    await run.skip("rows", [7, 8])
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(source.called) == [7, 8]


async def test_members_that_failed_are_resumed_without_the_generator(
    sandbox: Sandbox, source: Source
) -> None:
    flow = sandbox.app.workflow("resumed")
    rows = flow.step(source.numbers)
    parts = flow.map(source.load, over=rows, size=10, name="parts")
    flow.map(source.load, over=rows, times=100, after=parts, name="others")
    source.broken = {3}
    run = await flow.start(count=20)
    assert (await ended(sandbox, run)).state == "failed"
    source.broken.clear()
    source.called.clear()
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert source.called[0] == 3
    assert sorted(source.called[1:]) == list(range(20))
    assert len(source.yielded) == 20
    assert [each.result for each in await run.members("others", after=17)] == [1800, 1900]


@pytest.mark.parametrize("verb", ["retry", "retry_members"])
async def test_a_map_that_runs_again_keeps_the_list_of_its_generator(
    sandbox: Sandbox, source: Source, verb: str
) -> None:
    flow = sandbox.app.workflow("again")
    rows = flow.step(source.numbers)
    parts = flow.map(source.load, over=rows, size=10, tolerate=1, name="parts")
    flow.map(source.load, over=rows, after=parts, name="others")
    source.broken = {3}
    run = await flow.start(count=20)
    await sandbox.run_due()
    source.broken.clear()
    source.called.clear()
    await getattr(run, verb)("parts")
    assert (await ended(sandbox, run)).state == "succeeded"
    again = list(range(20)) if verb == "retry" else [3]
    assert sorted(source.called) == sorted([*again, *range(20)])
    assert len(source.yielded) == 20


async def test_a_generator_that_runs_again_gives_a_new_list(
    sandbox: Sandbox, source: Source
) -> None:
    flow = sandbox.app.workflow("renewed")
    flow.map(source.load, over=flow.step(source.numbers, name="rows"), name="parts")
    run = await flow.start(count=20)
    await sandbox.run_due()
    await run.retry("rows")
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(source.called) == sorted([*range(20), *range(20)])


@pytest.mark.parametrize("point", ["open_feed", "feed_maps"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_answer_stores_no_item_twice(
    sandbox: Sandbox, source: Source, point: str, when: str
) -> None:
    flow = sandbox.app.workflow("lost")
    flow.map(source.load, over=flow.step(source.numbers), size=100, name="parts")
    run = await flow.start(count=2_500)
    with failpoints.armed_with(f"{point}:{when}=error@1"):
        await sandbox.run_due()
    await sandbox.advance(minutes=10)
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(source.called) == list(range(2_500))
    assert (await run.steps())[1].progress.chunks == 25  # type: ignore[union-attr]


async def test_an_attempt_that_lost_its_job_adds_nothing_to_the_list_of_the_next(
    sandbox: Sandbox, source: Source
) -> None:
    flow = sandbox.app.workflow("overslept")
    flow.map(source.load, over=flow.step(source.numbers), size=2, name="parts")
    run = await flow.start(count=4)
    store, maps, node = WorkStore(sandbox._database), MapStore(sandbox._database), new_id()
    [lane] = [row["lane"] for row in await store.lanes("default")]
    [job] = await store.claim(node, [LaneClaim(lane, 1)], ["numbers"])
    first = (node, job["id"], job["token"], run.id)
    [old] = await maps.open_feed(*first, 0) or ()
    chunk = NewChunk(0, 0, 2, msgspec.Raw(b"[70, 71]"))
    assert await maps.feed(*first, [Feed(1, old["id"], [chunk])], closes=False) == [1]
    # Another attempt begins the list anew.
    async with sandbox._database.connection() as connection:
        schema = sandbox.app.settings.schema
        await connection.execute(f"update {schema}.present set token = token + 1")
    second = (node, job["id"], job["token"] + 1, run.id)
    [new] = await maps.open_feed(*second, 0) or ()
    late = NewChunk(1, 2, 2, msgspec.Raw(b"[72, 73]"))
    assert await maps.feed(*first, [Feed(1, old["id"], [late])], closes=True) is None
    assert await maps.feed(*second, [Feed(1, old["id"], [late])], closes=True) == []
    assert await maps.open_feed(*first, 0) is None
    chunk = NewChunk(0, 0, 2, msgspec.Raw(b"[8, 9]"))
    for _ in range(2):  # the answer was lost
        assert await maps.feed(*second, [Feed(1, new["id"], [chunk])], closes=True) == [1]
    [stored] = await maps.progress(run.id, 1)
    assert (stored["members"], stored["chunks"], stored["closed"]) == (2, 1, True)
    assert [each.item for each in await run.members("parts")] == [8, 9]


async def test_plain_generators_run_in_threads(sandbox: Sandbox, source: Source) -> None:
    @sandbox.app.generator(runner="thread")
    def letters() -> Iterator[str]:
        yield from "abc"

    flow = sandbox.app.workflow("plain")
    flow.map(source.load, over=flow.step(letters), times=2, name="parts")
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert [each.result for each in await run.members("parts")] == ["aa", "bb", "cc"]


async def test_items_that_can_not_be_stored_fail_the_step(sandbox: Sandbox, source: Source) -> None:
    @sandbox.app.generator(retry=Retry(max_attempts=1))
    async def odd(value: str) -> AsyncIterator[Any]:
        yield 1
        yield object() if value == "object" else "x" * 2_000_000

    flow = sandbox.app.workflow("odd")
    flow.map(source.load, over=flow.step(odd, name="rows"), name="parts")
    run = await flow.start(value="object")
    assert (await ended(sandbox, run)).state == "failed"
    step = await sandbox.app.runs.step(run.id, "rows")
    assert "task 'odd': item 1 can't be written as JSON" in step.error["message"]
    run = await flow.start(value="large")
    assert (await ended(sandbox, run)).state == "failed"
    step = await sandbox.app.runs.step(run.id, "rows")
    assert "step 'parts': item 1 has 2,000,002 bytes, over max_payload_bytes" in str(step.error)


async def test_a_generator_without_a_map_is_refused(sandbox: Sandbox, source: Source) -> None:
    app = sandbox.app
    flow = app.workflow("alone")
    rows = flow.step(source.numbers, name="rows")
    said = (
        "task 'numbers' is a generator, whose items become the members of a map: make it a step of a "
        "workflow, and map a task over that step"
    )
    with pytest.raises(ConfigError, match=f"workflow 'alone', step 'rows': {said}"):
        await flow.start(count=1)
    flow.map(source.load, over=rows["items"])
    with pytest.raises(ConfigError, match="step 'rows' is a generator: map over the step itself"):
        await flow.start(count=1)
    for submit in (source.numbers.submit(1), source.numbers.submit_many([1])):
        with pytest.raises(ConfigError, match=said):
            await submit
    with pytest.raises(ConfigError, match=said):
        await app.schedule("often", task=source.numbers, every=60)
    job = await app.submit("numbers", {"count": 1})
    await sandbox.run_due()
    assert said in str((await job.status()).error)


def test_declaring_generators() -> None:
    app = App()

    async def coroutine() -> list[int]:
        return []

    async def items() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(ConfigError, match="'coroutine' is no generator: it has no `yield`"):
        app.generator(coroutine)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="'items' is a generator, which can't be exactly_once"):
        app.generator(guarantee="exactly_once")(items)
    with pytest.raises(
        ConfigError, match=r"declare it with @app\.generator, if a workflow is to map"
    ):
        app.task(items)
