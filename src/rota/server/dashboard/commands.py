"""The same elsewhere: what a page shows or does, as a line for the shell, for curl and for Python."""

from __future__ import annotations

import json
import shlex
from typing import Any

import msgspec


class Copyable(msgspec.Struct, frozen=True):
    """Ways to say it. What is empty is left out."""

    cli: str = ""
    curl: str = ""
    python: str = ""

    @property
    def ways(self) -> list[tuple[str, str]]:
        named = (("Shell", self.cli), ("curl", self.curl), ("Python", self.python))
        return [(name, text) for name, text in named if text]


def cli(*words: Any) -> str:
    return shlex.join(["rota", *(str(word) for word in words)])


def curl(method: str, path: str, body: Any = None) -> str:
    """`$ROTA` is where the server is, `$TOKEN` a token of `rota tokens create`."""
    parts = ["curl"]
    if method != "GET":
        parts.append(f"-X {method}")
    parts.append('-H "Authorization: Bearer $TOKEN"')
    if body is not None:
        parts.append("-H 'Content-Type: application/json'")
        parts.append(f"-d {shlex.quote(json.dumps(msgspec.to_builtins(body)))}")
    quoted = shlex.quote(path)
    parts.append(f'"$ROTA"{quoted}')
    return " ".join(parts)


def python(*lines: str) -> str:
    return "\n".join(lines)
