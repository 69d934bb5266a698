"""All routes of the server: the REST API, the login, and the pages of the dashboard."""

from __future__ import annotations

from litestar.types import ControllerRouterHandler

from rota.server import login
from rota.server.api import (
    access,
    bulk,
    callbacks,
    dead,
    doctor,
    endpoints,
    health,
    jobs,
    queues,
    runs,
    schedule_sets,
    schedules,
    streams,
    tasks,
    triggers,
    users,
    workers,
    workflows,
)
from rota.server.dashboard import (
    calendar,
    cluster,
    job,
    live,
    nodes,
    overview,
    pages,
    schedule_edit,
    settings,
)
from rota.server.dashboard import doctor as doctor_page
from rota.server.dashboard import jobs as job_pages
from rota.server.dashboard import queues as queue_pages
from rota.server.dashboard import runs as run_pages
from rota.server.dashboard import schedules as schedule_pages
from rota.server.dashboard import tasks as task_pages

_MODULES = (
    access, users, bulk, callbacks, endpoints, health, jobs, dead, doctor, queues, runs, schedules,
    schedule_sets, streams, tasks, triggers, workers, workflows, login,
    pages, live, overview, job_pages, job, run_pages, schedule_pages, schedule_edit, queue_pages,
    calendar,
    cluster, doctor_page, nodes, task_pages, settings,
)  # fmt: skip


def all_routes() -> list[ControllerRouterHandler]:
    return [route for module in _MODULES for route in module.ROUTES]
