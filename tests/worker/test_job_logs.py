"""What handlers print and log is kept with their attempts: all of it, only theirs, within limits."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rota.testing
from proof.waiting import eventually
from rota import App, NotFound
from rota.model import LogLine
from rota.node import Node
from rota.scheduler.janitor import Janitor
from rota.scheduler.shards import AllShards
from rota.store.logs import LogStore, NewLogLine
from rota.store.work import UpkeepStore
from rota.worker.log_writer import LogWriter
from tests.support import log_tasks
from tests.support.fake_node import FakeNode


@pytest.fixture
async def app(make_app: Callable[..., App]) -> AsyncIterator[App]:
    settings = make_app(heartbeat=0.5, kill_grace=1, processes=1).settings
    async with log_tasks.app.using(settings) as app:
        yield app


async def lines_of(app: App, id: Any, **options: Any) -> list[LogLine]:
    return [line async for line in app.jobs.logs(id, **options)]


async def texts_of(app: App, id: Any, stream: str | None = None) -> list[str]:
    return [line.text for line in await lines_of(app, id) if stream in (None, line.stream)]


async def run(app: App, task: str, **arguments: Any) -> Any:
    handle = await app.submit(task, arguments)
    return await handle.wait(60)


@pytest.mark.parametrize(
    ("task", "name"),
    [("talk_on_the_loop", "loop"), ("talk_in_a_thread", "thread"), ("talk_in_a_child", "child")],
)
async def test_what_is_printed_and_logged_is_kept_once_in_every_runner(
    app: App, task: str, name: str
) -> None:
    async with Node(app).running():
        job = await run(app, task, number=7)
        assert job.state == "succeeded"
        lines = await lines_of(app, job.id)
        said = [(line.stream, line.text) for line in lines]
        assert said[:3] == [
            ("stdout", f"{name} 7 prints"),
            ("stderr", f"{name} 7 complains"),
            ("warning", f"shop: {name} 7 warns"),
        ]
        own = [("stdout", "child 7 has a thread"), ("stdout", "no end")] if name == "child" else []
        assert said[3:] == own
        assert [line.seq for line in lines] == list(range(1, len(lines) + 1))
        assert {(line.attempt, line.token) for line in lines} == {(1, job.token)}
        assert job.started_at - timedelta(seconds=5) < lines[0].at <= job.finished_at + timedelta(1)


async def test_concurrent_coroutines_keep_their_words_apart(app: App) -> None:
    async with Node(app).running():
        handles = [await app.submit("on_the_loop", {"number": number}) for number in range(20)]
        for number, handle in enumerate(handles):
            await handle.result(30)
            expected = [f"job {number} step {step}" for step in range(3)]
            assert await texts_of(app, handle.id) == [*expected, f"job {number} from a thread"]


async def test_everything_still_goes_where_it_went(
    app: App, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user's own logging configuration works on, and its output is not taken twice."""
    logger, stream = logging.getLogger("shop"), io.StringIO()
    async with Node(app).running():
        handler = logging.StreamHandler(stream)
        to_stderr = logging.StreamHandler(sys.stderr)  # which is ours by now
        logger.addHandler(handler)
        logger.addHandler(to_stderr)
        logger.propagate = False
        try:
            print("said by nobody's job")
            job = await run(app, "talk_on_the_loop", number=1)
        finally:
            logger.removeHandler(handler)
            logger.removeHandler(to_stderr)
            logger.propagate = True
    out, err = capsys.readouterr()
    assert "said by nobody's job\nloop 1 prints\n" in out
    assert "loop 1 complains\n" in err
    assert stream.getvalue() == "loop 1 warns\n"
    assert err.count("loop 1 warns") == 1
    assert [line.stream for line in await lines_of(app, job.id)] == ["stdout", "stderr", "warning"]


async def test_rotas_own_records_belong_to_no_job(app: App, make_app: Callable[..., App]) -> None:
    @app.task(name="inside")
    async def inside() -> None:
        logging.getLogger("rota.worker").warning("of the node")
        print("of the job")

    try:
        async with Node(app).running():
            job = await run(app, "inside")
    finally:
        del app.tasks["inside"]
    assert await texts_of(app, job.id) == ["of the job"]


async def test_garbage_is_made_storable(app: App) -> None:
    async with Node(app).running():
        job = await run(app, "say_odd_things")
        assert job.state == "succeeded", job.error
        lines = await texts_of(app, job.id)
        assert lines[:3] == ["NUL \\x00, a lone \\ud800 surrogate, ünïcode", "100%", "done"]
        assert lines[3] == "x" * 16_384 + "… 83,616 characters left out"
        assert lines[-1] == "after it"


