"""Who asks, and what they may do in the namespace they ask about."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

import msgspec

from rota.server.policy import SUBMIT_SCOPE, Policy, Role

ANYWHERE = "*"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who it is, in all namespaces."""

    id: UUID
    name: str
    kind: str  # token, session
    memberships: Mapping[str, Role]
    scopes: tuple[str, ...] = ()  # empty: no limit but the role's
    tasks: tuple[str, ...] = ()  # whose jobs it may submit; empty: all
    prefix: str | None = None  # of a token
    expires_at: datetime | None = None

    @property
    def via(self) -> str:
        """How they came in, for the audit."""
        return f"token {self.prefix}" if self.prefix else f"{self.kind} {self.id}"

    def role_in(self, namespace: str) -> Role | None:
        found = [
            self.memberships[name] for name in (namespace, ANYWHERE) if name in self.memberships
        ]
        return max(found, default=None)

    def home(self, default: str) -> str | None:
        """The namespace that is meant when none is named."""
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
    """Who it is, in the namespace of the request."""

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
        """Whether the role holds in all namespaces."""
        return self.identity.memberships.get(ANYWHERE) is self.role

    def may(self, policy: Policy) -> bool:
        if policy.role is None:
            return True
        return self.role.includes(policy.role) and (self.everywhere or not policy.everywhere)

    def has_scope(self, scope: str) -> bool:
        """``jobs`` covers ``jobs:read`` and ``jobs:write``."""
        noun = scope.partition(":")[0]
        wider = {scope, noun} | ({"jobs:write"} if scope == SUBMIT_SCOPE else set())
        return not self.scopes or not wider.isdisjoint(self.scopes)

    def may_submit(self, task: str) -> bool:
        tasks = self.identity.tasks
        return not tasks or any(
            task.startswith(entry[:-1]) if entry.endswith("*") else task == entry for entry in tasks
        )
