"""Which requests are answered by the read replica, and how old their data is.

Lists, states and pages of the dashboard, by `GET`. A request goes to the primary if it says
`Cache-Control: no-cache`, if the replica is away or too far behind, or if this server has changed
something in the namespace that the replica doesn't show yet: who has just paused a queue sees it paused.
The header `Rota-Data-Age` has the age in seconds; without it, the data is of this moment.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from rota.runtime.ticker import Service
from rota.store.replica import ReadReplica

if TYPE_CHECKING:
    from rota.operations.rota import Rota
    from rota.server.context import ServerContext

# Of the REST API. Pages of the dashboard name themselves: see `page`.
PATHS = frozenset({
    "/v1/jobs", "/v1/jobs/{job_id}", "/v1/jobs/{job_id}/result", "/v1/jobs/{job_id}/attempts",
    "/v1/dead", "/v1/queues", "/v1/schedules", "/v1/events", "/v1/nodes", "/v1/runs",
})  # fmt: skip


class ReplicaWatch(Service):
    """Looks how far behind the replica is."""

    name = "read replica"

    def __init__(self, replica: ReadReplica) -> None:
        self._replica = replica

    async def tick(self) -> float:
        return await self._replica.tick()


class Reading:
    """The decision for each request of a server that has a replica."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context
        self._changed: dict[str, float] = {}

    def rota_for(self, request: Any) -> Rota:
        """Return the operations that answer a request: on the replica, or on the primary."""
        context, namespace = self._context, request.principal.namespace
        state: dict[str, Any] = request.scope["state"]
        replica = context.replica
        if (
            replica is None
            or request.method not in ("GET", "HEAD")
            or not _may_be_old(request)
            or not replica.serves(self._changed.get(namespace))
        ):
            return context.tenant(namespace)
        state["data_age"] = replica.age
        return context.reader(namespace)

    def note_change(self, namespace: str) -> None:
        """Note that something may have changed up to now. All of it is committed by then."""
        self._changed[namespace] = monotonic()


def _may_be_old(request: Any) -> bool:
    handler = request.scope["route_handler"]
    if not handler.opt.get("replica") and request.scope.get("path_template") not in PATHS:
        return False
    return "no-cache" not in request.headers.get("cache-control", "").lower()
