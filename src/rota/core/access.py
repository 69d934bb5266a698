"""Roles, scopes and policies: what an identity may do, and in which namespace."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Literal
from uuid import UUID

import msgspec

from rota.config import check_name
from rota.core.roles import (
    ADMIN,
    ANYWHERE,
    NOUNS,
    SUBMIT,
    WORKER,
    Roles,
    beyond,
    is_listed,
    label_of,
)
from rota.errors import AccessDenied, ConfigError

_SCOPE = re.compile(r"[a-z]{1,30}(:(read|write))?")
_MAX_SCOPES = 50
_MAX_LISTED = 100  # tasks or queues of a token

NO_ROLES: Roles = ()


class Policy(msgspec.Struct, frozen=True):
    """The smallest built-in role that may use a route; None: the route is public.

    Route and policy together say which permission is needed: `rota.server.policy.permission_of`.
    """

    role: str | None
    everywhere: bool = False  # the role must hold in all namespaces


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A user or token, with its roles in all namespaces."""

    id: UUID
    name: str
    kind: str  # token, session
    memberships: Mapping[str, Roles]
    scopes: tuple[str, ...] = ()  # empty: no limit but the role's
    tasks: tuple[str, ...] = ()  # the tasks whose jobs it may submit; empty: all
    prefix: str | None = None  # of a token
    expires_at: datetime | None = None
    submits_per_second: float | None = None  # of a token: jobs that its requests may submit
    queues: tuple[str, ...] = ()  # to which it may submit jobs; empty: all
    has_own_roles: bool = False  # roles that are not built-in, and so may change

    @property
    def via(self) -> str:
        """The token or session, as the audit log names it."""
        return f"token {self.prefix}" if self.prefix else f"{self.kind} {self.id}"

    def roles_in(self, namespace: str) -> Roles:
        """Return the roles that hold in a namespace: those given there, and those given everywhere."""
        found = self.memberships.get(namespace, NO_ROLES)
        if ANYWHERE in self.memberships:
            found += tuple(role for role in self.memberships[ANYWHERE] if role not in found)
        return tuple(role for role in found if role.holds_in(namespace))

    def home(self, default: str) -> str | None:
        """Return the namespace of a request that names none."""
        if self.roles_in(default):
            return default
        named = {name for role in self.memberships.get(ANYWHERE, ()) for name in role.namespaces}
        own = sorted(
            name for name in {*self.memberships, *named} - {ANYWHERE} if self.roles_in(name)
        )
        return own[0] if own else None

    def within(self, namespace: str) -> Principal | None:
        roles = self.roles_in(namespace)
        return Principal(identity=self, namespace=namespace, roles=roles) if roles else None


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """An identity in the namespace of a request."""

    identity: Identity
    namespace: str
    roles: Roles

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def role(self) -> str:
        """The names of its roles."""
        return label_of(self.roles)

    @property
    def scopes(self) -> tuple[str, ...]:
        return self.identity.scopes

    @property
    def everywhere(self) -> bool:
        """True if everything that it may do here, it may do in all namespaces."""
        unlimited = [
            role for role in self.identity.memberships.get(ANYWHERE, ()) if not role.namespaces
        ]
        return bool(unlimited) and not beyond(self.roles, unlimited)

    @property
    def reach(self) -> str | None:
        """The namespace that it administers; None: all of them."""
        return None if self.everywhere else self.namespace

    def holds(self, permission: str, *, everywhere: bool = False) -> bool:
        """Return whether its roles have a permission; with `everywhere` in all namespaces."""
        return any(permission in role.permissions for role in self.roles) and (
            not everywhere or self.everywhere
        )

    def has_scope(self, scope: str) -> bool:
        """Return whether its scopes include this one: ``jobs`` includes ``jobs:read``."""
        noun = scope.partition(":")[0]
        wider = {scope, noun} | ({"jobs:write"} if scope == SUBMIT else set())
        return not self.scopes or not wider.isdisjoint(self.scopes)

    @property
    def names_queues(self) -> bool:
        """True if it may only submit jobs to some queues."""
        return bool(self.identity.queues) or all(
            role.queues for role in self.roles if SUBMIT in role.permissions
        )

    def refusal_of(self, task: str, queue: str | None) -> str | None:
        """Return why it may not submit a job; None: it may. Without a queue the job goes to that of its
        task, which may change: who is limited to queues has to name one."""
        identity = self.identity
        if identity.tasks and not is_listed(task, identity.tasks):
            return f"this token can only submit jobs of {', '.join(identity.tasks)}, not of {task}"
        wrong = "name one of them" if queue is None else f"not to {queue}"
        if identity.queues and (queue is None or not is_listed(queue, identity.queues)):
            only = ", ".join(identity.queues)
            return f"this token can only submit jobs to queue {only}: {wrong}"
        if any(role.may_submit(task, queue) for role in self.roles):
            return None
        limits = "; ".join(
            f"{role.name}: " + ", ".join(
                [f"task {each}" for each in role.tasks] + [f"queue {each}" for each in role.queues]
            )
            for role in self.roles if SUBMIT in role.permissions
        )  # fmt: skip
        where = "without a queue" if queue is None else f"in queue {queue}"
        return f"your roles permit no job of {task} {where}; they permit {limits}"

    def _unscoped(self, roles: Roles, scopes: Sequence[str]) -> Roles:
        """Return roles without the permissions that a token with these scopes can't use."""
        if not scopes:
            return roles
        token = msgspec.structs.replace(
            self, identity=msgspec.structs.replace(self.identity, scopes=tuple(scopes))
        )
        return tuple(
            msgspec.structs.replace(role, permissions=frozenset(
                each for each in role.permissions if token.has_scope(each.replace(":manage", ":write"))
            ))
            for role in roles
        )  # fmt: skip

    def check_may_grant(
        self, roles: Roles, *, everywhere: bool, scopes: Sequence[str] = ()
    ) -> None:
        """Refuse to give roles that permit more than the one who gives them may do.

        Roles that are given in all namespaces must be held in all. `scopes` are those of a token that
        gets the roles, which limit what it can do with them.
        """
        if everywhere and not self.everywhere:
            raise AccessDenied(
                "only who has these permissions in all namespaces can give them in all",
                field="everywhere",
            )
        own = self._unscoped(self.roles, self.scopes)
        # Admins make the tokens of workers, although they don't work.
        lends = not beyond([ADMIN], self.roles)
        lent = WORKER.permissions if lends else frozenset()
        if missing := beyond(self._unscoped(roles, scopes), own, lent):
            raise AccessDenied(
                f"role: {label_of(roles)} permits {', '.join(missing[:10])}"
                + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
                + ", which you may not do yourself; nobody can give more than they have",
                field="role",
            )  # fmt: skip

    def check_may_create_token(self, scopes: Sequence[str], *, everywhere: bool) -> None:
        """Refuse a new token that could do more than its creator."""
        if everywhere and not self.everywhere:
            raise AccessDenied(
                "a token for all namespaces can only be created by an admin of all namespaces",
                field="everywhere",
            )
        beyond = [scope for scope in scopes if not self.has_scope(scope)]
        if beyond or (self.scopes and not scopes):
            raise AccessDenied(
                "a token with scopes can only create tokens with some of the same scopes",
                code="scope", field="scopes",
            )  # fmt: skip

    def limit_expiry(self, wanted: datetime | None) -> datetime | None:
        """Return the expiry of a token created by this principal: no later than the creator's own.

        A session limits nothing: it is short by nature, and a person's.
        """
        last = self.identity.expires_at if self.identity.prefix is not None else None
        if last is None or (wanted is not None and wanted <= last):
            return wanted
        if wanted is None:
            return last
        raise AccessDenied(
            "expires_at: a token can't create a token that outlives it; "
            f"choose {last.isoformat()} or earlier",
            field="expires_at",
        )


