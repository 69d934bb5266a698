"""The SQL functions of the schema: one definition each, in the .sql files of this folder.

`rota migrate` applies them again when their text has changed. A function whose parameters change gets
a new signature here, and a `drop function` for the old one in a `post` migration.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib import resources

from rota.store.sql import render

# The name under which the table rota.migration records them.
FUNCTIONS = "functions"

_START = re.compile(r"^(?=create or replace function )", re.MULTILINE)


@cache
def _texts() -> tuple[str, ...]:
    files = [file for file in resources.files(__name__).iterdir() if file.name.endswith(".sql")]
    return tuple(file.read_text("utf-8") for file in sorted(files, key=lambda file: file.name))


def function_statements(schema: str) -> list[str]:
    """Return one `create or replace function` statement for each function."""
    return [render(part, schema) for text in _texts() for part in _START.split(text)[1:]]


@cache
def checksum_of_functions() -> str:
    """Return the digest of the rendered text, which changes also with `rota.store.sql`."""
    return hashlib.sha256("".join(function_statements("rota")).encode()).hexdigest()
