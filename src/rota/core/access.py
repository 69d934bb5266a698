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
from rota.errors import AccessDenied, ConfigError
from rota.model import Labelled

ANYWHERE = "*"  # the namespace of a role that holds in all of them

# The nouns that a token can be limited to, as `jobs` or `jobs:read`: those of all routes.
SCOPE_NOUNS = frozenset({
    "alerts", "audit", "calendar", "calendars", "cluster", "dead", "doctor", "endpoints", "events",
    "find", "forecast", "history", "jobs", "limits", "live", "maintenance", "metrics",
    "namespaces", "nodes", "pools", "queues", "root", "runs", "schedules", "session", "sessions",
    "settings", "shards", "signals", "sinks", "tasks", "tokens", "triggers", "users", "views",
    "webhooks", "workers", "workflows",
})  # fmt: skip
SUBMIT_SCOPE = "jobs:submit"  # a part of jobs:write

_SCOPE = re.compile(r"[a-z]{1,30}(:(read|write))?")
_MAX_SCOPES = 50
_MAX_LISTED = 100  # tasks or queues of a token


class Role(Labelled):
    """A viewer reads, an operator controls jobs, an admin manages access, a worker runs jobs."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3
    WORKER = 4

    @classmethod
    def of_user(cls, text: str) -> Role:
        """Parse the role of somebody who logs in, which can't be worker."""
        role = cls.parse(text)
        if role is cls.WORKER:
            raise ConfigError(
                "users are viewer, operator or admin; a worker needs a token: "
                "`rota tokens create NAME --role worker`",
                field="role",
            )
        return role

    def includes(self, needed: Role) -> bool:
        """Return whether this role permits what `needed` does. A worker runs jobs and nothing else."""
        if Role.WORKER in (self, needed):
            return self is needed
        return self >= needed


class Policy(msgspec.Struct, frozen=True):
    """The role that a route requires; None: the route is public."""

    role: Role | None
    everywhere: bool = False  # the role must hold in all namespaces


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A user or token, with its roles in all namespaces."""

    id: UUID
    name: str
    kind: str  # token, session
    memberships: Mapping[str, Role]
    scopes: tuple[str, ...] = ()  # empty: no limit but the role's
    tasks: tuple[str, ...] = ()  # the tasks whose jobs it may submit; empty: all
    prefix: str | None = None  # of a token
    expires_at: datetime | None = None
    submits_per_second: float | None = None  # of a token: jobs that its requests may submit
    queues: tuple[str, ...] = ()  # to which it may submit jobs; empty: all

    @property
    def via(self) -> str:
        """The token or session, as the audit log names it."""
        return f"token {self.prefix}" if self.prefix else f"{self.kind} {self.id}"

    def role_in(self, namespace: str) -> Role | None:
        found = [
            self.memberships[name] for name in (namespace, ANYWHERE) if name in self.memberships
        ]
        return max(found, default=None)

    def home(self, default: str) -> str | None:
        """Return the namespace of a request that names none."""
        if self.role_in(default) is not None:
            return default
        own = sorted(name for name in self.memberships if name != ANYWHERE)
        return own[0] if own else None

    def within(self, namespace: str) -> Principal | None:
        role = self.role_in(namespace)
        if role is None:
            return None
        return Principal(identity=self, namespace=namespace, role=role)


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """An identity in the namespace of a request."""

    identity: Identity
    namespace: str
    role: Role

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def scopes(self) -> tuple[str, ...]:
        return self.identity.scopes

    @property
    def everywhere(self) -> bool:
        """True if the role holds in all namespaces."""
        return self.identity.memberships.get(ANYWHERE) is self.role

    @property
    def reach(self) -> str | None:
        """The namespace that it administers; None: all of them."""
        return None if self.everywhere else self.namespace

    def may(self, policy: Policy) -> bool:
        if policy.role is None:
            return True
        return self.role.includes(policy.role) and (self.everywhere or not policy.everywhere)

    def has_scope(self, scope: str) -> bool:
        """Return whether its scopes include this one: ``jobs`` includes ``jobs:read``."""
        noun = scope.partition(":")[0]
        wider = {scope, noun} | ({"jobs:write"} if scope == SUBMIT_SCOPE else set())
        return not self.scopes or not wider.isdisjoint(self.scopes)

    def may_submit(self, task: str) -> bool:
        tasks = self.identity.tasks
        return not tasks or _is_listed(task, tasks)

    def may_submit_to(self, queue: str | None) -> bool:
        """Return whether it may submit a job to a queue. None is the queue of the job's task, which may
        change: who is limited to queues has to name one."""
        queues = self.identity.queues
        return not queues or (queue is not None and _is_listed(queue, queues))

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
        if noun not in SCOPE_NOUNS or (scope != SUBMIT_SCOPE and not _SCOPE.fullmatch(scope)):
            near = get_close_matches(noun, sorted(SCOPE_NOUNS), 1, 0.5)
            meant = near[0] + (f":{what}" if what in ("read", "write") else "") if near else ""
            raise ConfigError(
                f"scopes: there is no scope {scope[:50]!r}"
                + (f"; do you mean {meant!r}? " if meant and meant != scope else ". ")
                + f"A scope is one of {', '.join(sorted(SCOPE_NOUNS))}, alone or with :read or "
                f":write; or {SUBMIT_SCOPE}",
                field="scopes",
            )
    if len(scopes) > _MAX_SCOPES:
        raise ConfigError(f"a token can have at most {_MAX_SCOPES} scopes", field="scopes")
    return sorted(set(scopes))


def check_submits(
    what: Literal["tasks", "queues"], entries: Sequence[str], scopes: Sequence[str], role: str
) -> list[str]:
    """Check a token's limit to tasks or queues. Such a token can only submit jobs."""
    if not entries:
        return []
    if len(entries) > _MAX_LISTED:
        raise ConfigError(f"{what}: a token can have at most {_MAX_LISTED}", field=what)
    for entry in entries:
        if name := entry.removesuffix("*"):
            check_name(f"{what}:", name)
    if not Role.parse(role).includes(Role.OPERATOR):
        raise ConfigError(
            f"role: a token that is limited to {what} submits jobs, which needs the role operator, "
            f"not {role}",
            field="role",
        )
    if set(scopes) - {SUBMIT_SCOPE}:
        raise ConfigError(
            f"scopes: a token that is limited to {what} can only submit ({SUBMIT_SCOPE}); create "
            "another token for the rest",
            field="scopes",
        )
    return sorted(set(entries))


def _is_listed(name: str, entries: Sequence[str]) -> bool:
    return any(
        name.startswith(entry[:-1]) if entry.endswith("*") else name == entry for entry in entries
    )


def is_label(name: str) -> bool:
    """Return whether a user or token can have this name."""
    return 1 <= len(name) <= 200 and name.isprintable()


def check_label(noun: str, name: str) -> None:
    """Check the name of a user or token, which is any printable text."""
    if not is_label(name):
        raise ConfigError(f"a {noun}'s name must have 1 to 200 printable characters", field="name")
