"""Operations on a whole installation: its access, its namespaces and its database roles."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import asyncpg

from rota.config import check_name
from rota.core.access import Principal
from rota.core.administration import Limits, Namespace
from rota.errors import ConfigError, KeyMissing, NotFound
from rota.operations.access import Sessions, Tokens, Users
from rota.operations.base import InstallationOperations
from rota.operations.connection import Connections
from rota.operations.events import AuditLog
from rota.operations.queues import count_soon
from rota.operations.roles import Roles
from rota.store.depths import DepthStore
from rota.store.grants import Purpose, grant_statements
from rota.store.quotas import QuotaStore

_COUNTED_AT_ONCE = 50  # queues; the others are counted by a scheduler


class Installation:
    """The operations that concern more than one namespace.

    Args:
        connections: connections that are not restricted to a namespace by row security.
        on_change: called after a change of access or limits, so that a server drops what it has cached.
    """

    def __init__(
        self, connections: Connections, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.tokens = Tokens(connections, on_change)
        self.users = Users(connections, on_change)
        self.roles = Roles(connections, on_change)
        self.sessions = Sessions(connections, on_change)
        self.namespaces = Namespaces(connections, on_change)
        self.database_roles = DatabaseRoles(connections)
        self.audit = AuditLog(connections)


class Namespaces(InstallationOperations):
    """The namespaces that share an installation."""

    async def list(self, visible_to: Principal | None = None) -> list[Namespace]:
        """List the namespaces that have limits or were used; or only those where somebody has a role."""
        found = await QuotaStore(await self._database()).list_namespaces()
        if visible_to is None:
            return found
        return [each for each in found if visible_to.identity.roles_in(each.name)]

    async def part(
        self, own: Collection[str], skip: int, most: int, *, others: bool
    ) -> Sequence[Namespace]:
        """Return some namespaces by name, from the one after the first `skip` on: of `own`, and with
        `others` of all that `list` has."""
        store = QuotaStore(await self._database())
        names = {*own, *(await store.namespace_names(skip + most) if others else ())}
        return await store.some_namespaces(sorted(names)[skip : skip + most])

    async def get(self, name: str, visible_to: Principal) -> Namespace:
        """Return a namespace. A namespace of their own is there even if it was never used."""
        check_name("namespace", name)
        used = next((each for each in await self.list(visible_to) if each.name == name), None)
        if used is not None:
            return used
        if name not in (visible_to.namespace, *visible_to.identity.memberships):
            raise NotFound(f"there is no namespace {name!r}")
        return Namespace(
            name=name, created_at=None, limits=Limits(), stored_jobs=None, stored_bytes=None
        )

    async def check_known(self, name: str) -> None:
        """Raise `NotFound` for a namespace with nothing stored, no limits, no tokens and no users."""
        if not await (await self._database()).fetchval("namespace_is_known", name):
            raise NotFound(
                f"There is no namespace {name}: nothing was ever stored in it. Is the name right?",
                subject=name,
            )

    async def set_limits(self, name: str, limits: Limits) -> Namespace:
        """Set what a namespace may submit: `max_depth` on every way in, the others through servers,
        within five seconds."""
        check_name("namespace", name)
        rate = limits.submits_per_second
        if rate is not None and not rate > 0:
            raise ConfigError("submits_per_second must be above 0", field="submits_per_second")
        store = QuotaStore(await self._database())
        async with self._changing("limit", f"namespace {name}", namespace=name) as change:
            change.before = await store.get_namespace(name)
            change.after = after = await store.put_namespace(name, limits)
        if limits.max_depth is not None:
            depths = DepthStore(store.database)
            for depth in (await depths.list(name))[:_COUNTED_AT_ONCE]:
                await count_soon(depths, name, depth.queue)
            after = await store.get_namespace(name) or after
        return after

    async def remove_limits(self, name: str) -> Namespace:
        """Remove the limits of a namespace, and return what they were. Its jobs stay."""
        check_name("namespace", name)
        store = QuotaStore(await self._database())
        async with self._changing("unlimit", f"namespace {name}", namespace=name) as change:
            change.before = before = await store.remove_namespace(name)
            if before is None:
                raise NotFound(
                    f"namespace {name!r} has no limits; `rota namespaces list` lists them"
                )
        return before

    async def encrypted(self) -> frozenset[str]:
        """Return the names of the namespaces whose new jobs are encrypted."""
        rows = await (await self._database()).fetch("encrypted_namespaces")
        return frozenset(row["name"] for row in rows)

    async def set_encrypted(self, name: str, encrypted: bool) -> None:
        """Encrypt what is submitted to a namespace from now on, or stop doing so.

        It holds within five seconds. What is stored already stays as it is: see `rota.encryption`.
        """
        check_name("namespace", name)
        database = await self._database()
        if encrypted and database.encryption.ring is None:
            raise KeyMissing(
                "set ROTA_ENCRYPTION_KEYS here first, and wherever the namespace is used: encrypted "
                "values can only be read with their key"
            )
        action, after = "encrypt" if encrypted else "decrypt", {"encrypted": encrypted}
        async with self._changing(action, f"namespace {name}", namespace=name, after=after):
            await database.fetch("set_encrypted", name, encrypted)


class DatabaseRoles(InstallationOperations):
    """The privileges that a database role needs to submit jobs in its own transactions."""

    def statements(self, role: str, purpose: Purpose = "submit") -> list[str]:
        """Return the statements that grant a role the least privileges for a purpose."""
        return grant_statements(purpose, role, self._connections.settings.schema)

    async def grant(self, role: str, purpose: Purpose = "submit") -> list[str]:
        """Grant a role the least privileges for a purpose, and return the statements."""
        statements = self.statements(role, purpose)
        async with self._changing("grant", f"role {role}", after={"for": purpose}) as change:
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
