"""Policies of routes. Every route has one: the server does not start with a route without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from rota.core.access import Policy
from rota.core.roles import ADMIN_NOUNS, PERMISSIONS, SUBMIT, WORK
from rota.errors import ConfigError

if TYPE_CHECKING:
    from litestar import Litestar

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


PUBLIC = Policy(None)
VIEWER = Policy("viewer")
OPERATOR = Policy("operator")
ADMIN = Policy("admin")
WORKER = Policy("worker")
EVERYWHERE = Policy("admin", everywhere=True)


class RouteInfo(msgspec.Struct, frozen=True):
    """A route."""

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


_SUBMITS = frozenset({"/v1/jobs", "/v1/jobs:bulk"})


def scope_of(method: str, path: str) -> str:
    """Return the scope that a limited token needs for a route: ``jobs:read``, ``tokens:write``."""
    if method == "POST" and path in _SUBMITS:
        return SUBMIT
    parts = [part for part in path.split("/") if part]
    noun = parts[1] if len(parts) > 1 and parts[0] == "v1" else (parts[0] if parts else "root")
    noun = noun.partition(":")[0]  # /v1/jobs:bulk
    return f"{noun}:{'read' if method in SAFE_METHODS else 'write'}"


_VERBS = {"viewer": "read", "operator": "write", "admin": "manage"}


def permission_of(policy: Policy, method: str, path: str) -> str:
    """Return the permission that a route needs: ``queues:write``.

    What viewers may do is reading, also where it is asked by POST; of the nouns that only admins see the
    method decides.
    """
    scope = scope_of(method, path)
    noun = scope.partition(":")[0]
    if policy.role == "worker":
        return WORK
    if scope == SUBMIT or noun in ADMIN_NOUNS:
        return scope
    return f"{noun}:{_VERBS[policy.role or 'viewer']}"


def route_table(server: Litestar) -> Iterator[RouteInfo]:
    """Yield every route with its policy. A route without one raises an error that names it."""
    for route in server.routes:
        handlers: dict[str, Any] | None = getattr(route, "route_handler_map", None)
        if handlers is None or not hasattr(handlers, "items"):
            raise ConfigError(f"route {route.path}: only HTTP routes can have a policy")
        for method, (handler, _) in sorted(handlers.items()):
            if method == "OPTIONS" and handler.handler_name == "options_handler":
                continue  # Litestar's own: it only names the methods
            policy = policy_of(handler)
            if policy is None:
                raise ConfigError(
                    f"route {method} {route.path} ({handler.handler_name}) has no policy: "
                    "declare one, such as policy=VIEWER"
                )
            if policy.role:
                permission = permission_of(policy, str(method), route.path_format)
                if permission not in PERMISSIONS and permission != WORK:
                    raise ConfigError(
                        f"route {method} {route.path} ({handler.handler_name}) needs {permission}, "
                        "which no role has: add its noun to rota.core.roles"
                    )
            yield RouteInfo(str(method), route.path_format, handler.handler_name, policy)
