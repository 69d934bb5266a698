"""All pages of the dashboard. The package's docstring says how to add one."""

from __future__ import annotations

from rota.server.dashboard import (
    audit,
    calendar,
    cluster,
    dead,
    job,
    jobs,
    live,
    login,
    namespaces,
    overview,
    queues,
    schedule_edit,
    schedules,
    submit,
    tokens,
    users,
    webhooks,
)

PAGES = (
    login, live, overview, jobs, submit, job, schedules, schedule_edit, queues, dead, calendar, cluster,
    audit, tokens, users, namespaces, webhooks,
)  # fmt: skip

ROUTES = [route for page in PAGES for route in page.ROUTES]