@pytest.mark.parametrize("task", ["flood", "flood_in_a_child"])
async def test_of_too_much_the_beginning_and_the_end_are_kept(
    make_app: Callable[..., App], task: str
) -> None:
    settings = make_app(log_bytes=20_000, processes=1, heartbeat=0.5).settings
    async with log_tasks.app.using(settings) as app, Node(app).running():
        job = await run(app, task, lines=5_000)
        lines = await lines_of(app, job.id)
    assert sum(len(line.text) + 32 for line in lines) < 21_000
    texts = [line.text for line in lines]
    (mark,) = [number for number, line in enumerate(lines) if line.stream == "mark"]
    left_out = 5_000 - (len(lines) - 1)
    assert texts[mark] == f"… {left_out:,} lines left out"
    assert texts[:mark] == [f"line {number}" for number in range(mark)]
    rest = len(texts) - mark - 1
    assert rest > 50
    assert texts[mark + 1 :] == [f"line {number}" for number in range(5_000 - rest, 5_000)]


async def test_a_rate_is_kept_and_what_it_cost_is_said(make_app: Callable[..., App]) -> None:
    settings = make_app(log_lines_per_second=10, log_bytes=4_000, heartbeat=0.5).settings
    async with log_tasks.app.using(settings) as app, Node(app).running():
        job = await run(app, "flood", lines=1_000)
        lines = await lines_of(app, job.id)
    assert [line.text for line in lines[:20]] == [f"line {number}" for number in range(20)]
    assert lines[-1].text == "line 999"
    assert any(line.stream == "mark" for line in lines[20:])
    assert len(lines) < 60


async def test_nothing_is_kept_when_it_is_switched_off(make_app: Callable[..., App]) -> None:
    settings = make_app(log_bytes=0, processes=1, heartbeat=0.5).settings
    async with log_tasks.app.using(settings) as app, Node(app).running():
        for task in ("talk_on_the_loop", "talk_in_a_child"):
            assert await lines_of(app, (await run(app, task, number=1)).id) == []


async def test_each_attempt_has_its_own_lines(app: App) -> None:
    async with Node(app).running():
        job = await run(app, "fail_once")
        assert job.state == "succeeded"
        first, second = [await lines_of(app, job.id, attempt=number) for number in (1, 2)]
        assert first[0].text == "attempt 1"
        assert first[-1].text == "ZeroDivisionError: division by zero"
        assert first[1].stream == "error"
        assert second[0].text == "attempt 2"
        assert await lines_of(app, job.id) == [*first, *second]


async def test_the_last_words_of_a_crashed_process_are_kept(app: App) -> None:
    async with Node(app).running():
        job = await run(app, "die_talking")
        assert job.state == "failed"
        assert await texts_of(app, job.id, "stdout") == ["my last words"]


async def test_programs_are_heard_too(app: App) -> None:
    async with Node(app).running():
        script = "echo one; echo two >&2; printf '\\303'; printf '\\251\\n\\377\\000'"
        job = await run(app, "rota.command", shell=script)
        assert job.state == "succeeded", job.error
        assert await texts_of(app, job.id, "stdout") == ["one", "é", "\ufffd\\x00"]
        assert await texts_of(app, job.id, "stderr") == ["two"]


async def test_a_running_job_is_followed_to_its_end(app: App, tmp_path: Path) -> None:
    async with Node(app).running():
        handle = await app.submit("talk_until", {"path": str(tmp_path / "go")})
        seen: list[str] = []
        async with asyncio.timeout(60):
            async for line in app.jobs.logs(handle.id, follow=True):
                seen.append(line.text)
                if line.text == "begun":
                    assert (await handle.status()).state == "running"
                    (tmp_path / "go").touch()
        assert seen == ["begun", "ended"]


async def test_printing_in_a_child_never_waits_for_a_blocked_node(app: App, tmp_path: Path) -> None:
    """A coroutine blocks the node's loop until a child has printed more than any pipe holds."""
    async with Node(app).running():
        begun, go, done = (tmp_path / name for name in ("begun", "go", "done"))
        files = {"begun": str(begun), "go": str(go), "path": str(done)}
        child = await app.submit("print_much_then_touch", {**files, "lines": 3_000})
        await eventually(begun.exists)
        await app.submit("block_the_loop_until", {"go": str(go), "path": str(done)})
        job = await child.wait(60)
        assert job.state == "succeeded"
        lines = await texts_of(app, job.id)
        assert lines[0].startswith("0 x")
        assert lines[-1].startswith("2999 x")


async def test_a_child_that_prints_all_the_time_can_be_stopped(app: App, tmp_path: Path) -> None:
    async with Node(app).running():
        for number in range(5):
            begun = tmp_path / str(number)
            handle = await app.submit("print_forever", {"path": str(begun)})
            await eventually(begun.exists)
            await handle.cancel()
            assert (await handle.wait(30)).state == "cancelled"
        assert (await run(app, "talk_in_a_child", number=1)).state == "succeeded"


