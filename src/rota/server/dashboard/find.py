"""Finding: pages, jobs, tasks, schedules, queues, nodes and actions by a few letters.

The command palette (Ctrl-K) asks for `/find` and shows the links of its answer; without a script it is a
page like any other. The search field asks it for completions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import msgspec
from litestar.params import QueryParameter

from rota.model import State
from rota.operations.rota import Rota
from rota.server.dashboard import pages
from rota.server.dashboard.search_words import FILTERS
from rota.server.policy import ADMIN, OPERATOR, VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.store.dashboard import DashboardStore

_MOST = 8  # of a kind
_NAMES = 1_000  # of tasks and queues that are looked at
_ALL = 24
Text = Annotated[str, QueryParameter(max_length=200)]

# Pages that the navigation has no entry for, and what people come to do.
_PLACES = (
    ("/alerts", "Alerts", VIEWER), ("/events", "Events", VIEWER),
    ("/forecast", "The coming week", VIEWER),
    ("/calendars", "Named calendars", VIEWER), ("/endpoints", "Endpoints", VIEWER),
    ("/triggers", "Triggers", VIEWER),
    ("/jobs/changes", "Bulk actions", VIEWER), ("/views", "Saved views", VIEWER),
    ("/tokens", "Tokens", ADMIN), ("/users", "Users", ADMIN), ("/webhooks", "Webhooks", ADMIN),
    ("/namespaces", "Namespaces", VIEWER),
)  # fmt: skip
_ACTIONS = (
    ("/jobs/new", "Submit a job", OPERATOR), ("/schedules/new", "Create a schedule", OPERATOR),
    ("/dead", "Retry failed jobs", OPERATOR), ("/tokens", "Create a token", ADMIN),
    ("/webhooks", "Add a webhook", ADMIN), ("/users", "Add a user", ADMIN),
    ("/endpoints", "Add an endpoint", ADMIN),
)  # fmt: skip


class Found(msgspec.Struct, frozen=True):
    kind: str
    text: str
    href: str
    more: str = ""


@pages.page("/find", policy=VIEWER)
async def find(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, text: Text = ""
) -> pages.Html:
    found = await _find(request, tenant, stats, text.strip())
    return await pages.show(
        request,
        "find.html",
        found=found,
        text=text,
        completions=await _complete(stats, text),
    )


async def _find(
    request: RotaRequest, tenant: Rota, stats: DashboardStore, text: str
) -> Sequence[Found]:
    here = pages.Here(request)
    words = text.casefold()
    found: list[Found] = []
    with contextlib.suppress(ValueError):
        job = await tenant.jobs.find(UUID(text))
        if job is not None:
            found.append(
                Found("Job", f"{job.task} {job.id}", here.url(f"/jobs/{job.id}"), job.state)
            )
    for kind, entries in (("Page", (*pages.NAVIGATION, *_PLACES)), ("Action", _ACTIONS)):
        found += [
            Found(kind, word, here.url(path)) for path, word, policy in entries
            if here.may(policy, path) and words in word.casefold()
        ]  # fmt: skip
    for view in await stats.find_views(here.name, text, _ALL):
        more = "" if view.owner == here.name else f"of {view.owner}"
        found.append(Found("View", view.name, view.address, more))
    if not words:
        return found[:_ALL]
    found += await _nouns(stats, here, text)
    # What looks further than at names, and at more of them, is always offered.
    return [*found[:_ALL], *(
        Found("Search", f"{kind} with “{text}”", here.url(path, text=text))
        for kind, path in (("Jobs", "/jobs"), ("Schedules", "/schedules"))
    )]  # fmt: skip


async def _nouns(stats: DashboardStore, here: pages.Here, text: str) -> list[Found]:
    """Return what has the text in its name, of those names that are looked at."""
    found = [
        Found("Task", name, here.url(f"/tasks/{name}"))
        for name in await stats.find_tasks(text, _MOST)
    ]
    found += [
        Found("Schedule", one["name"], here.url(f"/schedules/{one['id']}"))
        for one in await stats.find_schedules(text, _MOST)
    ]
    found += [
        Found("Queue", name, here.url(f"/queues/{name}"))
        for name in await stats.find_queues(text, _MOST)
    ]
    found += [
        Found("Node", one.name, here.url(f"/nodes/{one.id}"), one.state)
        for one in await stats.find_nodes(text, _MOST)
    ]
    return found


async def _complete(stats: DashboardStore, text: str) -> list[str]:
    """Complete the last word of a search: the names of filters, then their values."""
    before, _, last = text.rpartition(" ")
    head = f"{before} " if before else ""
    name, colon, value = last.partition(":")
    if not colon:
        return [f"{head}{one}:" for one in FILTERS if last and one.startswith(last)][:_MOST]
    values: Sequence[str] = ()
    if name == "task":
        values = await stats.tasks(_NAMES)
    elif name == "queue":
        values = await stats.queue_names(_NAMES)
    elif name == "state":
        values = [state.label for state in State]
    elif name == "since":
        values = ("15m", "1h", "6h", "24h", "7d", "30d")
    starts = [one for one in values if one.startswith(value)]
    quoted = [f'"{one}"' if " " in one else one for one in starts[:_MOST]]
    return [f"{head}{name}:{one}" for one in quoted]


ROUTES = [find]
