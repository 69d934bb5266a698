"""rota-client: what it holds and asks for, that it works alone, and what it says about the rest."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import rota
from release import client
from rota.errors import ConfigError
from rota.lib import installed
from rota.node import Node
from tests.support.places import ROOT
from tests.support.server_fixtures import LiveServer


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder, ROOT],
        capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [whole] = folder.glob("rota-*.whl")
    return whole, client.build_client(whole, folder)


def test_it_asks_for_three_packages_and_imports_no_other(wheels: tuple[Path, Path]) -> None:
    whole, light = wheels
    with zipfile.ZipFile(light) as archive:
        names = archive.namelist()
        [place] = [name for name in names if name.endswith("/METADATA")]
        metadata = archive.read(place).decode()
    asked = [line.partition(": ")[2] for line in metadata.splitlines() if "Requires-Dist" in line]
    assert sorted(Requirement(line).name for line in asked) == ["httpx", "msgspec", "tzdata"]
    assert all(Requirement(line).specifier for line in asked)
    assert f"Name: rota-client\nVersion: {rota.__version__}\n" in metadata
    # Pydantic is only looked for where a program has loaded it, rich by what draws bars for an app.
    assert client.outside() - sys.stdlib_module_names == {
        "httpx", "msgspec", "pydantic", "pydantic_core", "rich",
    }  # fmt: skip
    assert not [name for name in names if "/store/" in name or "/server/" in name]
    assert light.stat().st_size < whole.stat().st_size / 5


def test_the_same_wheel_gives_the_same_client(wheels: tuple[Path, Path], tmp_path: Path) -> None:
    again = client.build_client(wheels[0], tmp_path)
    assert again.read_bytes() == wheels[1].read_bytes()


@pytest.fixture(scope="module")
def alone(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has the client and what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("alone")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    [site] = folder.glob("lib/python*/site-packages")
    for name in needed(*client.NEEDS):
        for top in tops_of(name):
            (site / top.name).symlink_to(top)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", str(wheels[1])], check=True)
    checked = subprocess.run([*pip, "check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    return python


def needed(*names: str) -> set[str]:
    found: set[str] = set()
    waiting = [*names]
    while waiting:
        found.add(name := waiting.pop())
        for line in importlib.metadata.requires(name) or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting += {requirement.name} - found
    return found


def tops_of(name: str) -> Iterator[Path]:
    """The folders and files of an installed package, as they lie in site-packages."""
    files = importlib.metadata.files(name) or []
    for top in {file.parts[0] for file in files if ".." not in file.parts}:
        yield Path(str(files[0].locate())).parents[len(files[0].parts) - 1] / top


USE = """
import sys
from rota.client import Client
with Client() as client:
    job = client.jobs.submit("double", {"n": 21})
    print(client.jobs.wait(job.id, timeout=60).result)
try:
    import rota
    rota.App
except ImportError as error:
    print(error)
try:
    import asyncpg
except ImportError:
    print("no driver")
"""

MISSING = (
    "rota.App is not part of rota-client, which has rota.client alone: `pip install rota` instead"
)


async def test_it_works_alone(alone: Path, server: LiveServer) -> None:
    @server.app.task
    async def double(n: int) -> int:
        return 2 * n

    environ = {
        "PATH": os.environ["PATH"], "ROTA_URL": server.url, "ROTA_TOKEN": await server.token("operator")
    }  # fmt: skip
    async with Node(server.app).running():
        done = await asyncio.to_thread(
            subprocess.run, [alone, "-c", USE], capture_output=True, text=True, timeout=120,
            env=environ,
        )  # fmt: skip
    assert done.stdout.splitlines() == [
        "42",
        MISSING,
        "no driver",
    ], done.stderr


@pytest.mark.parametrize(
    ("versions", "fits"),
    [
        ({"rota": "0.2.0"}, True),
        ({"rota": "0.2.0", "rota-client": "0.2.0"}, True),
        ({"rota": "0.2.0", "rota-client": "0.1.0"}, False),
    ],
)
def test_a_node_refuses_the_files_of_two_versions(
    versions: dict[str, str], fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(installed, "version", version)
    check = installed.check_installation.__wrapped__
    if fits:
        check()
        return
    with pytest.raises(ConfigError, match=r"rota 0\.2\.0 and rota-client 0\.1\.0.*uninstall"):
        check()
