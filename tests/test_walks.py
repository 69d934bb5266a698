"""The walks of docs/architecture.md and the worked examples of CONTRIBUTING.md name what exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import ROOT

HOP = re.compile(r"^\| (\d+) \| `([\w/.]+)` \| `([\w.]+)` \|", re.MULTILINE)
LIMITS = {"The walk of one job": (15, 8), "The walk of one occurrence": (15,)}


def names_in(path: Path) -> set[str]:
    """`function`, `Class`, `Class.method` and top-level constants; of SQL, functions and queries."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        return set(re.findall(r"(?:function|-- name:|table) +([\w.]+)", text))
    return set(_defined(ast.parse(text).body))


def _defined(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from _defined(node.body, f"{node.name}.")
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


@pytest.mark.parametrize("title", LIMITS)
def test_each_hop_of_a_walk_exists_and_there_are_few(title: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = page.partition(f"## {title}\n")[2].partition("\n## ")[0]
    hops = HOP.findall(section)
    starts = [place for place, hop in enumerate(hops) if hop[0] == "1"]
    lengths = [end - start for start, end in zip(starts, [*starts[1:], len(hops)], strict=True)]
    assert len(lengths) == len(LIMITS[title])
    assert all(length <= most for length, most in zip(lengths, LIMITS[title], strict=True))
    assert [
        f"{file}: {name}"
        for _, file, name in hops
        if name not in names_in(ROOT / "src/rota" / file)
    ] == []


def test_the_places_of_the_worked_examples_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = page.partition("## Common changes, step by step\n")[2].partition("\n## ")[0]
    files = set(re.findall(r"`((?:src|tests|proof)/[\w/.]+\.\w+)`", section))
    assert len(files) > 15
    assert [file for file in files if not (ROOT / file).exists()] == []
    named = re.findall(r"`(src/[\w/.]+\.(?:py|sql))`:\s+`([\w.]+)`", section)
    assert len(named) > 20
    assert [pair for pair in named if pair[1] not in names_in(ROOT / pair[0])] == []


def test_the_pages_that_contributors_are_sent_to_exist() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    pages = set(re.findall(r"docs/[\w/.-]+\.md", page))
    assert len(pages) > 5
    assert [each for each in pages if not (ROOT / each).exists()] == []
    headings = {
        title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    }
    assert set(re.findall(r"\]\(#([\w-]+)\)", page)) <= headings
