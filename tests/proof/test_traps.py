"""The table of docs/guarantees.md: which test and which mutant belong to which trap of workflows."""

from __future__ import annotations

import re
from pathlib import Path

from proof.mutants import MUTANTS

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "guarantees.md"


def rows() -> list[tuple[int, list[tuple[str, str]], list[str]]]:
    """Return the number, the tests (file and name) and the mutants of each trap."""
    section = PAGE.read_text().partition("### Fifteen traps of workflows")[2].partition("\n#")[0]
    found = re.findall(r"^\| (\d+) \| .+ \| (.+) \| (.+) \|$", section, re.MULTILINE)
    return [
        (int(number), re.findall(r"`([^`]+)::([^`]+)`", tests), mutants.split("; "))
        for number, tests, mutants in found
    ]


def test_each_trap_has_a_test_and_a_mutant() -> None:
    assert [number for number, _, _ in rows()] == list(range(1, 16))
    assert all(tests and mutants for _, tests, mutants in rows())


def test_the_tests_and_mutants_of_the_table_exist() -> None:
    known = {mutant.name for mutant in MUTANTS}
    for number, tests, mutants in rows():
        assert set(mutants) <= known, f"trap {number}"
        for file, name in tests:
            text = (TESTS / file).read_text()
            assert re.search(rf"^(async )?def {name}\(", text, re.MULTILINE), (
                f"trap {number}: {name}"
            )
