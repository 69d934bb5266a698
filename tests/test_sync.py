"""Synchronous code: every verb is there, in threads, after forks, in notebooks and beside a loop."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from rota import App, EventLoopRunning, JobHandle, RunHandle, Task, Workflow, chain
from rota.calls import Part, Started
from rota.durable.function import BoundFunction, DurableFunction
from rota.lib.sync_bridge import sync_bridge
from rota.node import Node
from rota.sync import SyncApp
from rota.task import BoundTask
from rota.workflow import BoundWorkflow
from tests.support.places import ROOT, SUPPORT

sys.path.append(str(ROOT / "docs"))
import generate_sync

HANDLES = [
    JobHandle, RunHandle, Started, BoundTask, Task, Workflow, BoundWorkflow, DurableFunction,
    BoundFunction, Part,
]  # fmt: skip


def test_the_shell_is_what_the_coroutines_make_of_it() -> None:
    text = generate_sync.PAGE.read_text("utf-8")
    assert text == generate_sync.formatted(), "run `make reference`"


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def parameters(function: Any) -> list[tuple[str, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in found if each.name != "self"]


def test_every_verb_of_an_app_exists_for_synchronous_code(app: App) -> None:
    nouns = {
        name for name, value in vars(app).items()
        if any(True for _ in generate_sync.public(type(value))) and not name.startswith("_")
    } - {"connector", "rota"}  # fmt: skip
    assert nouns == set(generate_sync.NOUNS)
    shell = app.sync
    assert isinstance(shell, SyncApp)
    for owner, own in ((app, shell), *((getattr(app, n), getattr(shell, n)) for n in nouns)):
        for name, function in generate_sync.public(type(owner)):
            assert parameters(getattr(own, name)) == parameters(function)[0:], (own, name)


@pytest.mark.parametrize("handle", HANDLES)
def test_every_verb_of_a_handle_exists_for_synchronous_code(handle: type) -> None:
    verbs = [
        name for name, each in inspect.getmembers(handle)
        if inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each)
    ]  # fmt: skip
    for name in verbs:
        if not name.startswith("_") and name != "call":
            twin = getattr(handle, f"{name}_sync")
            assert parameters(twin) == parameters(getattr(handle, name)), (handle, name)


async def test_the_verbs_do_what_the_coroutines_do(make_app: Callable[..., App]) -> None:
    app = make_app()

    @app.task
    async def greet(who: str) -> str:
        return f"Hello, {who}!"

    def use() -> None:
        sync = app.sync
        job = greet.submit_sync("Ada")
        assert [each.state for each in job.watch_sync()][-1] == "succeeded"
        assert job.wait_sync(60).state == "succeeded"
        assert sync.jobs.get(job.id).result == "Hello, Ada!"
        assert sync.jobs.list(task="greet")[0].id == job.id
        assert sync.submit("greet", {"who": "Alan"}).result_sync(60) == "Hello, Alan!"
        assert [each.result_sync(60) for each in greet.submit_many_sync(["a"])] == ["Hello, a!"]
        assert sync.schedule("nightly", greet, cron="@daily", payload={"who": "x"}) == "created"
        assert [each.name for each in sync.schedules.list()] == ["nightly"]
        run = sync.map(greet, over=["a", "b"])
        assert run.wait_sync(60).state == "succeeded"
        assert len(run.members_sync("members")) == 2
        assert chain(greet.s("a"), greet.s()).start_sync().result_sync(60) == "Hello, Hello, a!!"
        later = greet.options(delay=3600).submit_sync("late")
        assert later.cancel_sync() == "cancelled"
        assert [queue.name for queue in sync.queues.list()] == ["default"]

    async with Node(app).running():
        await asyncio.to_thread(use)


async def test_a_running_loop_is_told_what_to_do_instead(app: App) -> None:
    with pytest.raises(
        EventLoopRunning,
        match=r"app\.sync\.jobs\.list\(\) would block .* `await app\.jobs\.list\(\)`",
    ):
        app.sync.jobs.list()
    with pytest.raises(EventLoopRunning, match=r"app\.sync\.submit\(\).*`await app\.submit\(\)`"):
        app.sync.submit("greet", {})


def test_32_threads_submit_and_read_at_the_same_time(sync_app: App) -> None:
    @sync_app.task
    async def greet(number: int) -> None: ...

    begin = threading.Barrier(32)

    def use(number: int) -> list[Any]:
        begin.wait(60)
        ids = [greet.submit_sync(number).id for _ in range(5)]
        assert all(sync_app.sync.jobs.get(id).task == "greet" for id in ids)
        return ids

    with ThreadPoolExecutor(32) as threads:
        made = [id for ids in threads.map(use, range(32)) for id in ids]
    assert len({*made}) == 160
    assert len(sync_app.sync.jobs.list(task="greet", limit=1000)) == 160


@pytest.fixture
def sync_app(database_url: str, schemas: Any) -> Iterator[App]:
    schema = asyncio.run(schemas.take())
    app = App(database_url=database_url, schema=schema)
    yield app
    app.sync.close()
    schemas.give_back(schema)


@pytest.fixture
def environment(sync_app: App) -> dict[str, str]:
    settings = sync_app.settings
    return {
        **os.environ, "ROTA_DATABASE_URL": settings.database_url or "", "ROTA_SCHEMA": settings.schema,
        "PYTHONPATH": str(SUPPORT),
    }  # fmt: skip


def test_gunicorn_forks_after_the_parent_has_submitted(
    sync_app: App, environment: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("gunicorn")
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "--preload", "--workers", "4", "--bind", f"127.0.0.1:{port}",
         "--worker-tmp-dir", str(tmp_path), "wsgi_app:application"],
        env={**environment, "HOME": str(tmp_path)}, cwd=SUPPORT,
    )  # fmt: skip
    try:
        transport = httpx.HTTPTransport(retries=10)
        url = f"http://127.0.0.1:{port}"

        def ask(number: int) -> dict[str, Any]:
            # A connection of its own: kept ones would all lead to one worker.
            with httpx.Client(transport=httpx.HTTPTransport(retries=10), timeout=60) as client:
                answer: dict[str, Any] = client.get(f"{url}/{number}").raise_for_status().json()
                return answer

        with httpx.Client(transport=transport, timeout=60) as client:
            client.get(f"{url}/first").raise_for_status()
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(ask, range(40)))
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    assert len({each["pid"] for each in answers}) > 1
    ids = [id for each in answers for id in each["ids"]]
    assert len({*ids}) == 120
    assert {each["state"] for each in answers} == {"ready"}
    assert {each["before"] for each in answers} == {answers[0]["before"]}
    # Those of the parent and of the first request, too: none is lost, and none is there twice.
    assert len(sync_app.sync.jobs.list(task="greet", limit=1000)) == 1 + 3 * 41


NOTEBOOK = [
    """
