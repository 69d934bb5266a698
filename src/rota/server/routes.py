"""All routes of the server, a module per noun."""

from __future__ import annotations

from importlib import import_module

from litestar.types import ControllerRouterHandler

NOUNS = (
    "audit",
    "bulk",
    "dead",
    "events",
    "health",
    "jobs",
    "login",
    "logs",
    "metrics",
    "namespaces",
    "nodes",
    "queues",
    "schedules",
    "session",
    "tokens",
)


def all_routes() -> list[ControllerRouterHandler]:
    modules = [import_module(f"rota.server.api.{noun}") for noun in NOUNS]
    return [route for module in modules for route in module.ROUTES]
