"""The objects of the schema: finding and repairing those that a restore lost.

Protocol. At its end `rota migrate` writes down every table, function, trigger, index, policy and grant
of the schema in `rota.schema_object`, which is dumped and restored with everything else. What is listed
there and isn't in the catalog is missing. Roles belong to a server and not to a database: a dump that is
restored on another server has no `rota_tenant`, so that policies and grants for it fail.

Repaired are functions (from their files), the role, row security, policies and grants (by
`enable_row_security()`), triggers, indexes and views (from their definitions). A table can't be:
its rows are gone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rota.errors import SchemaMismatch
from rota.store.sql import load_queries

_ROW_SECURITY = frozenset({"role", "row security", "policy", "grant"})
_LOST = frozenset({"table", "sequence"})
_SHOWN = 6


class SchemaObject(NamedTuple):
    kind: str
    name: str
    definition: str | None

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def _actual(schema: str) -> str:
    return load_queries(schema)["schema_objects"].rstrip().rstrip(";")


async def record_objects(connection: Any, schema: str) -> None:
    """Write down what there is, if it isn't what was written down; what is missing stays listed."""
    await connection.execute(
        f"insert into {schema}.schema_object as o (kind, name, definition)"  # noqa: S608
        f" select a.kind, a.name, a.definition from ({_actual(schema)}) as a"
        " on conflict (kind, name) do update set definition = excluded.definition"
        " where o.definition is distinct from excluded.definition"
    )


async def find_missing(connection: Any, schema: str) -> list[SchemaObject]:
    """Return the objects that `rota migrate` recorded and that don't exist any more."""
    if await connection.fetchval("select to_regclass($1) is null", f"{schema}.schema_object"):
        return [SchemaObject("table", "schema_object", None)]
    rows = await connection.fetch(
        f"select o.kind, o.name, o.definition from {schema}.schema_object as o"  # noqa: S608
        f" left join ({_actual(schema)}) as a on a.kind = o.kind and a.name = o.name"
        " where a.kind is null order by o.kind, o.name"
    )
    return [SchemaObject(*row) for row in rows]


async def forget_dropped(connection: Any, schema: str, lost: list[SchemaObject]) -> None:
    """After a file that dropped something: it is no longer expected. What was lost before is."""
    dropped = [each for each in await find_missing(connection, schema) if each not in lost]
    if not dropped:
        return
    await connection.execute(
        f"delete from {schema}.schema_object as o using unnest($1::text[], $2::text[]) as d(kind, name)"  # noqa: S608
        " where o.kind = d.kind and o.name = d.name",
        [each.kind for each in dropped], [each.name for each in dropped],
    )  # fmt: skip


def described(missing: list[SchemaObject]) -> str:
    shown = ", ".join(str(each) for each in missing[:_SHOWN])
    return f"{shown} and {len(missing) - _SHOWN} others" if len(missing) > _SHOWN else shown


def check_mendable(schema: str, missing: list[SchemaObject]) -> None:
    if lost := [each for each in missing if each.kind in _LOST]:
        raise SchemaMismatch(
            f"the schema {schema!r} lacks {described(lost)}: rows are lost that `rota migrate` can't "
            "bring back. Restore the schema from a backup, whole, into an empty database"
        )


async def mend_definitions(connection: Any, missing: list[SchemaObject]) -> None:
    """Views, indexes and triggers; after the functions that triggers call."""
    for kind in ("view", "index", "trigger"):
        for each in missing:
            if each.kind == kind and each.definition is not None:
                await connection.execute(each.definition)


def concerns_row_security(missing: list[SchemaObject]) -> bool:
    return any(each.kind in _ROW_SECURITY for each in missing)
