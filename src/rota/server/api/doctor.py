"""REST route of the check-up."""

from __future__ import annotations

from litestar import get

from rota.core.administration import Diagnosis
from rota.operations.doctor import examine
from rota.server.policy import EVERYWHERE
from rota.server.requests import ContextDep


@get("/v1/doctor", policy=EVERYWHERE, summary="Check the database and the installation")
async def diagnose(context: ContextDep) -> Diagnosis:
    """Check the database and the installation from this server. Nothing is changed."""
    return await examine(context.database, context.settings)


ROUTES = [diagnose]
