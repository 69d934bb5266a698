"""All routes of the server, a module per noun, and the pages of the dashboard.

The dashboard is a layer above this one, found by its name: its pages are routes like all others, with a
policy each.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from litestar import Request, Response
from litestar.types import ControllerRouterHandler

from rota.server.problems import Problem

DASHBOARD = "rota.server.dashboard.routes"

NOUNS = (
    "audit",
    "bulk",
    "callbacks",
    "dead",
    "endpoints",
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
    "sessions",
    "tokens",
    "webhooks",
    "workers",
)


def all_routes() -> list[ControllerRouterHandler]:
    modules = [import_module(f"rota.server.api.{noun}") for noun in NOUNS]
    modules.append(import_module(DASHBOARD))
    return [route for module in modules for route in module.ROUTES]


def problem_page() -> Callable[[Request[Any, Any, Any], Problem], Response[Any] | None]:
    """How a problem is told to somebody who looks at it in a browser; None: as to a program."""
    tell: Callable[[Request[Any, Any, Any], Problem], Response[Any] | None]
    tell = import_module(DASHBOARD).problem_page
    return tell


def prepare_pages() -> None:
    """What the dashboard has to do once; it takes a while."""
    import_module(DASHBOARD).prepare()
