"""Operations on roles: the built-in ones, which can only be read, and those of the installation.

Protocol. Who gives a role locks its row (`for share`) in the transaction that gives it, and compares
what the role permits with what they may do themselves. Who changes or deletes a role locks it alone
(`for update`): so a role that is being given can't grow or go meanwhile. Nothing else is written: a
server reads the definition together with the token or session. After a crash there is the change with
its audit record, or neither.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.config import check_name
from rota.core.access import Principal
from rota.core.administration import RoleInfo
from rota.core.groups import parse_groups
from rota.core.roles import (
    ANYWHERE,
    BUILT_IN,
    MOST_ROLES,
    PERMISSIONS,
    check_limits,
    check_permissions,
    check_role_names,
    named,
    names_of,
    unknown_role,
)
from rota.core.roles import Roles as RoleSet
from rota.errors import AccessDenied, ConfigError, Conflict, NotFound
from rota.operations.base import InstallationOperations
from rota.store.identity import IdentityStore

RoleInfos = list[RoleInfo]  # inside Roles, `list` is its method
_MOST_DESCRIPTION = 500
_USES_SHOWN = 5


def built_in_roles() -> list[RoleInfo]:
    return [
        RoleInfo(name=role.name, permissions=sorted(role.permissions), built_in=True)
        for role in BUILT_IN.values()
    ]


async def roles_to_give(store: IdentityStore, text: str, *, of_user: bool = False) -> RoleSet:
    """Return the roles that are named, in the transaction that gives them to somebody."""
    names = names_of(check_role_names(text, of_user=of_user))
    own = [name for name in names if name not in BUILT_IN]
    found = {each.name: each.role for each in await store.lock_roles(own)} if own else {}
    for name in own:
        if name not in found:
            raise unknown_role(name, [each.name for each in await store.list_roles()])
    return named(text, found.values())


async def existing_roles(store: IdentityStore, text: str) -> str:
    """Return those of the named roles that exist, in the transaction that gives them to somebody."""
    names = names_of(text)
    own = {each.name for each in await store.lock_roles([n for n in names if n not in BUILT_IN])}
    return ",".join(name for name in names if name in BUILT_IN or name in own)


class Roles(InstallationOperations):
    """The roles of an installation: what tokens, users and groups of a provider may do."""

    async def _store(self) -> IdentityStore:
        return IdentityStore(await self._database())

    async def list(self, *, visible_to: Principal | None = None) -> RoleInfos:
        """List the roles: the built-in ones, then those of the installation by name; or only those that
        hold in the namespace of somebody, without the names of others."""
        found = [*built_in_roles(), *await (await self._store()).list_roles()]
        if visible_to is None or visible_to.everywhere:
            return found
        here = visible_to.namespace
        return [
            msgspec.structs.replace(each, namespaces=[here] if each.namespaces else [])
            for each in found if each.role.holds_in(here)
        ]  # fmt: skip

    async def get(self, name: str, *, visible_to: Principal | None = None) -> RoleInfo:
        """Return a role; `NotFound` if there is none of this name."""
        for each in await self.list(visible_to=visible_to):
            if each.name == name:
                return each
        raise NotFound(f"there is no role {name!r}; `rota roles list` lists them")

    async def set(
        self, name: str, *, permissions: Sequence[str], namespaces: Sequence[str] = (),
        tasks: Sequence[str] = (), queues: Sequence[str] = (), description: str = "",
        by: Principal | None = None,
    ) -> RoleInfo:  # fmt: skip
        """Define a role, or replace its definition. Who has it has the new permissions within a second.

        `permissions` are nouns with a verb, as `queues:write`, or nouns alone. `namespaces` limits where
        the role holds, `tasks` and `queues` limit the jobs that it may submit.
        `by`, if given, is who defines it: the role can permit no more than they may do themselves in all
        namespaces, neither before nor after. Without it, they have the database, and no such limits.
        """
        check_name("role", name)
        self._refuse_built_in(name)
        if len(description) > _MOST_DESCRIPTION or "\0" in description:
            raise ConfigError(
                f"description: at most {_MOST_DESCRIPTION} characters", field="description"
            )
        allowed = check_permissions(permissions)
        check_limits(allowed, namespaces, tasks, queues)
        new = RoleInfo(
            name=name, permissions=allowed, namespaces=sorted(set(namespaces)), tasks=sorted(set(tasks)),
            queues=sorted(set(queues)), description=description,
        )  # fmt: skip
        store = await self._store()
        async with self._changing("set", f"role {name}", namespace=ANYWHERE) as change:
            before = await store.lock_role(name)
            self._check_covered(by, [new, *([before] if before else [])])
            if before is None and len(await store.list_roles()) >= MOST_ROLES:
                raise Conflict(f"there are {MOST_ROLES} roles, which is the most; delete one first")
            change.before, change.after = before, await store.put_role(new)
        stored: RoleInfo = change.after
        return stored

    async def delete(self, name: str, *, by: Principal | None = None) -> RoleInfo:
        """Delete a role that nobody has any more."""
        self._refuse_built_in(name)
        store = await self._store()
        async with self._changing("delete", f"role {name}", namespace=ANYWHERE) as change:
            before = await store.lock_role(name)
            if before is None:
                raise NotFound(f"there is no role {name!r}; `rota roles list` lists them")
            self._check_covered(by, [before])
            uses = await store.uses_of_role(name)
            if name in self._mapped():
                uses.append("the setting oidc_groups")
            if uses:
                more = f" and {len(uses) - _USES_SHOWN} more" if len(uses) > _USES_SHOWN else ""
                raise Conflict(
                    f"role {name!r} is in use by {', '.join(uses[:_USES_SHOWN])}{more}: give them "
                    "another role, or revoke and end what has it"
                )
            await store.delete_role(name)
            change.before = before
        return before

    def _mapped(self) -> frozenset[str]:
        """Return the roles that groups of the login provider stand for, as far as is known here."""
        settings = self._connections.settings
        rules = parse_groups(settings.oidc_groups, settings.namespace)
        return frozenset(
            name for given in rules.values() for _, roles in given for name in names_of(roles)
        )

    async def check_mapped(self) -> None:
        """Refuse groups of the login provider that stand for roles which don't exist."""
        own = sorted(self._mapped() - BUILT_IN.keys())
        known = [each.name for each in await (await self._store()).list_roles()] if own else []
        for name in own:
            if name not in known:
                raise ConfigError(f"oidc_groups: {unknown_role(name, known)}", field="oidc_groups")

    def permissions(self) -> Sequence[str]:
        """Return the permissions that a role may have."""
        return sorted(PERMISSIONS)

    def _refuse_built_in(self, name: str) -> None:
        if name in BUILT_IN:
            raise ConfigError(
                f"role {name!r} is built in, and can't be changed: define one under another name",
                field="name",
            )

    def _check_covered(self, by: Principal | None, roles: Sequence[RoleInfo]) -> None:
        if by is not None:
            for each in roles:
                try:
                    by.check_may_grant((each.role,), everywhere=True)
                except AccessDenied as error:
                    raise AccessDenied(str(error), field="permissions") from None
