"""Who may use a route. Each names its policy; one that doesn't keeps the server from starting."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import msgspec

from rota.errors import ConfigError

if TYPE_CHECKING:
    from litestar import Litestar

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Role(IntEnum):
    """Viewers look, operators submit and steer, admins decide about access. Workers are apart."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3
    WORKER = 4

    @property
    def label(self) -> str:
        return self.name.lower()

    @classmethod
    def parse(cls, text: str) -> Role:
        try:
            return cls[text.upper()]
        except KeyError:
            known = ", ".join(role.label for role in cls)
            raise ConfigError(f"role {text!r} is not one of: {known}") from None

    def includes(self, needed: Role) -> bool:
        """A worker's token runs jobs and nothing else; and nobody else's does."""
        if Role.WORKER in (self, needed):
            return self is needed
        return self >= needed


class Policy(msgspec.Struct, frozen=True):
    """What a route asks of who uses it. `role` None: nothing."""

    role: Role | None
    everywhere: bool = False  # only for those whose role holds in all namespaces
    audited: bool = True  # whether its changes are recorded

    @property
    def unaudited(self) -> Policy:
        return msgspec.structs.replace(self, audited=False)


PUBLIC = Policy(None)
VIEWER = Policy(Role.VIEWER)
OPERATOR = Policy(Role.OPERATOR)
ADMIN = Policy(Role.ADMIN)
WORKER = Policy(Role.WORKER, audited=False)
EVERYWHERE = Policy(Role.ADMIN, everywhere=True)


class RouteInfo(msgspec.Struct, frozen=True):
    """A line of the route table."""

    method: str
    path: str  # as in the code: /v1/jobs/{job_id:uuid}
    name: str
    policy: Policy

    @property
    def is_change(self) -> bool:
        return self.method not in SAFE_METHODS


def policy_of(handler: Any) -> Policy | None:
    policy = handler.opt.get("policy")
    return policy if isinstance(policy, Policy) else None


# What tokens can be limited to: the nouns of all routes, `jobs` or `jobs:read`.
SCOPE_NOUNS = frozenset({
    "audit", "calendar", "cluster", "dead", "endpoints", "events", "jobs", "live", "metrics",
    "namespaces", "nodes", "queues", "root", "schedules", "session", "sessions", "settings",
    "tokens", "webhooks", "workers", "users",
})  # fmt: skip
SUBMIT_SCOPE = "jobs:submit"  # a part of jobs:write
_SUBMITS = frozenset({"/v1/jobs", "/v1/jobs:bulk"})


def scope_of(method: str, path: str) -> str:
    """What a token that is limited to scopes needs for a route: ``jobs:read``, ``tokens:write``."""
    if method == "POST" and path in _SUBMITS:
        return SUBMIT_SCOPE
    parts = [part for part in path.split("/") if part]
    noun = parts[1] if len(parts) > 1 and parts[0] == "v1" else (parts[0] if parts else "root")
    noun = noun.partition(":")[0]  # /v1/jobs:bulk
    return f"{noun}:{'read' if method in SAFE_METHODS else 'write'}"


def route_table(server: Litestar) -> Iterator[RouteInfo]:
    """Every route, with its policy. A route without one is an error that names it."""
    for route in server.routes:
        handlers: dict[str, Any] | None = getattr(route, "route_handler_map", None)
        if handlers is None or not hasattr(handlers, "items"):
            raise ConfigError(f"route {route.path}: only HTTP routes can have a policy")
        for method, (handler, _) in sorted(handlers.items()):
            if method == "OPTIONS" and handler.handler_name == "options_handler":
                continue  # Litestar's own: tells the methods, and nothing else
            policy = policy_of(handler)
            if policy is None:
                raise ConfigError(
                    f"route {method} {route.path} ({handler.handler_name}) has no policy: "
                    "say who may use it, policy=VIEWER"
                )
            yield RouteInfo(str(method), route.path_format, handler.handler_name, policy)
