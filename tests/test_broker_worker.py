"""The worker of examples/broker_worker as a real process: JavaScript by Redis, alive and killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from proof.services import Redis
from proof.waiting import eventually
from rota import App
from rota.node import Node
from rota.server.dispatch.relay import Relay
from tests.support.places import EXAMPLES

SECRET = "a secret of relays and workers that is long enough"


class Worker:
    def __init__(self, url: str, log: Path) -> None:
        node = shutil.which("node") or shutil.which("nodejs")
        if node is None:
            pytest.skip("no Node.js here: `make test` installs it, or apt-get install nodejs")
        environment = {**os.environ, "ROTA_DISPATCH": url, "ROTA_DISPATCH_SECRET": SECRET}
        self.log = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [node, str(EXAMPLES / "broker_worker" / "worker.mjs")],
                env=environment, stdout=file, stderr=file,
            )  # fmt: skip

    async def says(self, text: str) -> None:
        def ask() -> bool:
            said = self.log.read_text()
            assert self.process.poll() is None or text in said, said
            return text in said

        await eventually(ask, what=text)


class Stage:
    def __init__(self, app: App, redis: Redis, folder: Path) -> None:
        self.app, self.redis = app, redis
        self._folder = folder
        self.workers: list[Worker] = []

    async def start(self) -> Worker:
        log = self._folder / f"{len(self.workers)}.log"
        self.workers.append(Worker(self.redis.url, log))
        await self.workers[-1].says("registered")
        return self.workers[-1]

    async def submit(self, task: str, **payload: Any) -> UUID:
        return (await self.app.submit(task, payload)).id

    async def is_in(self, id: UUID, state: str) -> Any:
        async def ask() -> Any:
            job = await self.app.jobs.get(id)
            return job if job.state == state else None

        return await eventually(ask, what=f"{state} of {id}")

    async def runs(self, id: UUID) -> Any:
        async def ask() -> Any:
            job = await self.app.jobs.get(id)
            return job if job.progress is not None else None

        return await eventually(ask, what=f"the start of {id}")


@pytest.fixture
async def stage(make_app: Callable[..., App], tmp_path: Path) -> AsyncIterator[Stage]:
    if (missing := Redis.missing()) is not None:
        pytest.skip(missing)
    redis = Redis(tmp_path)
    redis.start()
    app = make_app(heartbeat=1, dispatch=redis.url, dispatch_secret=SECRET)
    stage = Stage(app, redis, tmp_path)
    try:
        async with Node(app, ["scheduler", "relay"], relay=Relay(app)).running():
            try:
                yield stage
            finally:
                for each in stage.workers:
                    each.process.kill()
                    await asyncio.to_thread(each.process.wait)
    finally:
        redis.stop()


async def test_it_does_what_it_can_and_leaves(stage: Stage):
    worker = await stage.start()
    assert (
        await stage.is_in(await stage.submit("greet", name="Ada"), "succeeded")
    ).result == "Hello, Ada!"
    counted = await stage.submit("count", to=11)
    job = await stage.is_in(counted, "succeeded")
    assert (job.result, job.progress["done"]) == (11, 10)
    assert [line.text async for line in stage.app.jobs.logs(counted)] == ["counting to 11"]
    cancelled = await stage.submit("count", to=10_000)
    await stage.runs(cancelled)
    await stage.app.jobs.cancel(cancelled)
    await stage.is_in(cancelled, "cancelled")
    worker.process.send_signal(signal.SIGTERM)
    await worker.says("left, returned 0")
    assert not any(node.remote for node in await stage.app.nodes.list())


async def test_redis_may_lose_everything_while_it_works(stage: Stage):
    await stage.start()
    running = await stage.submit("count", to=100)
    await stage.runs(running)
    stage.redis.wipe()
    greeted = [await stage.submit("greet", name=str(n)) for n in range(10)]
    for id in greeted:
        await stage.is_in(id, "succeeded")
    assert (await stage.is_in(running, "succeeded")).result == 100


async def test_what_a_killed_one_ran_is_run_by_another(stage: Stage):
    victim = await stage.start()
    id = await stage.submit("count", to=50)
    first = await stage.runs(id)
    victim.process.kill()
    heir = await stage.start()
    job = await stage.is_in(id, "succeeded")
    assert (job.attempt, job.attempts[0].outcome) == (2, "lost")
    assert job.token > first.token
    await heir.says("accepted succeeded count")
