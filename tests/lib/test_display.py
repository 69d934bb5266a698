"""Jobs and runs as people see them: texts, HTML for notebooks, bars in terminals: `rota.lib.display`."""

from __future__ import annotations

import asyncio
import json
import math
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rota import App, Context, Fatal, JobHandle, RunHandle
from rota.lib.display import Bar, amount, as_html, brief, progress_bar
from rota.node import Node
from rota.testing import Sandbox
from tests.support.places import SUPPORT

HOSTILE = "<script>alert('x')</script>\x1b]0;title\x07\u202e\n</div>"


class Tags(HTMLParser):
    """The tags of a piece of HTML, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


OURS = {"div", "b", "span", "br", "progress", "table", "tr", "th", "td"}


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        ({"done": 3, "total": 10, "message": "halfway"}, Bar("greet: halfway", 3.0, 10.0)),
        ({"done": 3, "total": None, "message": ""}, Bar("greet", 3.0, None)),
        ({"done": 3, "total": 0}, Bar("greet", 3.0, None)),
        ({"done": -1, "total": -5}, Bar("greet", 0.0, None)),
        ({"done": "many", "total": True}, Bar("greet", 0.0, None)),
        ({"done": math.inf, "total": math.nan}, Bar("greet", 0.0, None)),
        ("half", Bar("greet", 0.0, None)),
        ([1, 2], Bar("greet", 0.0, None)),
        (None, Bar("greet", 0.0, None)),
    ],
)
def test_whatever_a_handler_reports_is_a_bar(progress: Any, expected: Bar) -> None:
    assert progress_bar("greet", progress) == expected


def test_how_far_it_has_come_is_said() -> None:
    assert amount(Bar("", 3, 10)) == "3 of 10"
    assert amount(Bar("", 3, None)) == "3"
    assert amount(Bar("", 0, None)) == ""
    assert len(brief("x" * 10_000)) < 400


def test_html_holds_nothing_but_our_own_tags() -> None:
    bad = f"{HOSTILE}\ud800"
    shown = as_html(bad, bad, Bar(bad, 1, 2), {bad: bad, "value": [bad]})
    parsed = Tags(shown)
    assert set(parsed.tags) <= OURS
    assert "alert" in parsed.text
    assert shown.isprintable()  # a lone surrogate would end the kernel's message


async def test_handles_say_what_was_seen_last(sandbox: Sandbox) -> None:
    app = sandbox.app

    @app.task(queue="mail")
    async def greet(name: str, times: int = 1) -> str:
        return f"Hello, {name}!"

    @app.task
    def broken() -> None:
        raise ValueError(HOSTILE)

    assert repr(greet) == "<Task greet(name, times): loop runner, queue mail>"
    job = await greet.submit(HOSTILE)
    assert repr(job) == f"<JobHandle {job.id}>"
    assert "submitted" in Tags(job._repr_html_()).text
    assert repr(await job.status()) == f"<Job {job.id}: greet, ready>"
    assert repr(job) == f"<JobHandle {job.id}: greet, ready>"
    await sandbox.run_due()
    assert (await job.follow()).state == "succeeded"
    assert repr(job) == f"<JobHandle {job.id}: greet, succeeded>"
    parsed = Tags(job._repr_html_())
    assert set(parsed.tags) <= OURS
    assert "Hello, <script>" in parsed.text

    failed = await broken.options(max_attempts=1).submit()
    await sandbox.run_due()
    await failed.wait()
    assert re.fullmatch(r"<JobHandle \S+: broken, failed, ValueError: <script>.*>", repr(failed))
    assert repr(failed).isprintable()
    assert set(Tags(failed._repr_html_()).tags) <= OURS

    flow = app.workflow("greetings")
    flow.step(greet, "Ada")
    run = await flow.start()
    assert repr(run) == f"<RunHandle {run.id}>"
    assert "started" in Tags(run._repr_html_()).text
    states = []

    async def watch() -> None:
        states.extend([(each.state, each.ended_steps) async for each in run.watch(every=0.01)])

    watching = asyncio.create_task(watch())
    await sandbox.run_due()
    await watching
    assert states[-1] == ("succeeded", 1)
    assert repr(run) == f"<RunHandle {run.id}: greetings, succeeded, 1 of 1 steps>"
    assert repr(await run.status()).startswith(f"<Run {run.id}: greetings")
    assert "<progress max='1' value='1'>" in run._repr_html_()
    assert (await run.follow()).state == "succeeded"


async def test_following_ends_in_time(sandbox: Sandbox) -> None:
    @sandbox.app.task
    async def greet() -> None: ...

    job = await greet.submit()
    await job.status()
    with pytest.raises(TimeoutError, match=r"of task 'greet' is still ready after 0\.1 s"):
        await job.follow(0.1, every=0.01)
    flow = sandbox.app.workflow("greetings")
    flow.step(greet)
    run = await flow.start()
    with pytest.raises(TimeoutError, match=r"run .* has not ended after 0\.1 s"):
        await run.follow(0.1, every=0.01)


COUNT = """
from rota import App
app = App()

