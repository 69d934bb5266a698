"""The documentation is true: its Python and SQL run, its commands exist, its examples work.

Every ```python and ```sql block of README.md and docs/ is run, one after the other per page, as in
an interactive session (`await` is allowed) on a private schema, while whatever is due is executed.
`<!-- no-run: reason -->` before a block says why one isn't. Files of examples/ that a page includes
are run by tests of their own. Blocks with curl are run against a live server, unless the page has a
test of its own: `<!-- run-by: tests/test_fastapi_shop.py -->`. What a tab "Sync" shows is run in a
thread, with the names that were there before it; what comes after it goes on from the tab "Async".
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import functools
import importlib.util
import inspect
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NamedTuple
from uuid import uuid4

import asyncpg
import msgspec
import pytest
import typer

import rota
import rota.testing
from rota import App, Settings
from rota.cli import cli
from rota.node import Node
from rota.server.serving import Server
from rota.store.sql import render
from tests.support.places import EXAMPLES, ROOT, ROTA, SUPPORT
from tests.support.sandboxes import isolated

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

# What a handler in the documentation can only raise by mistake.
MISTAKES = {
    "AttributeError",
    "ImportError",
    "NameError",
    "TypeError",
    "rota.errors.InvalidArguments",
}

_FENCE = re.compile(r"^( *)```(\w+)")
_TAB = re.compile(r'^=== "(.+)"$')
_RUN_BY = re.compile(r"<!-- run-by: (\S+) -->")  # a test of its own
_NO_RUN = re.compile(r"<!-- no-run: .+ -->")


class Block(NamedTuple):
    language: str
    line: int
    text: str
    tab: str | None = None


def blocks_of(page: Path, *languages: str) -> list[Block]:
    lines = iter(enumerate(page.read_text("utf-8").splitlines(), 1))
    found: list[Block] = []
    before = ""
    tab = None
    for number, line in lines:
        if title := _TAB.match(line):
            tab = title[1]
        elif line and not line.startswith("    "):
            tab = None
        if opening := _FENCE.match(line):
            closing = f"{opening[1]}```"
            body = [inner for _, inner in iter_until(lines, closing)]
            text = textwrap.dedent("\n".join(body))
            if opening[2] in languages and not _NO_RUN.search(before):
                found.append(Block(opening[2], number, text, tab))
        if line.strip():
            before = line
    return found


def iter_until(lines: Iterator[tuple[int, str]], closing: str) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        if line.rstrip() == closing:
            return
        yield number, line


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture
def environment(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", database_url)


@pytest.fixture
def page(
    request: pytest.FixtureRequest, example_environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:  # fmt: skip
    """A page, and the server that it says it needs: `<!-- run-with: server -->`."""
    page: Path = request.param
    if "<!-- run-with: server -->" not in page.read_text("utf-8"):
        yield page
        return
    environment = {**example_environment, "PYTHONPATH": str(SUPPORT)}
    with dev(environment, "docs_app:app") as (up, _):
        shown = run(environment, ROTA, "tokens", "create", "docs", "--role", "operator", "--json")
        monkeypatch.setenv("ROTA_URL", up["server"])
        monkeypatch.setenv("ROTA_TOKEN", json.loads(shown)["token"])
        yield page


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("page", PAGES, ids=name_of, indirect=True)
async def test_what_a_page_shows_runs(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    async with contextlib.AsyncExitStack() as opened:
        app: App | None = None
        for block in blocks_of(page, "python", "sql"):
            if block.language == "sql":
                assert app is not None, f"{name_of(page)}:{block.line}: SQL before any app"
                await run_sql(block, app)
                continue
            if block.tab == "Sync":  # the same as the tab before it, where no event loop runs
                await asyncio.to_thread(run_sync, page, block, dict(names))
                continue
            for statement in statements_of(page, block):
                await run_python(statement, names)
                if isinstance(latest := names.get("app"), App) and latest is not app:
                    await opened.aclose()  # of the app before
                    app = latest
                    # A page about testing takes the app into sandboxes of its own, and runs what is due.
                    by_itself = "isolated(" in page.read_text("utf-8")
                    await opened.enter_async_context(executing(app, by_itself))


def statements_of(page: Path, block: Block) -> Iterator[CodeType]:
    source = "\n" * block.line + block.text  # so that a traceback shows the page's own line
    for node in ast.parse(source, name_of(page)).body:
        module = ast.Module([node], [])
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        yield compile(module, name_of(page), "exec", flags, dont_inherit=True)


async def run_python(statement: CodeType, names: dict[str, Any]) -> None:
    result = eval(statement, names)
    if inspect.isawaitable(result):
        async with asyncio.timeout(60):
            await result


def run_sync(page: Path, block: Block, names: dict[str, Any]) -> None:
    for statement in statements_of(page, block):
        assert not inspect.isawaitable(eval(statement, names)), f"{name_of(page)}:{block.line}"


def test_what_is_shown_for_asyncio_is_shown_without() -> None:
    tabbed = [page for page in PAGES if '=== "' in page.read_text("utf-8")]
    assert len(tabbed) >= 10
    for page in tabbed:
        titles = [_TAB.match(line) for line in page.read_text("utf-8").splitlines()]
        found = [title[1] for title in titles if title]
        assert found == ["Async", "Sync"] * (len(found) // 2), name_of(page)
        without = [block for block in blocks_of(page, "python") if block.tab == "Sync"]
        assert not any("await " in block.text for block in without), name_of(page)


async def run_sql(block: Block, app: App) -> None:
    connection = await asyncpg.connect(app.settings.database_url)
    try:
        await connection.execute(render(block.text, app.settings.schema))
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def executing(app: App, by_itself: bool) -> AsyncIterator[None]:
    """The app on a private schema, where what is due is run at once."""
    async with isolated(app) as sandbox:
        enough = asyncio.Event()
        if by_itself:
            enough.set()
        running = asyncio.create_task(keep_running(sandbox, enough))
        try:
            yield
        finally:
            enough.set()  # not cancelled: in the middle of a job that would be another story
            await running
        await sandbox.run_due()
        for job in await sandbox.jobs(limit=1000):
            wrong = [a.error for a in job.attempts if a.error and a.error.type in MISTAKES]
            assert not wrong, f"{job.task}: {wrong[0].traceback or wrong[0].message}"


async def keep_running(sandbox: rota.testing.Sandbox, enough: asyncio.Event) -> None:
    while not enough.is_set():
        await sandbox.run_due()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await enough.wait()


# -- the command line


def commands_of(page: Path) -> list[str]:
    shown = [
        line for block in blocks_of(page, "bash", "console") for line in block.text.split("\n")
    ]
    commands = [re.split(r" [#|&>]", line.removeprefix("$ "))[0].strip() for line in shown]
    return [command for command in commands if re.match(r"(\S*/)?rota\b", command)]


@functools.cache
def command_tree() -> Any:
    return typer.main.get_command(cli)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_commands_that_a_page_shows_exist(page: Path) -> None:
    for command in commands_of(page):
        arguments = shlex.split(command)[1:]
        current: Any = command_tree()
        while arguments and arguments[0] in getattr(current, "commands", {}):
            current = current.commands[arguments.pop(0)]
        try:
            current.make_context("rota", arguments)  # parses, and runs nothing
        except typer.Exit:
            pass  # --help, --version
        except Exception as error:  # noqa: BLE001 - whatever it is, the page is wrong
            pytest.fail(f"{name_of(page)}: `{command}`: {error!r}")


# -- curl


def curl_script_of(page: Path) -> str:
    """The page's blocks that show curl, as one shell script. In a console, `$ ` is the prompt."""
    lines: list[str] = []
    if _RUN_BY.search(page.read_text("utf-8")):
        return ""
    for block in blocks_of(page, "bash", "console", "sh"):
        if "curl" not in block.text:
            continue
        if block.language != "console":
            lines += block.text.split("\n")
            continue
        goes_on = False
        for line in block.text.split("\n"):
            if line.startswith("$ ") or goes_on:
                lines.append(line.removeprefix("$ "))
                goes_on = line.endswith("\\")
    return "\n".join(lines)


