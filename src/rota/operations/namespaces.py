"""Operations on namespaces: list them, limit them, and switch encryption on or off."""

from __future__ import annotations

from collections.abc import Callable

from rota.config import check_name
from rota.core.access import Principal
from rota.errors import ConfigError, KeyMissing, NotFound
from rota.operations.connection import Connections
from rota.store.changes import changing
from rota.store.database import Database
from rota.store.quotas import Limits, Namespace, QuotaStore


class Namespaces:
    """The namespaces that share an installation."""

    def __init__(self, connections: Connections, on_change: Callable[[], None]) -> None:
        self._connections = connections
        self._on_change = on_change

    async def _database(self) -> Database:
        return (await self._connections.opened()).database

    async def list(self, visible_to: Principal | None = None) -> list[Namespace]:
        """List the namespaces that have limits or were used; or only those where somebody has a role."""
        found = await QuotaStore(await self._database()).list_namespaces()
        if visible_to is None:
            return found
        return [each for each in found if visible_to.identity.role_in(each.name) is not None]

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

    async def set_limits(self, name: str, limits: Limits) -> Namespace:
        """Set what a namespace may submit through servers. The limits hold within five seconds."""
        check_name("namespace", name)
        rate = limits.submits_per_second
        if rate is not None and not rate > 0:
            raise ConfigError("submits_per_second must be above 0", field="submits_per_second")
        database = await self._database()
        store = QuotaStore(database)
        async with changing(database, "limit", f"namespace {name}", namespace=name) as change:
            change.before = await store.get_namespace(name)
            change.after = after = await store.put_namespace(name, limits)
        self._on_change()
        return after

    async def remove_limits(self, name: str) -> Namespace:
        """Remove the limits of a namespace, and return what they were. Its jobs stay."""
        check_name("namespace", name)
        database = await self._database()
        async with changing(database, "unlimit", f"namespace {name}", namespace=name) as change:
            change.before = before = await QuotaStore(database).remove_namespace(name)
            if before is None:
                raise NotFound(
                    f"namespace {name!r} has no limits; `rota namespaces list` lists them"
                )
        self._on_change()
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
        async with changing(database, action, f"namespace {name}", namespace=name, after=after):
            await database.fetch("set_encrypted", name, encrypted)
