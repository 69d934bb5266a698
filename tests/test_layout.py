"""The arrangement of the tests: rooms as in src/rota, shared things in tests/support."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

from tests.support.order import LONGEST_FIRST, SLOW
from tests.support.places import ROOT

TESTS = ROOT / "tests"
# Tests of the whole; tests of one room are in the folder of that room.
OF_THE_WHOLE = {
    "argument_types", "broker_worker", "chart", "config", "debian", "docs", "failover",
    "fastapi_shop", "faults",
    "image",
    "large_workflow", "layout", "light_client", "limit_recipes", "middleware", "node", "packaging",
    "public_api", "pytest_plugin", "reference_workers", "release",
    "sandbox", "sync", "threat_model", "typing", "upgrade", "walks",
}  # fmt: skip
APART = {"support", "proof"}  # helpers, and the tests of proof/ and bench/


def modules(*folders: Path) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in folder.rglob("*.py"):
            if ".peers" in path.parts:  # what the benchmarks have installed
                continue
            yield path, parsed(path)


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_nothing_imports_a_test_module() -> None:
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path, tree in modules(TESTS, ROOT / "proof", ROOT / "bench", ROOT / "docs")
        for name in imported(tree)
        if name.startswith("tests.") and ".test_" in name
    ]
    assert found == []


def test_waiting_for_something_is_defined_once() -> None:
    found = [
        str(path.relative_to(ROOT))
        for path, tree in modules(TESTS, ROOT / "proof")
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.strip("_") == "eventually"
    ]
    assert found == ["proof/waiting.py"]


def test_tests_are_in_the_room_of_what_they_test() -> None:
    rooms = {
        path.relative_to(TESTS) for path in TESTS.rglob("*") if (path / "__init__.py").exists()
    }
    known = [room for room in rooms if room.parts[0] not in APART]
    assert known
    assert [room for room in known if not (ROOT / "src" / "rota" / room).is_dir()] == []
    assert {path.stem.removeprefix("test_") for path in TESTS.glob("test_*.py")} == OF_THE_WHOLE


def test_the_files_that_go_first_or_are_slow_exist() -> None:
    named = [*LONGEST_FIRST, *SLOW]
    assert [name for name in named if not (TESTS / f"{name}.py").exists()] == []


def test_docstrings_name_their_subject() -> None:
    """A first sentence such as `What it holds` says nothing to whoever doesn't know it already."""
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for path, tree in modules(ROOT / "src")
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node)) is not None
        and text.split()[0] in ("What", "Who", "Whoever", "Whatever", "It", "They")
    ]
    assert found == []
