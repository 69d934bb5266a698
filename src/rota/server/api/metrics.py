"""Stats for Prometheus (`/metrics`): of one's namespace, or of all for those who see all."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get
from litestar.params import HeaderParameter

from rota.observe import Metrics, shared_metrics
from rota.server.dependencies import ContextDep, PrincipalDep
from rota.server.policy import VIEWER


@get("/metrics", policy=VIEWER, summary="Stats for Prometheus", media_type="text/plain")
async def metrics(
    context: ContextDep,
    principal: PrincipalDep,
    accept: Annotated[str | None, HeaderParameter(name="Accept", required=False)] = None,
) -> Response[bytes]:
    """Of the namespace asked about; of all namespaces and the shards for those who see everything.

    The database is asked at most every few seconds, however often this is.
    """
    known = shared_metrics.get(context.app)
    if known is None:
        known = shared_metrics[context.app] = Metrics(context.database)
    namespace = None if principal.everywhere else principal.namespace
    body, content_type = await known.render(accept or "", namespace)
    return Response(body, headers={"Content-Type": content_type})


ROUTES = (metrics,)
