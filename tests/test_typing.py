"""What a user's type checker sees: the installed wheel, with mypy and pyright in their strict modes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.places import ROOT

pytest.importorskip("mypy")


PROJECT = """
from dataclasses import dataclass
from typing import Any

from rota import CONTEXT, App, Context, JobHandle, SyncContext, Task

app = App()


@dataclass
class Receipt:
    number: int


@app.task
async def greet(name: str, times: int = 1) -> str:
    return f"Hello, {name}!" * times


@app.task(queue="images", timeout=30)
def resize(path: str, width: int) -> list[int]:
    return [width]


@app.task
async def refund(ctx: Context, order_id: int) -> Receipt:
    return Receipt(order_id)


@app.task(queue="slow")
def count(ctx: SyncContext, up_to: int) -> None:
    return None


@app.task
async def pay(order_id: int, ctx: Context = CONTEXT) -> bool:
    return True


@app.task
async def keep(document: Any, version: int) -> None: ...


@app.cron("@daily")
async def nightly() -> int:
    return 1


@app.cron("@daily", name="again")
@app.task
async def twice() -> float:
    return 1.0
"""

RIGHT = """
from typing import Any

from collections.abc import AsyncGenerator, Generator

from rota import Context, Job, JobHandle, SyncContext, Task, chain, chord, group
from rota.model import JobSummary
from rota.client import Accepted, AsyncClient, Client
from project import Receipt, app, count, greet, keep, nightly, pay, refund, resize, twice



async def use(fake: Context, plain: SyncContext) -> None:
    text: str = await (await greet.submit("Ada", times=2)).result()
    widths: list[int] = resize.submit_sync("a.png", width=2).result_sync()
    receipt: Receipt = await (await refund.options(delay=5).submit(7)).result(timeout=1)
    nothing: JobHandle[None] = await count.submit(3)
    paid: bool = await (await pay.submit(1)).result()
    number: int = await (await nightly.submit()).result()
    fraction: float = await (await twice.submit()).result()
    several: list[JobHandle[str]] = await greet.submit_many(["Ada", "Alan"])
    later: list[JobHandle[list[int]]] = await resize.options(delay=1).submit_many([("a", 1)])
    whatever: Any = await (await app.submit("elsewhere", {"a": 1})).result()
    job: JobHandle[Receipt] = refund.options(key="k").submit_sync(order_id=7)
    described: tuple[str, ...] = job.warnings
    await keep.submit({"any": "thing"}, 3)

    directly: str = await greet("Ada")
    plainly: list[int] = resize("a.png", 2)
    with_context: Receipt = await refund(fake, 7)
    count(plain, 3)
    kept: Task[[int], Receipt] = refund

    chained: Receipt = await (await chain(nightly.s(), refund.s()).start()).result()
    grouped: list[str] = (await group(greet.s("a"), greet.s("b", times=2)).start()).result_sync()
    collected: bool = await (await chord([nightly.s()], pay.s()).options(key="k").start()).result()

def use_client(client: Client) -> None:
    accepted: Accepted = client.jobs.submit("greet", {"name": "Ada"}, delay=5)
    job: Job = client.jobs.wait(accepted.id, timeout=60)
    found: Generator[JobSummary, None, None] = client.jobs.list(task="greet", limit=3)
    with client as same:
        role: str = same.me().role


async def use_async_client(client: AsyncClient) -> None:
    accepted: Accepted = await client.jobs.submit("greet", {"name": "Ada"}, delay=5)
    job: Job = await client.jobs.wait(accepted.id, timeout=60)
    found: AsyncGenerator[JobSummary, None] = client.jobs.list(task="greet", limit=3)
    async with client as same:
        role: str = (await same.me()).role
