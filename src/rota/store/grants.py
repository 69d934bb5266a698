"""What a database role needs, by what it does: the least that its statements touch.

A role that only submits, such as an application's in its own transactions, may add jobs and read what a
submit looks up. It can't read other jobs' results, change or delete a job, or see tokens and people.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from rota.errors import ConfigError

Purpose: TypeAlias = Literal["submit", "submit-unique"]

# By purpose: privileges, and the tables they are for.
PURPOSES: Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "submit": (
        ("select", ("migration", "namespace", "node", "schema_object", "setting", "task")),
        ("insert", ("arrival",)),
        ("select, insert", ("future", "lane", "present", "queue")),
        ("select, insert, update", ("submit_key",)),
    ),
    # Unique jobs lock the job that stands for them, or change it.
    "submit-unique": (
        ("select", ("migration", "namespace", "node", "schema_object", "setting", "task")),
        ("insert", ("arrival",)),
        ("select, insert", ("lane", "queue")),
        ("select, insert, update, delete", ("future", "present")),
        ("select, insert, update", ("submit_key", "unique_key")),
    ),
}


def grant_statements(purpose: str, role: str, schema: str) -> list[str]:
    """The SQL that gives a role what it needs. The role's name is quoted here."""
    if purpose not in PURPOSES:
        raise ConfigError(f"purpose {purpose!r} is not one of: {', '.join(PURPOSES)}")
    if not role or "\0" in role or len(role.encode()) > 63:
        raise ConfigError("a role's name is 1 to 63 bytes long, without NUL")
    quoted = '"' + role.replace('"', '""') + '"'
    grants = [
        f"grant {privileges} on {', '.join(f'{schema}.{table}' for table in tables)} to {quoted};"
        for privileges, tables in PURPOSES[purpose]
    ]
    return [f"grant usage on schema {schema} to {quoted};", *grants]
