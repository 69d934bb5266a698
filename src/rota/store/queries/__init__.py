"""The SQL: named queries from sql/*.sql, with `rota.` turned into the configured schema."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from rota.lib import failpoints

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_SCHEMA = re.compile(r"\brota\.")


def in_schema(sql: str, schema: str) -> str:
    return _SCHEMA.sub(f"{schema}.", sql)


@cache
def load_queries(schema: str) -> dict[str, str]:
    """All named queries, by name. A query's name is the name of the Store method that runs it."""
    queries: dict[str, str] = {}
    folder = resources.files("rota.store") / "queries"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            parts = _NAME.split(file.read_text("utf-8"))
            for name, text in zip(parts[1::2], parts[2::2], strict=True):
                if name in queries:
                    raise ValueError(f"two queries are named {name}")
                queries[name] = in_schema(text, schema).strip().rstrip(";")
    failpoints.know(queries)
    return queries