"""

WRONG_CALLS = ROOT / "tests/support/wrong_calls.py"
# Written as projects with untyped frameworks are: Celery's and Django's own packages have no types.
UNTYPED = ("from_celery", "django_shop")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _run("build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT))
    return next(folder.glob("rota-*.whl"))


@pytest.fixture(scope="module")
def project(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small project beside an installation of the wheel."""
    folder = tmp_path_factory.mktemp("project")
    _run("pip", "install", "--no-deps", "--quiet", "--target", str(folder / "site"), str(wheel))
    (folder / "project.py").write_text(PROJECT)
    return folder


def mypy(project: Path, *names: str) -> list[str]:
    """The errors of mypy --strict, with the wheel as it is installed."""
    environment = {**os.environ, "PYTHONPATH": str(project / "site"), "MYPYPATH": str(project)}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=",
         "--explicit-package-bases", *names],
        cwd=project, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if ": error:" in line]


def pyright(project: Path, *names: str) -> list[str]:
    """The errors of pyright in its strict mode, as FILE:LINE: MESSAGE."""
    # Files that only name types leave their variables unused.
    only_types = names == ("right.py", "wrong_calls.py")
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node.js here, which pyright runs on; `make test` installs it where it can")
    program = Path(str(pytest.importorskip("pyright").__file__)).parent / "dist/index.js"
    if not program.exists():
        pytest.skip("this version of pyright is downloaded when it is first used")
    settings = {
        "include": [*names], "extraPaths": ["site", "."], "typeCheckingMode": "strict",
        "pythonVersion": "3.11", "reportMissingTypeStubs": False,  # of asyncpg, for one
        "reportUnusedVariable": not only_types, "reportUnusedExpression": not only_types,
    }  # fmt: skip
    (project / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [node, str(program), "--outputjson", "--pythonpath", sys.executable, "--project", str(project)],
        cwd=project, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] >= len(names), done.stdout
    return [
        f"{Path(each['file']).relative_to(project.resolve())}:{each['range']['start']['line'] + 1}: "
        f"{each['message']}"
        for each in found["generalDiagnostics"]
        if each["severity"] == "error"
    ]


def _run(module: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, timeout=300
    )
    if done.returncode and "hatchling" in done.stderr and "No matching distribution" in done.stderr:
        pytest.skip("no hatchling to build the wheel with")
    assert done.returncode == 0, done.stderr


def test_the_wheel_holds_everything_that_the_package_reads_at_run_time(wheel: Path) -> None:
    source = ROOT / "src"
    wanted = {
        str(path.relative_to(source))
        for path in (source / "rota").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    held = set(zipfile.ZipFile(wheel).namelist())

    assert wanted - held == set()
    assert "rota/py.typed" in held
    for kind in (".sql", ".html", ".css", ".js"):
        assert any(name.endswith(kind) for name in held), kind


Checker = Callable[..., list[str]]


@pytest.mark.proof
@pytest.mark.timeout(600)
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_right_uses_pass_and_each_wrong_one_is_an_error(project: Path, checker: Checker) -> None:
    (project / "right.py").write_text(RIGHT)
    shutil.copy(WRONG_CALLS, project)
    lines = enumerate(WRONG_CALLS.read_text("utf-8").splitlines(), 1)
    wrong = {f"wrong_calls.py:{number}" for number, line in lines if "  # wrong" in line}
    assert len(wrong) > 30

    found = checker(project, "right.py", "wrong_calls.py")

    told = {":".join(line.split(":")[:2]): line for line in found}
    assert wrong - told.keys() == set(), "these lines are no errors, and should be"
    assert [told[place] for place in told.keys() - wrong] == []


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_the_examples_pass_strict_checking(wheel: Path, tmp_path: Path, checker: Checker) -> None:
    _run("pip", "install", "--no-deps", "--quiet", "--target", str(tmp_path / "site"), str(wheel))
    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True)
    for name in UNTYPED:
        shutil.rmtree(tmp_path / name)
    names = sorted(
        str(path.relative_to(tmp_path))
        for path in tmp_path.rglob("*.py")
        if "site" not in path.relative_to(tmp_path).parts
    )
    assert len(names) > 20
    assert checker(tmp_path, *names) == []
