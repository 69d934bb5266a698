"""Maps over generators: members that are added while the run goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota import App
from rota.errors import ConfigError, Conflict
from rota.lib import failpoints
from rota.testing import Sandbox
from tests.support.shop import ended


class Sink:
    def __init__(self, app: App) -> None:
        self.called: list[Any] = []

        @app.task
        async def load(item: int, times: int = 1) -> int:
            self.called.append(item)
            return item * times

        self.load = load


@pytest.fixture
def sink(sandbox: Sandbox) -> Sink:
    return Sink(sandbox.app)


async def numbers(count: int, broken_at: int | None = None) -> AsyncIterator[int]:
    for number in range(count):
        if number == broken_at:
            raise RuntimeError("the source is gone")
        yield number


async def test_a_generator_is_stored_in_chunks_and_runs(sandbox: Sandbox, sink: Sink) -> None:
    run = await sandbox.app.map(sink.load, over=numbers(1000), size=7, at_once=5, times=3)
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(sink.called) == list(range(1000))
    assert await run.result() == {"count": 1000, "succeeded": 1000, "failed": 0}
    [last] = await run.members("members", after=998)
    assert (last.number, last.result) == (999, 2997)


async def test_an_empty_generator_succeeds(sandbox: Sandbox, sink: Sink) -> None:
    run = await sandbox.app.map(sink.load, over=iter(()))
    assert (await ended(sandbox, run)).state == "succeeded"


async def test_members_run_while_others_are_added_and_a_key_goes_on(
    sandbox: Sandbox, sink: Sink
) -> None:
    with pytest.raises(RuntimeError):
        await sandbox.app.map(sink.load, over=numbers(1000, broken_at=900), size=2, key="once")
    [run] = await sandbox.app.runs.list()
    await sandbox.run_due()
    stored = len(sink.called)
    assert 0 < stored < 900
    assert (await sandbox.app.runs.get(run.id)).state == "running"
    again = await sandbox.app.map(sink.load, over=numbers(1000), size=2, key="once")
    assert again.id == run.id
    assert (await ended(sandbox, again)).state == "succeeded"
    assert sorted(sink.called) == list(range(1000))
    third = await sandbox.app.map(sink.load, over=numbers(1000), size=2, key="once")
    assert third.id == run.id
    await sandbox.run_due()
    assert len(sink.called) == 1000


async def test_an_abandoned_map_can_be_cancelled(sandbox: Sandbox, sink: Sink) -> None:
    with pytest.raises(RuntimeError):
        await sandbox.app.map(sink.load, over=numbers(1000, broken_at=900), size=2, key="once")
    [run] = await sandbox.app.runs.list()
    await sandbox.run_due()
    await sandbox.app.runs.cancel(run.id)
    await sandbox.run_due()
    assert (await sandbox.app.runs.get(run.id)).state == "cancelled"
    with pytest.raises(Conflict, match="takes no more members"):
        await sandbox.app.map(sink.load, over=numbers(1000), size=2, key="once")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_answer_adds_no_member_twice(sandbox: Sandbox, sink: Sink, when: str) -> None:
    with failpoints.armed_with(f"add_chunks:{when}=error@1"):
        run = await sandbox.app.map(sink.load, over=range(500), size=3)
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(sink.called) == list(range(500))


async def test_what_cannot_be_iterated_is_refused(sandbox: Sandbox, sink: Sink) -> None:
    with pytest.raises(ConfigError, match="over must be a list, a generator"):
        await sandbox.app.map(sink.load, over=5)


async def test_explain_says_what_a_map_waits_for(sandbox: Sandbox, sink: Sink) -> None:
    flow = sandbox.app.workflow("explained")
    flow.map(sink.load, over=list(range(20)), size=2, at_once=3, name="parts")
    await sandbox.app.queues.pause("default")
    run = await flow.start()
    await sandbox.run_due()
    said = await run.explain("parts")
    assert said.code == "window_full"
    assert "0 of 20 members; 7 chunks wait for a place among the 3 jobs" in said.sentence
    await sandbox.app.queues.resume("default")
    await sandbox.run_due()
    with pytest.raises(RuntimeError):
        await sandbox.app.map(sink.load, over=numbers(1000, broken_at=900), size=2, key="open")
    await sandbox.run_due()
    left = next(run for run in await sandbox.app.runs.list() if run.state == "running")
    said = await sandbox.app.runs.explain(left.id, "members")
    assert said.code == "list_open"
    assert f"`rota runs cancel {left.id}` ends it" in said.sentence


async def test_arguments_may_be_called_as_options_are(sandbox: Sandbox) -> None:
    app, called = sandbox.app, []

    @app.task
    async def greet(
        name: str, key: str = "", size: int = 0, item: str = "", tolerate: str = "", after: str = ""
    ) -> None:
        called.append((name, key, size, item, tolerate, after))

    given = {"key": "k", "size": 7, "item": "i", "tolerate": "t"}
    run = await app.map(greet, over=["Ada"], arguments=given, after="a")
    assert (await ended(sandbox, run)).state == "succeeded"
    flow = app.workflow("greetings")
    flow.map(greet, over=["Alan"], arguments={"after": "b", **given})
    assert (await ended(sandbox, await flow.start())).state == "succeeded"
    assert called == [("Ada", "k", 7, "i", "t", "a"), ("Alan", "k", 7, "i", "t", "b")]
    with pytest.raises(ConfigError, match="'after' is given twice"):
        await app.map(greet, over=["Ada"], arguments={"after": "b"}, after="a")
    with pytest.raises(ConfigError, match=r"'name' is an option .*: give it in arguments=\{"):
        flow.map(greet, over=["Alan"], name="x")
