"""The planner's estimates: about how many rows a query has, without reading them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.store.database import Database

_AT_A_TIME = 200  # queries in one statement


async def estimated_rows(database: Database, query: str, *arguments: Any) -> int:
    """Return how many rows the planner expects of a query."""
    async with database.connection() as connection:
        plan = await connection.fetchval(f"explain (format json) {query}", *arguments)
    return int(msgspec.json.decode(plan)[0]["Plan"]["Plan Rows"])


async def estimated_rows_of_each(
    database: Database, query: str, values: Sequence[str]
) -> dict[str, int]:
    """Return how many rows the planner expects of a query for each of the values that $1 may have."""
    one = database.queries[query].rstrip(" ;\n")
    found: dict[str, int] = {}
    for first in range(0, len(values), _AT_A_TIME):
        # Twice at least: of one alone there would be no list of plans.
        asked = [*values[first : first + _AT_A_TIME], values[first]]
        whole = " union all ".join(one.replace("$1", f"${n}") for n in range(1, len(asked) + 1))
        async with database.transaction("estimate") as connection:
            # In a parallel plan, the rows of a part are those of one process.
            await connection.execute("set local max_parallel_workers_per_gather = 0")
            plan = await connection.fetchval(f"explain (format json) {whole}", *asked)
        plans = msgspec.json.decode(plan)[0]["Plan"]["Plans"]
        found |= {value: int(part["Plan Rows"]) for value, part in zip(asked, plans, strict=True)}
    return found
