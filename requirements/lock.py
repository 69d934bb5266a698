"""Pin what Rota is built, tested and run with: `make lock` writes the files beside this one.

all.txt         constraints for `make`: every package of every group and extra
production.txt  exactly what a node needs, extras included; installed with `--no-deps`

Litestar names polyfactory as a dependency, and with it Faker: both make up data for tests. Litestar
imports them only to invent examples for an OpenAPI document, which Rota never asks for.
production.txt leaves them out.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
TEST_DATA = {"faker", "polyfactory"}


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = ",".join(sorted(project["project"]["optional-dependencies"]))
    groups = [option for name in project["dependency-groups"] for option in ("--group", name)]
    write("all.txt", freeze(f"{ROOT}[{extras}]", *groups))
    constraint = ("--constraint", str(HERE / "all.txt"))
    pinned = freeze(*constraint, f"{ROOT}[{extras}]")
    write("production.txt", [line for line in pinned if name_of(line) not in TEST_DATA])


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


def name_of(line: str) -> str:
    return line.partition("==")[0].strip().lower()


def write(name: str, lines: list[str]) -> None:
    head = "# Written by `make lock`. Don't edit.\n"
    (HERE / name).write_text(head + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
