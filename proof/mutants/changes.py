"""The ways in which mutants change queries and functions of the schema."""

from __future__ import annotations

from collections.abc import Callable

from proof.simulation.template import SCHEMA
from rota.store.sql import function_statements, render


def replaced(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        old = render(old, SCHEMA)
        if old not in text:
            raise LookupError(f"the mutant has nothing to change: {old!r} isn't in\n{text}")
        text = text.replace(old, render(new, SCHEMA))
    return text


def in_query(name: str, *changes: tuple[str, str]) -> Callable[[dict[str, str]], None]:
    def change(queries: dict[str, str]) -> None:
        queries[name] = replaced(queries[name], *changes)

    return change


def in_function(name: str, *changes: tuple[str, str]) -> str:
    """The definition of a SQL function, changed."""
    start = f"create or replace function {SCHEMA}.{name}("
    found = [text for text in function_statements(SCHEMA) if text.startswith(start)]
    if not found:
        raise LookupError(f"there is no SQL function {name}")
    return replaced(found[0], *changes)
