"""All routes of the server: a module per noun, and the pages of the dashboard."""

from __future__ import annotations

from litestar.types import ControllerRouterHandler

from rota.server.api import (
    audit,
    bulk,
    callbacks,
    dead,
    endpoints,
    events,
    health,
    jobs,
    login,
    logs,
    metrics,
    namespaces,
    nodes,
    queues,
    schedules,
    session,
    sessions,
    tokens,
    webhooks,
    workers,
)
from rota.server.dashboard import routes as dashboard

NOUNS = (
    audit, bulk, callbacks, dead, endpoints, events, health, jobs, login, logs, metrics, namespaces,
    nodes, queues, schedules, session, sessions, tokens, webhooks, workers,
)  # fmt: skip


def all_routes() -> list[ControllerRouterHandler]:
    return [*(route for noun in NOUNS for route in noun.ROUTES), *dashboard.ROUTES]
