"""All routes of the server: the REST API, the login, and the pages of the dashboard."""

from __future__ import annotations

from litestar.types import ControllerRouterHandler

from rota.server import login, status
from rota.server.api import (
    access,
    alerts,
    bulk,
    callbacks,
    dead,
    doctor,
    endpoints,
    health,
    inboxes,
    jobs,
    maintenance,
    pools,
    queues,
    roles,
    runs,
    schedule_sets,
    schedules,
    sinks,
    streams,
    tasks,
    triggers,
    users,
    workers,
    workflows,
)
from rota.server.dashboard import alerts as alert_pages
from rota.server.dashboard import bulk as bulk_pages
from rota.server.dashboard import (
    calendar,
    cluster,
    compare,
    find,
    forecast,
    job,
    job_log,
    live,
    look,
    nodes,
    overview,
    pages,
    queue,
    schedule_edit,
    services,
    settings,
    views,
)
from rota.server.dashboard import doctor as doctor_page
from rota.server.dashboard import jobs as job_pages
from rota.server.dashboard import queues as queue_pages
from rota.server.dashboard import roles as role_pages
from rota.server.dashboard import runs as run_pages
from rota.server.dashboard import schedules as schedule_pages
from rota.server.dashboard import tasks as task_pages
from rota.server.dashboard import triggers as trigger_pages

_MODULES = (
    access, users, roles, alerts, bulk, callbacks, endpoints, health, inboxes, jobs, dead, doctor,
    maintenance,
    pools, queues, runs, schedules, schedule_sets, sinks, streams, tasks, triggers, workers,
    workflows, login, status, pages, live, overview, alert_pages, bulk_pages, queue, compare, find,
    forecast, job_log, look, views, services, job_pages, job, run_pages, schedule_pages,
    schedule_edit, queue_pages, calendar, cluster, doctor_page, nodes, task_pages, settings,
    trigger_pages, role_pages,
)  # fmt: skip


def all_routes() -> list[ControllerRouterHandler]:
    return [route for module in _MODULES for route in module.ROUTES]
