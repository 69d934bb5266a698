"""Finds out once what doesn't change while tests run.

Each new connection asks for the elements of PostgreSQL's own array types, and each new app whether the
tables and functions of its schema are all there: in a test that does little else, that takes most of the
server's time. And each command that is run in the tests' process would build the whole command line.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest
import typer.main
import typer.testing

import rota.testing
from rota.store import migrate

_OWN_TYPES = 16_384  # below are the types that PostgreSQL itself brings, the same in each database

_whole_schemas: set[str] = set()


def trust(schema: str) -> None:
    """Take it for granted that this schema stays as `migrate` has made it."""
    _whole_schemas.add(schema)


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """Find out each of them once, for the length of the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncpg.Connection, "_introspect_types", _remembering_types())
        patch.setattr(migrate, "find_missing", _unless_trusted(migrate.find_missing))
        patch.setattr(rota.testing, "migrate", _unless_trusted(migrate.migrate))
        patch.setattr(typer.testing, "_get_command", functools.cache(typer.main.get_command))
        yield


def _remembering_types() -> Any:
    introspect = asyncpg.Connection._introspect_types
    known: dict[tuple[tuple[int, ...], frozenset[int]], Any] = {}

    async def introspect_once(self: Any, oids: Any, timeout: Any) -> Any:
        key = (self.get_server_version()[:1], frozenset(oids))
        if key in known:
            # Its second part is for the name of the statement that asked: here none did.
            return known[key], SimpleNamespace(name="none")
        types, statement = await introspect(self, oids, timeout)
        if max(oids) < _OWN_TYPES:
            known[key] = types
        return types, statement

    return introspect_once


def _unless_trusted(look: Any) -> Any:
    async def look_elsewhere(connection: Any, schema: str) -> Any:
        return [] if schema in _whole_schemas else await look(connection, schema)

    return look_elsewhere
