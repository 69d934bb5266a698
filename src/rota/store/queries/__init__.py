"""Named queries from the .sql files of this folder."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from rota.lib import failpoints
from rota.store.sql import render

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)


@cache
def load_queries(schema: str) -> dict[str, str]:
    """Return all queries, by name. A query has the name of the store's method that runs it."""
    queries: dict[str, str] = {}
    folder = resources.files("rota.store") / "queries"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".sql"):
            parts = _NAME.split(file.read_text("utf-8"))
            for name, text in zip(parts[1::2], parts[2::2], strict=True):
                if name in queries:
                    raise ValueError(f"two queries are named {name}")
                queries[name] = render(text, schema).strip().rstrip(";")
    failpoints.know(queries)
    return queries
