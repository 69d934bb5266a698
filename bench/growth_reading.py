"""What PostgreSQL says that a piece of work has cost: pages, rows, calls and time, by statement.

Pages (shared buffers hit or read) are what is judged. They don't depend on who else is on the machine or
what is in a cache, and whatever reads more of a table reads more pages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

_COMMENT = re.compile(r"^\s*--[^\n]*$|\s--\s[^\n]*$", re.MULTILINE)
_LITERAL = re.compile(r"'(?:[^']|'')*'|\$\d+|(?<!\w)-?\b\d+(?:\.\d+)?\b")
# PostgreSQL shows the field of an extract as a constant.
_EXTRACTED = re.compile(r"\bextract\(\s*\w+ from")
_TAKEN = """
    select query, sum(calls)::bigint as calls, sum(rows)::bigint as rows,
           sum(total_exec_time)::float8 as milliseconds,
           sum(shared_blks_hit + shared_blks_read + temp_blks_read + temp_blks_written)::bigint as pages
    from pg_stat_statements
    where toplevel and dbid = (select oid from pg_database where datname = current_database())
      and query not like '%pg_stat_statements%'
    group by query
"""


class Cost(msgspec.Struct, frozen=True):
    calls: int = 0
    rows: int = 0
    pages: int = 0
    milliseconds: float = 0.0
    seconds: float = 0.0  # by the clock, around all of it
    megabytes: float = 0.0  # the most that a process needed

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            *(
                a + b
                for a, b in zip(
                    msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True
                )
            )
        )

    def per(self, number: int) -> tuple[float, float]:
        """Return pages and milliseconds of one."""
        return self.pages / max(number, 1), self.milliseconds / max(number, 1)


def normal(text: str) -> str:
    """Return a statement without what differs between its calls."""
    plain = _LITERAL.sub("?", _COMMENT.sub("", text))
    return " ".join(_EXTRACTED.sub("extract(? from", plain).split())


def names_of(queries: Mapping[str, str]) -> dict[str, str]:
    """Return the names of our queries by their normal texts."""
    return {normal(text.rstrip().rstrip(";")): name for name, text in queries.items()}


class Reading:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def begin(self) -> None:
        await self._connection.execute("select pg_stat_statements_reset()")

    async def all(self) -> Cost:
        """Return what everything since `begin` has cost."""
        return sum((await self.by_statement()).values(), Cost())

    async def by_statement(self) -> dict[str, Cost]:
        rows = await self._connection.fetch(_TAKEN)
        return {
            row["query"]: Cost(row["calls"], row["rows"], row["pages"], row["milliseconds"])
            for row in rows
        }