_STRICT = """set -euo pipefail
curl() { echo "+ curl $*" >&2; command curl --fail-with-body --silent --show-error "$@"; echo; }
"""


@pytest.mark.parametrize("page", [page for page in PAGES if curl_script_of(page)], ids=name_of)
async def test_the_curl_of_a_page_works(page: Path, make_app: Callable[..., App]) -> None:
    app = make_app(port=0, heartbeat=40)  # a worker over HTTP must outlive a slow shell

    @app.task(name="email_send")
    async def email_send(**payload: Any) -> str:
        return "sent"

    server = Server(app)
    node = Node(app, ["scheduler", "worker", "server"], server=server)
    async with node.running():
        script = curl_script_of(page).replace("http://127.0.0.1:8400", server.url)
        settings = app.settings
        shell = await asyncio.create_subprocess_exec(
            "bash", "-c", _STRICT + script,
            env={**os.environ, "ROTA_DATABASE_URL": settings.database_url or "",
                 "ROTA_SCHEMA": settings.schema,
                 "PATH": f"{ROTA.parent}:{os.environ['PATH']}"},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        told, _ = await shell.communicate()
    assert shell.returncode == 0, f"{name_of(page)}:\n{told.decode()}"
    assert b"+ curl" in told


# -- what is made from the code


@functools.cache
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_settings_table_has_every_setting_and_no_other() -> None:
    generate = generator()
    fields = {field.name for field in msgspec.structs.fields(Settings)}
    assert set(generate.SETTINGS) == fields
    assert all(f"`ROTA_{name.upper()}`" in generate.settings_table() for name in fields)


def test_the_command_line_and_the_errors_are_generated() -> None:
    generate = generator()
    assert "### rota jobs explain" in generate.cli_reference()
    assert "KeyConflict" in generate.errors_tree()


@pytest.mark.parametrize("page", generator().pages(), ids=name_of)
def test_the_reference_says_what_the_code_says(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text == generator().on_page_markdown(text), "run `make reference`"


def test_the_python_reference_has_every_public_name() -> None:
    text = generator().python_reference()
    errors = {
        name for name in rota.__all__
        if isinstance(getattr(rota, name), type) and issubclass(getattr(rota, name), BaseException)
    }  # fmt: skip
    for name in (
        {*rota.__all__} - errors - {"CONTEXT", "INJECTED", "Injected", "Settings", "__version__"}
    ):
        assert f"\n### {name}\n" in text, name
    for verb in (
        "app.cron",
        "app.schedule",
        "app.jobs.list",
        "client.jobs.get",
        "client.events.follow",
    ):
        assert f"\n#### {verb}\n" in text, verb


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"


# -- the examples


def test_the_readme_shows_the_quickstart() -> None:
    shown = (ROOT / "README.md").read_text("utf-8")
    assert (EXAMPLES / "quickstart.py").read_text("utf-8") in shown


@pytest.fixture
async def example_environment(database_url: str) -> AsyncIterator[dict[str, str]]:
    schema = f"rota_docs_{uuid4().hex[:12]}"
    yield {**os.environ, "ROTA_DATABASE_URL": database_url, "ROTA_SCHEMA": schema,
           "ROTA_PROCESSES": "1", "PYTHONWARNINGS": "error::ResourceWarning"}  # fmt: skip
    connection = await asyncpg.connect(database_url)
    await connection.execute(f"drop schema if exists {schema} cascade")
    await connection.close()


def run(environment: dict[str, str], *command: str | Path) -> str:
    done = subprocess.run(
        command, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def dev(
    environment: dict[str, str], reference: str
) -> Iterator[tuple[dict[str, Any], Iterator[dict[str, Any]]]]:
    """Run `rota dev`: give its event "up" and those that follow. Ctrl-C ends it."""
    process = subprocess.Popen(
        [ROTA, "dev", reference, "--json"], cwd=EXAMPLES, env=environment,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        events = (json.loads(line) for line in process.stdout)
        # A job may end before the server, which takes its time, is up as well.
        yield next(event for event in events if event["event"] == "up"), events
    finally:
        process.send_signal(signal.SIGINT)
        with process.stdout:
            process.stdout.read()
        assert process.wait(timeout=60) == 0


def test_the_quickstart_greets(example_environment: dict[str, str]) -> None:
    with dev(example_environment, "quickstart:app"):
        assert run(example_environment, sys.executable, "quickstart.py") == "Hello, world!\n"


def test_a_job_in_a_rolled_back_transaction_never_was(example_environment: dict[str, str]) -> None:
    shown = run(example_environment, sys.executable, "transactional.py")
    assert "order 1 is confirmed" in shown
    assert "None is left of order 2" in shown


def test_a_fencing_token_guards_a_table(example_environment: dict[str, str]) -> None:
    shown = run(example_environment, sys.executable, "fencing.py")
    assert "is refused" in shown
    assert "the teapot costs 30" in shown


def test_every_example_is_run() -> None:
    pages = [Path(__file__), *(Path(__file__).parent / "integrations").glob("test_*.py")]
    texts = "".join(page.read_text("utf-8") for page in pages)
    tested = set(re.findall(r'"(?:\w+/)*(\w+\.py)"', texts))
    assert {path.name for path in EXAMPLES.glob("*.py")} <= tested


@pytest.mark.proof
def test_the_shop_opens_and_serves_customers(example_environment: dict[str, str]) -> None:
    run(example_environment, sys.executable, "-m", "shop.demo")
    with dev(example_environment, "shop.demo:app") as (_, events):
        served: set[str] = set()
        for event in events:
            assert event["outcome"] != "crashed"
            if event["outcome"] == "succeeded":
                served.add(event["task"])
            if {"customers", "take_payment"} <= served:
                break


@pytest.mark.usefixtures("environment")
async def test_the_shop_does_its_work(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from shop import app as shop
    from shop import demo, outside
    from shop.model import Order

    outside.random.seed(7)
    monkeypatch.setattr(shop, "PICTURES", tmp_path)
    monkeypatch.setattr(outside.random, "uniform", lambda low, high: 0.0)
    settings = shop.app.settings.replace(database_url=database_url)
    async with shop.app.using(settings), isolated(shop.app) as sandbox:
        await demo.make_tables()
        order = {"id": 7, "article": "teapot", "price": "19.90", "email": "a@example.org"}
        await shop.app.submit("take_payment", {"order": order})
        await shop.app.submit("refund", {"order_id": uuid4().int % 10**9, "amount": "19.90"})
        await shop.app.submit("resize", {"article": "teapot", "width": 80})
        await shop.app.submit("restock", {"article": "samovar"})
        await shop.app.submit("text_courier", {"order_id": 7, "phone": "+44"})
        await shop.app.submit("customers")
        orders = [
            Order(id=number, article=article, price=Decimal("19.90"), email="a@example.org")
            for number, article in enumerate(("teapot", "teapot", "samovar", "teapot"), 101)
        ]
        runs = [await shop.fulfil.start(order) for order in orders]
        for number, payload in ((101, True), (102, False), (103, True)):
            await shop.app.send("approved", key=str(number), payload=payload)
        await demo.plan_stock_report()
        for _ in range(8):
            await sandbox.run_due()
            await sandbox.advance(minutes=1)
        jobs = await sandbox.jobs(limit=1000)
        assert await runs[0].result(1) in [
            f"all 2 parcels arrive within {days} days" for days in range(1, 6)
        ]
        assert await runs[1].result(1) == "refunded: the office said no"
        assert "refunded: call 'restock' failed" in await runs[2].result(1)
        assert (await runs[3].status()).status == "waits for approval"

    ended = {(job.task, job.state) for job in jobs}
    for task in ("take_payment", "refund", "resize", "restock", "text_courier", "confirm"):
        assert (task, "succeeded") in ended
    assert {job.error.type for job in jobs if job.state == "failed"} == {"rota.errors.Fatal"}
    assert ("report_stock", "scheduled") in ended
    assert is_png(tmp_path / "teapot-80.png")


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")
