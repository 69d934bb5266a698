"""All pages of the dashboard. See the package's own words on how to make one."""

from __future__ import annotations

from importlib import import_module

from rota.server.dashboard.pages import prepare
from rota.server.dashboard.problems import problem_page

__all__ = ["ROUTES", "prepare", "problem_page"]

PAGES = (
    "login",
    "live",
    "overview",
    "jobs",
    "submit",
    "job",
    "schedules",
    "schedule_edit",
    "queues",
    "dead",
    "calendar",
    "cluster",
    "audit",
    "tokens",
    "people",
    "namespaces",
    "webhooks",
)

ROUTES = [
    route for name in PAGES for route in import_module(f"rota.server.dashboard.{name}").ROUTES
]
