"""Tasks whose function gets several jobs at a time: `app.batch_task`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from proof.waiting import eventually
from rota import App, ConfigError, Fatal, JobInfo, Node, Retry

ONCE = Retry(max_attempts=1)


class Document(msgspec.Struct):
    id: int
    text: str = ""


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., object]]:
    nodes: list[Node] = []

    async def start(app: App) -> Node:
        nodes.append(Node(app, ["worker", "scheduler"]))
        await nodes[-1].start()
        return nodes[-1]

    yield start
    for node in nodes:
        await node.stop()


async def test_jobs_that_come_together_are_one_call(make_app, start):
    app = make_app(concurrency=50)
    calls: list[list[int]] = []

    @app.batch_task(max_size=10, max_wait=30)
    async def double(numbers: list[int]) -> list[int]:
        calls.append(numbers)
        return [2 * number for number in numbers]

    handles = await double.submit_many([(n,) for n in range(30)])
    await start(app)
    results = [await handle.result(timeout=30) for handle in handles]
    assert results == [2 * n for n in range(30)]
    assert [len(call) for call in calls] == [10, 10, 10]


async def test_what_has_come_within_the_wait_is_a_batch(make_app, start):
    app = make_app()
    calls: list[list[int]] = []

    @app.batch_task(max_size=1000, max_wait=0.05)
    async def note(numbers: list[int]) -> None:
        calls.append(numbers)

    await start(app)
    handle = await note.submit(1)
    assert await handle.result(timeout=30) is None
    assert calls == [[1]]


async def test_a_batch_is_never_larger_than_the_nodes_slots(make_app, start):
    app = make_app(concurrency=4)
    sizes: list[int] = []

    @app.batch_task(max_size=100, max_wait=60)
    async def note(numbers: list[int]) -> None:
        sizes.append(len(numbers))

    handles = await note.submit_many([(n,) for n in range(8)])
    await start(app)
    for handle in handles:
        await handle.result(timeout=30)
    assert sizes == [4, 4]


async def test_one_bad_job_fails_alone_and_is_retried_alone(make_app, start):
    app = make_app()
    calls: list[list[int]] = []

    @app.batch_task(max_size=4, max_wait=0.2, retry=Retry(max_attempts=2, base=0.01, jitter=0))
    async def index(documents: list[Document], jobs: list[JobInfo]) -> list[object]:
        calls.append(sorted(one.id for one in documents))
        return [
            Fatal("unreadable")
            if one.id == 3
            else ValueError("not today")
            if one.id == 2 and job.attempt == 1
            else one.id
            for one, job in zip(documents, jobs, strict=True)
        ]

    handles = await index.submit_many([(Document(n),) for n in range(4)])
    await start(app)
    done = [await handle.wait(30) for handle in handles]
    assert [job.state for job in done] == ["succeeded", "succeeded", "succeeded", "failed"]
    assert [job.attempt for job in done] == [1, 1, 2, 1]
    assert calls == [[0, 1, 2, 3], [2]]


async def test_what_the_function_raises_fails_all(make_app, start):
    app = make_app()

    @app.batch_task(max_size=3, max_wait=30, retry=ONCE)
    async def index(numbers: list[int]) -> None:
        raise ValueError("no disk")

    handles = await index.submit_many([(n,) for n in range(3)])
    await start(app)
    done = [await handle.wait(30) for handle in handles]
    assert [job.state for job in done] == ["failed"] * 3
    assert all("no disk" in str(job.error) for job in done)


@pytest.mark.parametrize("answer", [[1], "all", [1, 2, 3]])
async def test_an_answer_that_fits_no_jobs_fails_all(make_app, start, answer):
    app = make_app()

    @app.batch_task(max_size=2, max_wait=30, retry=ONCE)
    async def index(numbers: list[int]) -> object:
        return answer

    handles = await index.submit_many([(n,) for n in range(2)])
    await start(app)
    done = [await handle.wait(30) for handle in handles]
    assert all("batch of 2 jobs must return" in str(job.error) for job in done)


async def test_a_job_that_cannot_be_read_fails_alone(make_app, start):
    app = make_app()
    calls: list[list[int]] = []

    @app.batch_task(max_size=5, max_wait=0.1, retry=ONCE)
    async def index(numbers: list[int]) -> None:
        calls.append(numbers)

    good = await index.submit(1)
    async with (await app.store()).database.connection() as connection:
        bad = await connection.fetchval(
            f"select {app.settings.schema}.submit('index', '{{\"numbers\": \"seven\"}}')"
        )
    await start(app)
    assert (await good.wait(30)).state == "succeeded"

    async def has_failed():
        return (await app.jobs.get(bad)).state == "failed"

    await eventually(has_failed)
    assert calls == [[1]]


async def test_a_cancelled_job_leaves_the_batch_and_the_others_end(make_app, start):
    app = make_app()
    go, inside = asyncio.Event(), asyncio.Event()

    @app.batch_task(max_size=2, max_wait=30)
    async def index(numbers: list[int]) -> list[int]:
        inside.set()
        await go.wait()
        return numbers

    first, second = await index.submit_many([(1,), (2,)])
    await start(app)
    await inside.wait()
    await app.jobs.cancel(first.id)
    assert (await first.wait(30)).state == "cancelled"
    go.set()
    assert await second.result(timeout=30) == 2


async def test_the_function_is_cancelled_when_all_its_jobs_are(make_app, start):
    app = make_app()
    inside, ended = asyncio.Event(), []

    @app.batch_task(max_size=2, max_wait=30)
    async def index(numbers: list[int]) -> None:
        inside.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(numbers)

    handles = await index.submit_many([(1,), (2,)])
    await start(app)
    await inside.wait()
    for handle in handles:
        await app.jobs.cancel(handle.id)
    for handle in handles:
        assert (await handle.wait(30)).state == "cancelled"
    await eventually(lambda: ended == [[1, 2]])


async def test_what_a_stopped_node_had_in_a_batch_runs_elsewhere(make_app, start):
    """Each under its own token: nothing of a batch is stored."""
    app = make_app(grace=0.1, kill_grace=0.5)
    calls: list[int] = []

    @app.batch_task(max_size=2, max_wait=30)
    async def index(numbers: list[int]) -> None:
        calls.append(len(numbers))
        if len(calls) == 1:
            await asyncio.Event().wait()

    handles = await index.submit_many([(1,), (2,)])
    first = await start(app)
    await eventually(lambda: calls == [2])
    await first.stop()
    await start(app)
    for handle in handles:
        job = await handle.wait(60)
        assert (job.state, job.attempt) == ("succeeded", 1)


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        ({"max_size": 0}, "max_size must be"),
        ({"max_wait": -1}, "max_wait must be"),
        ({"guarantee": "exactly_once"}, "a batch can't be exactly_once"),
    ],
)
def test_batches_that_make_no_sense_are_refused(declare, says):
    async def index(numbers: list[int]) -> None: ...

    with pytest.raises(ConfigError, match=says):
        App().batch_task(**declare)(index)


def test_functions_that_take_no_lists_are_refused():
    async def one(number: int) -> None: ...

    async def none() -> None: ...

    def plain(numbers: list[int]) -> None: ...

    with pytest.raises(ConfigError, match="must be annotated as a list"):
        App().batch_task()(one)
    with pytest.raises(ConfigError, match="needs a parameter"):
        App().batch_task()(none)
    with pytest.raises(ConfigError, match="must be a coroutine function"):
        App().batch_task()(plain)