async def test_a_job_that_is_not_there_has_no_log(app: App) -> None:
    with pytest.raises(NotFound, match="there is no job"):
        await lines_of(app, "0199aaaa-0000-7000-8000-000000000000")


@pytest.mark.parametrize("task", ["report_oddly", "report_oddly_in_a_child"])
async def test_progress_with_odd_messages_is_kept(app: App, task: str) -> None:
    async with Node(app).running():
        job = await run(app, task)
    assert job.state == "succeeded", job.error
    assert job.progress == {"done": 2.0, "total": 3.0, "message": "NUL \\x00, \\ud800"}


# -- the fence


@pytest.fixture
def stores(sandbox: rota.testing.Sandbox, hot: Any) -> Any:
    @sandbox.app.task
    async def greet() -> None: ...

    return sandbox.app, LogStore(hot)


def said(job: Any, text: str, seq: int = 1) -> NewLogLine:
    return NewLogLine(job["id"], job["token"], job["attempt"], seq, None, "stdout", text)


async def test_words_under_a_stale_token_are_refused(stores: Any, hot: Any) -> None:
    app, logs = stores
    await app.submit("greet")
    one = await FakeNode(hot, app.settings, "one").register()
    two = await FakeNode(hot, app.settings, "two").register()
    (first,) = await one.claim()
    assert await logs.add(one.id, "default", [said(first, "mine")]) == 0
    assert await logs.add(two.id, "default", [said(first, "not mine", 2)]) == 1
    assert await one.store.give_back(one.id, [rota_returned(first)]) == 1
    assert await logs.add(one.id, "default", [said(first, "late, nobody has it", 3)]) == 0
    (second,) = await two.claim()
    assert await logs.add(one.id, "default", [said(first, "stale", 4)]) == 1
    assert await logs.add(two.id, "default", [said(second, "hers")]) == 0
    await two.store.finish_succeeded(two.id, [rota_succeeded(second)], 0.0)
    assert await logs.add(two.id, "default", [said(second, "late, but hers", 2)]) == 0
    assert await logs.add(one.id, "default", [said(second, "not his", 3)]) == 1
    kept = [line.text async for line in app.jobs.logs(first["id"])]
    assert kept == ["mine", "late, nobody has it", "hers", "late, but hers"]


async def test_a_lost_attempt_says_nothing_more(sandbox: Any, stores: Any, hot: Any) -> None:
    from rota.scheduler.reaper import Reaper

    app, logs = stores
    await app.submit("greet")
    zombie = await FakeNode(hot, app.settings, "zombie").register()
    (job,) = await zombie.claim()
    await sandbox.advance(seconds=3600)
    await Reaper(UpkeepStore(hot), app.settings).tick()
    assert await logs.add(zombie.id, "default", [said(job, "braaains")]) == 1
    assert [line async for line in app.jobs.logs(job["id"])] == []


async def test_a_batch_written_twice_is_there_once(stores: Any, hot: Any) -> None:
    app, logs = stores
    await app.submit("greet")
    node = await FakeNode(hot, app.settings).register()
    (job,) = await node.claim()
    for _ in range(2):
        await logs.add(node.id, "default", [said(job, "a"), said(job, "b", 2)])
    assert [line.text async for line in app.jobs.logs(job["id"])] == ["a", "b"]


async def test_a_line_that_can_t_be_written_takes_no_other_with_it(stores: Any, hot: Any) -> None:
    app, logs = stores
    await app.submit("greet")
    node = await FakeNode(hot, app.settings).register()
    (job,) = await node.claim()
    writer = LogWriter(logs, app.settings, node.lease)
    texts = ["a", "not stor\0able", "b"]
    await writer._write([said(job, text, seq) for seq, text in enumerate(texts, 1)])
    assert [line.text async for line in app.jobs.logs(job["id"])] == ["a", "b"]


async def test_whole_days_are_dropped(sandbox: Any, stores: Any, hot: Any) -> None:
    app, logs = stores
    await app.submit("greet")
    node = await FakeNode(hot, app.settings).register()
    (job,) = await node.claim()
    await logs.add(node.id, "default", [said(job, "old")])
    janitor = Janitor(UpkeepStore(hot), app.settings, AllShards(128))
    await sandbox.advance(days=app.settings.log_days)
    await janitor.clean()
    await logs.add(node.id, "default", [said(job, "new", 2)])
    assert [line.text async for line in app.jobs.logs(job["id"])] == ["old", "new"]
    await sandbox.advance(days=2)
    await janitor.clean()
    assert [line.text async for line in app.jobs.logs(job["id"])] == ["new"]


def rota_returned(row: Any) -> Any:
    from rota.store.work import Returned

    return Returned(row["id"], row["token"])


def rota_succeeded(row: Any) -> Any:
    from rota.store.work import Succeeded

    return Succeeded(row["id"], row["token"], 0.0, 0.0)