def check_scopes(scopes: Sequence[str]) -> list[str]:
    for scope in scopes:
        noun, _, what = scope.partition(":")
        if noun not in NOUNS or (scope != SUBMIT and not _SCOPE.fullmatch(scope)):
            near = get_close_matches(noun, sorted(NOUNS), 1, 0.5)
            meant = near[0] + (f":{what}" if what in ("read", "write") else "") if near else ""
            raise ConfigError(
                f"scopes: there is no scope {scope[:50]!r}"
                + (f"; do you mean {meant!r}? " if meant and meant != scope else ". ")
                + f"A scope is one of {', '.join(sorted(NOUNS))}, alone or with :read or "
                f":write; or {SUBMIT}",
                field="scopes",
            )
    if len(scopes) > _MAX_SCOPES:
        raise ConfigError(f"a token can have at most {_MAX_SCOPES} scopes", field="scopes")
    return sorted(set(scopes))


def check_submits(
    what: Literal["tasks", "queues"], entries: Sequence[str], scopes: Sequence[str], roles: Roles
) -> list[str]:
    """Check a token's limit to tasks or queues. Such a token can only submit jobs."""
    if not entries:
        return []
    if len(entries) > _MAX_LISTED:
        raise ConfigError(f"{what}: a token can have at most {_MAX_LISTED}", field=what)
    for entry in entries:
        if name := entry.removesuffix("*"):
            check_name(f"{what}:", name)
    if not any(SUBMIT in each.permissions for each in roles):
        raise ConfigError(
            f"role: a token that is limited to {what} submits jobs, which needs the role operator, "
            f"or one with {SUBMIT}, not {label_of(roles)}",
            field="role",
        )
    if set(scopes) - {SUBMIT}:
        raise ConfigError(
            f"scopes: a token that is limited to {what} can only submit ({SUBMIT}); create "
            "another token for the rest",
            field="scopes",
        )
    return sorted(set(entries))


def is_label(name: str) -> bool:
    """Return whether a user or token can have this name."""
    return 1 <= len(name) <= 200 and name.isprintable()


def check_label(noun: str, name: str) -> None:
    """Check the name of a user or token, which is any printable text."""
    if not is_label(name):
        raise ConfigError(f"a {noun}'s name must have 1 to 200 printable characters", field="name")