job = app.sync.submit("count", {"up_to": 40})
print(job.follow_sync(100).state)
app.sync.close()
"""


def environment_of(app: App) -> dict[str, str]:
    url, schema = app.settings.database_url or "", app.settings.schema
    return {**os.environ, "ROTA_DATABASE_URL": url, "ROTA_SCHEMA": schema, "TERM": "xterm",
            "COLUMNS": "120"}  # fmt: skip


def read_all(terminal: int) -> str:
    said = b""
    while True:
        try:
            piece = os.read(terminal, 65_536)
        except OSError:  # the other end is closed
            return said.decode(errors="replace")
        if not piece:
            return said.decode(errors="replace")
        said += piece


async def in_terminal(command: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Run a program whose three streams are a terminal."""
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    try:
        said = await asyncio.to_thread(read_all, ours)
        return await process.wait(), said
    finally:
        os.close(ours)


async def piped_output(
    command: list[str], environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        subprocess.run, command, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
async def counting(make_app: Callable[..., App]) -> App:
    """An app with a task that reports progress, hostile words included."""
    app = make_app()

    @app.task
    async def count(ctx: Context, up_to: int) -> int:
        if up_to < 0:
            raise Fatal("there is no way down")
        for number in range(up_to):
            ctx.progress(number + 1, up_to, HOSTILE[:30])
            await asyncio.sleep(0.05)
        return up_to

    return app


async def test_a_terminal_shows_a_bar(counting: App) -> None:
    async with Node(counting).running():
        code, said = await in_terminal([sys.executable, "-c", COUNT], environment_of(counting))
    assert code == 0, said
    assert "succeeded" in said
    assert "count, running: <script>" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said)
    assert re.search(r"\d+%", said)
    assert "\x1b]0;title" not in said


async def test_a_pipe_gets_the_result_and_nothing_else(counting: App) -> None:
    async with Node(counting).running():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", COUNT, env=environment_of(counting),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        said = await process.communicate()
    assert said == (b"succeeded\n", b"")


async def test_the_command_shows_bars_and_lines(counting: App) -> None:
    rota = [str(Path(sys.executable).with_name("rota")), "jobs", "watch"]
    jobs = [await counting.submit("count", {"up_to": each}) for each in (3, 20)]
    ids = [str(job.id) for job in jobs]
    environment = environment_of(counting)
    async with Node(counting).running():
        code, said = await in_terminal([*rota, *ids], environment)
        assert (code, "count, succeeded" in said, "100%" in said) == (0, True, True), said
        piped = await piped_output([*rota, *ids], environment)
        assert sorted(piped.stdout.splitlines()) == sorted(f"{id} count, succeeded" for id in ids)
        failed = await counting.submit("count", {"up_to": -1})
        await failed.wait()
        wrong = await piped_output([*rota, str(failed.id), ids[0], "--json"], environment)
    assert wrong.returncode == 1
    assert "JobFailed" in wrong.stderr
    assert sorted(f'"state":"{state}"' in wrong.stdout for state in ("failed", "succeeded"))


async def test_the_command_watches_a_run(sandbox: Sandbox) -> None:
    app = sandbox.app

    @app.task
    async def greet() -> None: ...

    flow = app.workflow("greetings")
    flow.step(greet)
    run = await flow.start()
    await sandbox.run_due()
    rota = [str(Path(sys.executable).with_name("rota")), "runs", "watch", str(run.id)]
    piped = await piped_output(rota, environment_of(app))
    assert piped.stdout == f"{run.id} greetings, succeeded, 1 of 1 steps\n", piped.stderr
    assert piped.returncode == 0


NOTEBOOK = [
    """
from rota import App
app = App()
job = await app.submit("count", {"up_to": 60})
job
""",
    "ended = await job.follow(100, every=0.05)",
    "job",
    "ended",
    "await app.close()",
]


async def test_a_notebook_shows_html_that_is_replaced(counting: App, tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    # In a process of its own: the client of notebooks has warnings, and an event loop.
    script = tmp_path / "notebook.py"
    script.write_text(
        "import json, nbformat, nbclient\n"
        "class Client(nbclient.NotebookClient):\n"
        "    updates = 0\n"
        "    def process_message(self, msg, cell, index):\n"
        "        type(self).updates += msg['msg_type'] == 'update_display_data'\n"
        "        return super().process_message(msg, cell, index)\n"
        f"cells = [nbformat.v4.new_code_cell(text) for text in {NOTEBOOK!r}]\n"
        "book = nbformat.v4.new_notebook(cells=cells)\n"
        "Client(book, timeout=100, kernel_name='python3').execute()\n"
        "print(json.dumps([[cell.outputs for cell in book.cells], Client.updates]))\n"
    )
    async with Node(counting).running():
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, str(script)], capture_output=True, text=True, timeout=170,
            env={**environment_of(counting), "IPYTHONDIR": str(tmp_path), "PYTHONPATH": str(SUPPORT)},
            cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outputs, updates = json.loads(done.stdout.splitlines()[-1])
    first, follow, again, job, _ = [
        "".join(output["data"]["text/html"] for output in each) for each in outputs
    ]
    assert "submitted" in first
    assert updates > 1
    assert "succeeded" in follow
    assert "<progress max='60' value='60'>" in follow
    assert again == job == follow
    assert set(Tags(follow).tags) <= OURS


def test_handles_cost_nothing_more_until_they_are_looked_at() -> None:
    assert JobHandle.__slots__.count("_seen") == 1
    assert not hasattr(JobHandle(None, None), "_seen")  # type: ignore[arg-type]
    assert not hasattr(RunHandle(None, None), "_seen")  # type: ignore[arg-type]
