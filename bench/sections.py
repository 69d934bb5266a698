"""Parts of docs/benchmarks.md that are written by themselves, each under a heading of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

# What is written by programs of its own: see growth.py, many_nodes.py and soak.py.
GROWTH = "## What grows with what is stored"
NODES = "## A thousand nodes"
SOAK = "## An hour at full speed"
DOCS = Path(__file__).parents[1] / "docs"


def kept(heading: str, docs: Path = DOCS) -> str:
    """A part of the page as it stands, for whoever writes the rest."""
    page = docs / "benchmarks.md"
    text = page.read_text() if page.exists() else ""
    begin, end = _place(text, heading)
    return text[begin:end]


def replace_rest(text: str, mine: Callable[[str], bool], docs: Path = DOCS) -> None:
    """Write the page's head and the parts whose headings are its own; the others stay behind them."""
    page = docs / "benchmarks.md"
    before = page.read_text() if page.exists() else ""
    others = [kept(heading, docs) for heading in headings(before) if not mine(heading)]
    parts = [text.rstrip(), *(part.strip() for part in others)]
    page.write_text("\n\n".join(part for part in parts if part) + "\n")


def headings(text: str) -> list[str]:
    """The headings of the parts of a page."""
    return [line for line in text.splitlines() if line.startswith("## ")]


def put(heading: str, body: str, docs: Path = DOCS) -> None:
    """Write a part of the page anew, or at its end. The rest stays."""
    page = docs / "benchmarks.md"
    text = page.read_text() if page.exists() else ""
    begin, end = _place(text, heading)
    parts = (text[:begin].rstrip(), f"{heading}\n\n{body.strip()}", text[end:].strip())
    page.write_text("\n\n".join(part for part in parts if part) + "\n")


def _place(text: str, heading: str) -> tuple[int, int]:
    lines = f"\n{text}"
    begin = lines.find(f"\n{heading}\n")
    if begin < 0:
        return len(text), len(text)
    end = lines.find("\n## ", begin + 1)
    return begin, end if end >= 0 else len(text)
