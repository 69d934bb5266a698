"""The threat model: every line names a test that exists, and each of the six kinds has lines."""

from __future__ import annotations

import ast
import re

from tests.support.places import ROOT

PAGE = (ROOT / "docs/guide/threat-model.md").read_text("utf-8")
KINDS = ("Spoofing", "Tampering", "Repudiation", "Information disclosure", "Denial of service",
         "Elevation of privilege")  # fmt: skip


def lines_of(kind: str) -> list[list[str]]:
    section = PAGE.split(f"### {kind}\n")[1].split("\n##")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {
        node.name for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }  # fmt: skip


def test_every_threat_has_a_protection_and_a_test_that_exists():
    for kind in KINDS:
        rows = lines_of(kind)
        assert len(rows) >= 3, kind
        for threat, protection, test in rows:
            found = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", test)
            assert threat
            assert protection
            assert found, (kind, threat, test)
            assert found[2] in functions_of(found[1]), test