from rota import App, EventLoopRunning
app = App()

@app.task
async def greet(name: str) -> str:
    return f"Hello, {name}!"
""",
    "job = await greet.submit('notebook')\n(await job.status()).state",
    """
try:
    app.sync.jobs.list()
except EventLoopRunning as error:
    print(error)
""",
    """
import asyncio
print(len(await asyncio.to_thread(app.sync.jobs.list)))
await app.close()
""",
]


def test_a_notebook_awaits_and_is_told_so(environment: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    # In a process of its own: the client of notebooks has warnings, and an event loop.
    script = tmp_path / "notebook.py"
    script.write_text(
        "import json, sys, nbformat, nbclient\n"
        f"cells = [nbformat.v4.new_code_cell(text) for text in {NOTEBOOK!r}]\n"
        "book = nbformat.v4.new_notebook(cells=cells)\n"
        "nbclient.NotebookClient(book, timeout=60, kernel_name='python3').execute()\n"
        "print(json.dumps([cell.outputs for cell in book.cells]))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], env={**environment, "IPYTHONDIR": str(tmp_path)},
        capture_output=True, text=True, timeout=110, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "'ready'" in done.stdout
    assert "use `await app.jobs.list()`" in done.stdout
    assert "1\\n" in done.stdout


def test_a_call_that_is_interrupted_leaves_nothing_behind() -> None:
    """Ctrl-C while `result_sync` waits: the coroutine must not go on polling for good."""
    cancelled = threading.Event()
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)

    async def wait() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    try:
        with pytest.raises(KeyboardInterrupt):
            sync_bridge.call(wait, "wait")
        assert cancelled.wait(60)
    finally:
        signal.signal(signal.SIGUSR1, before)


AT_THE_END = """
import sys
from rota import App

app = App()

@app.task
async def greet() -> None: ...

class Late:
    def __del__(self) -> None:
        try:
            greet.submit_sync()
        except RuntimeError as error:
            print(error, flush=True)

greet.submit_sync()
Late.last = sys.modules["late"] = Late()  # deleted when the process's threads have been stopped
"""


def test_a_call_at_the_end_of_the_interpreter_is_refused(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", AT_THE_END], env=environment, timeout=120,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Rota can't be called any more: the interpreter is ending")
