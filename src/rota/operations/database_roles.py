"""Operations on database roles: what a role needs to submit jobs in its own transactions."""

from __future__ import annotations

from typing import Literal

import asyncpg

from rota.errors import ConfigError, NotFound
from rota.operations.connection import Connections
from rota.store.changes import changing
from rota.store.grants import grant_statements


class DatabaseRoles:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def statements(self, role: str, purpose: Literal["submit"] = "submit") -> list[str]:
        """Return the statements that grant a role the least privileges for a purpose."""
        return grant_statements(purpose, role, self._connections.settings.schema)

    async def grant(self, role: str, purpose: Literal["submit"] = "submit") -> list[str]:
        """Grant a role the least privileges for a purpose, and return the statements."""
        statements = self.statements(role, purpose)
        database = (await self._connections.opened()).database
        async with changing(database, "grant", f"role {role}", after={"for": purpose}) as change:
            try:
                for statement in statements:
                    await change.connection.execute(statement)
            except asyncpg.UndefinedObjectError:
                raise NotFound(
                    f"the database has no role {role!r}: create it first, `create role {role} login`"
                ) from None
            except asyncpg.InsufficientPrivilegeError as error:
                raise ConfigError(
                    f"this database user may not grant that: {error}. Run `rota grants` as the owner "
                    "of Rota's tables, which is the role that runs `rota migrate`"
                ) from None
        return statements
