"""What a handler can ask for by name, with the types that say so.

`context`: ServerContext, `principal`: who asks, `tenant`: the app of their namespace, `quotas`.
Of the request itself: Litestar's `FromPath[...]`, `FromQuery[...]`, `FromHeader[...]`, `JSONBody[...]`.
"""

from __future__ import annotations

from typing import TypeAlias

from litestar.datastructures import State
from litestar.di import NamedDependency, Provide

from rota.core.access import Principal
from rota.operations.rota import Rota
from rota.server.context import ServerContext
from rota.server.requests import RotaRequest

ContextDep: TypeAlias = NamedDependency[ServerContext]
PrincipalDep: TypeAlias = NamedDependency[Principal]
TenantDep: TypeAlias = NamedDependency[Rota]


def provide_context(state: State) -> ServerContext:
    context: ServerContext = state.context
    return context


def provide_principal(request: RotaRequest) -> Principal:
    return request.principal


def provide_tenant(request: RotaRequest) -> Rota:
    return request.context.tenants.get(request.principal.namespace)


DEPENDENCIES = {
    "context": Provide(provide_context, sync_to_thread=False),
    "principal": Provide(provide_principal, sync_to_thread=False),
    "tenant": Provide(provide_tenant, sync_to_thread=False),
}
