"""The workers of examples/http_worker as real processes, in both languages, alive and killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from proof.waiting import eventually
from rota import App, InvalidArguments
from rota.node import Node
from rota.server.serving import Server
from rota.store.remote import RemoteStore
from tests.support.places import EXAMPLES
from tests.support.server_fixtures import LiveServer

WORKERS = EXAMPLES / "http_worker"
LANGUAGES = ["python", "javascript"]
OTHER = {"python": "javascript", "javascript": "python"}


class Process:
    """A worker that says on its standard output what it does."""

    def __init__(self, language: str, environment: dict[str, str], log: Path) -> None:
        command = [sys.executable, "-u", str(WORKERS / "worker.py")]
        if language == "javascript":
            node = shutil.which("node") or shutil.which("nodejs")
            if node is None:
                pytest.skip("no Node.js here: `make test` installs it, or apt-get install nodejs")
            command = [node, str(WORKERS / "worker.mjs")]
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(command, env=environment, stdout=file, stderr=file)

    def said(self) -> str:
        return self.log.read_text()

    async def says(self, text: str) -> None:
        def ask() -> bool:
            assert self.process.poll() is None or text in self.said(), self.said()
            return text in self.said()

        await eventually(ask, what=text)

    def send(self, number: int) -> None:
        self.process.send_signal(number)


class Stage:
    """A scheduler and a server, with leases that are soon over; and workers beside them."""

    def __init__(self, app: App, url: str, token: str, folder: Path) -> None:
        self.app = app
        self._environment = {**os.environ, "ROTA_URL": url, "ROTA_TOKEN": token}
        self._folder = folder
        self._count = 0
        self.processes: list[Process] = []

    async def start(self, language: str) -> Process:
        self._count += 1
        log = self._folder / f"{language}-{self._count}.log"
        process = Process(language, self._environment, log)
        self.processes.append(process)
        await process.says("registered")
        return process

    async def submit(self, task: str, **payload: Any) -> UUID:
        return (await self.app.submit(task, payload)).id

    async def is_in(self, id: UUID, state: str) -> Any:
        async def ask() -> Any:
            job = await self.app.jobs.get(id)
            return job if job.state == state else None

        return await eventually(ask, what=f"{state} of {id}")

    async def runs(self, id: UUID) -> Any:
        """When its handler has said something."""

        async def ask() -> Any:
            job = await self.app.jobs.get(id)
            return job if job.progress is not None else None

        return await eventually(ask, what=f"the start of {id}")


@pytest.fixture
async def stage(make_app: Callable[..., App], tmp_path: Path) -> AsyncIterator[Stage]:
    app = make_app(port=0, heartbeat=0.5)
    server = Server(app)
    node = Node(app, ["scheduler", "server"], server=server)
    async with node.running(), contextlib.AsyncExitStack() as stack:
        token = await LiveServer(app, server, stack).token("worker")
        stage = Stage(app, server.url, token, tmp_path)
        try:
            yield stage
        finally:
            for one in stage.processes:
                one.send(signal.SIGKILL)
                await asyncio.to_thread(one.process.wait)


@pytest.mark.parametrize("language", LANGUAGES)
async def test_it_runs_fails_reports_and_leaves(stage: Stage, language: str):
    worker = await stage.start(language)
    greeted = await stage.submit("greet", name="Ada")
    assert (await stage.is_in(greeted, "succeeded")).result == "Hello, Ada!"
    divided = await stage.submit("divide", a=1, b=0)
    error = (await stage.is_in(divided, "failed")).error
    assert error.type == "ZeroDivisionError"
    assert "worker." in error.traceback
    counted = await stage.submit("count", to=11)
    job = await stage.is_in(counted, "succeeded")
    assert (job.result, job.progress["done"]) == (11, 10)
    lines = [line.text async for line in stage.app.jobs.logs(counted)]
    assert lines == ["counting to 11"]
    worker.send(signal.SIGTERM)
    await worker.says("left, returned 0")
    assert await asyncio.to_thread(worker.process.wait, 30) == 0
    assert not any(node.remote for node in await stage.app.nodes.list())


@pytest.mark.parametrize("language", LANGUAGES)
async def test_it_passes_signs_of_life_on_and_says_what_its_tasks_take(
    stage: Stage, language: str, monkeypatch: pytest.MonkeyPatch
):
    named: set[UUID] = set()
    note_alive = RemoteStore.note_alive

    async def seen(store: RemoteStore, id: UUID, jobs: Any) -> None:
        named.update(job for job, _ in jobs)
        await note_alive(store, id, jobs)

    monkeypatch.setattr(RemoteStore, "note_alive", seen)
    await stage.start(language)
    with pytest.raises(InvalidArguments, match="'b': expected number, got string"):
        await stage.submit("divide", a=1, b="two")
    id = await stage.submit("count", to=10_000)
    await eventually(lambda: id in named, what="a sign of life")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_it_stops_what_is_cancelled(stage: Stage, language: str):
    worker = await stage.start(language)
    id = await stage.submit("count", to=10_000)
    await stage.runs(id)
    await stage.app.jobs.cancel(id)
    await stage.is_in(id, "cancelled")
    await worker.says("accepted cancelled count")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_what_a_killed_one_ran_is_run_by_another_in_another_language(
    stage: Stage, language: str
):
    victim = await stage.start(language)
    id = await stage.submit("count", to=30)
    first = await stage.runs(id)
    victim.send(signal.SIGKILL)
    heir = await stage.start(OTHER[language])
    job = await stage.is_in(id, "succeeded")
    assert (job.attempt, job.attempts[0].outcome) == (2, "lost")
    assert job.token > first.token
    await heir.says("accepted succeeded count")


@pytest.mark.parametrize("language", LANGUAGES)
async def test_one_that_slept_through_its_lease_is_not_believed(stage: Stage, language: str):
    sleeper = await stage.start(language)
    id = await stage.submit("count", to=20)
    first = await stage.runs(id)
    sleeper.send(signal.SIGSTOP)
    heir = await stage.start(OTHER[language])
    await heir.says("accepted succeeded count")
    job = await stage.is_in(id, "succeeded")
    sleeper.send(signal.SIGCONT)
    await sleeper.says("stale")
    assert await stage.app.jobs.get(id) == job
    assert job.token > first.token
    # It is somebody else now, and goes on.
    await eventually(lambda: sleeper.said().count("registered") >= 2, what="a new registration")
    heir.send(signal.SIGTERM)
    await heir.says("left")
    greeted = await stage.submit("greet", name="again")
    await stage.is_in(greeted, "succeeded")


async def test_a_server_that_is_killed_between_two_calls_loses_nothing(
    make_app: Callable[..., App], tmp_path: Path
):
    """The worker goes on with the next server at the same address."""
    app = make_app(port=0, heartbeat=2)
    server = Server(app)
    await server.start()
    async with contextlib.AsyncExitStack() as stack:
        token = await LiveServer(app, server, stack).token("worker")
        stage = Stage(app, server.url, token, tmp_path)
        try:
            worker = await stage.start("python")
            id = await stage.submit("count", to=20)
            await stage.runs(id)
            port = server.port
            await server.stop()
            await worker.says("no answer")
            server = Server(make_app(port=port))
            await server.start()
            assert (await stage.is_in(id, "succeeded")).attempt == 1
        finally:
            for one in stage.processes:
                one.send(signal.SIGKILL)
                await asyncio.to_thread(one.process.wait)
            await server.stop()
