"""What a user's type checker sees: the installed wheel, checked by mypy --strict in a small project."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
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

WRONG_IMPORTS = (
    "from rota import JobHandle; from rota.client import AsyncClient, Client; "
    "from project import Receipt, count, greet, pay, refund, resize"
)
# Each line alone is an error, of this kind.
WRONG = {
    "await greet.submit(1)": "arg-type",
    "greet.s(times='twice')": "call-overload",
    "resize.si('a.png')": "call-arg",
    "await greet.submit()": "call-arg",
    "await greet.submit('x', tmies=2)": "call-arg",
    "greet.submit_sync(1)": "arg-type",
    "await greet.options(delay=1).submit(1)": "arg-type",
    "greet.options(delay=1).submit_sync(1)": "arg-type",
    "await refund.submit('seven')": "arg-type",
    "await pay.submit('seven')": "arg-type",
    "number: int = await (await greet.submit('x')).result()": "assignment",
    "number: int = greet.submit_sync('x').result_sync()": "assignment",
    "wrong: Receipt = await (await resize.submit('x', 1)).result()": "assignment",
    "wrong: list[JobHandle[int]] = await greet.submit_many(['x'])": "assignment",
    "await refund(7)": "call-arg",
    "count(3)": "call-arg",
    "await greet.options(share='x').submit('x')": "call-arg",
    "Client().jobs.submit(1)": "arg-type",
    "Client().jobs.submit('x', quue='y')": "call-arg",
    "number: int = Client().jobs.submit('x')": "assignment",
    "number: int = await AsyncClient().jobs.submit('x')": "assignment",
    "await AsyncClient().jobs.list(tsak='x').__anext__()": "call-arg",
    "await Client().jobs.submit('x')": "misc",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    _run("pip", "wheel", str(ROOT), "--no-deps", "--quiet", "--wheel-dir", str(folder))
    return next(folder.glob("rota-*.whl"))


@pytest.fixture(scope="module")
def project(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small project beside an installation of the wheel."""
    folder = tmp_path_factory.mktemp("project")
    _run("pip", "install", "--no-deps", "--quiet", "--target", str(folder / "site"), str(wheel))
    (folder / "project.py").write_text(PROJECT)
    return folder


def check(project: Path, name: str, source: str) -> list[str]:
    (project / name).write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(project / "site"), "MYPYPATH": ""}
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=", name],
        cwd=project, env=environment, capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if ": error:" in line]


def _run(module: str, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, timeout=150
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


@pytest.mark.proof
def test_right_uses_pass_strict_checking_with_the_result_types_of_their_tasks(
    project: Path,
) -> None:
    assert check(project, "right.py", RIGHT) == []


def test_each_wrong_use_is_a_type_error(project: Path) -> None:
    lines = "".join(
        f"async def use_{number}() -> None:\n    {line}\n\n" for number, line in enumerate(WRONG)
    )

    found = check(project, "wrong.py", f"{WRONG_IMPORTS}\n{lines}")

    told = {int(line.split(":")[1]): line for line in reversed(found)}
    for number, (line, kind) in enumerate(WRONG.items()):
        assert kind in told.get(3 + 3 * number, "no error"), f"{line}: {found}"
