"""Actions beside sentences: what an explanation or an alert says can be done, as links and forms."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

import msgspec

from rota.model import Remedy
from rota.server.dashboard.pages import Here

# The address of a link, by verb; the subject is filled in.
_LINKS = {
    "show_cluster": "/cluster", "show_queue": "/queues/{}", "show_queues": "/queues",
    "raise_limit": "/queues/{}",
    "show_job": "/jobs/{}", "show_task": "/tasks/{}", "show_tasks": "/tasks", "show_node": "/nodes/{}",
    "show_schedule": "/schedules/{}", "show_schedules": "/schedules", "show_runs": "/runs",
    "show_dead": "/dead",
}  # fmt: skip
# The same with parameters: the path, and the parameter that the subject is.
_FILTERS = {
    "show_failures": ("/dead", "task"), "show_ready": ("/jobs", "queue"),
    "show_events": ("/events", "kind"), "submit_again": ("/jobs/new", "from"),
    "show_ended_nodes": ("/cluster", ""),
}  # fmt: skip
_FIXED = {"show_ready": {"state": "ready"}, "show_ended_nodes": {"ended": "yes"}}
_ANCHORS = {"raise_limit": "#settings"}
_FORMS = {
    "resume_queue": "/queues/{}/resume", "retry_job": "/jobs/{}/retry", "cancel_job": "/jobs/{}/cancel",
}  # fmt: skip
_OPERATORS_ONLY = {*_FORMS, "submit_again", "raise_limit"}


class Button(msgspec.Struct, frozen=True):
    """A link, or a form with one button (`posts`)."""

    path: str
    text: str
    posts: bool = False


def buttons(remedies: Iterable[Remedy], here: Here) -> list[Button]:
    """Return what this user may do. Verbs that this release doesn't know are left out."""
    found = []
    for one in remedies:
        if one.verb in _OPERATORS_ONLY and not here.operates:
            continue
        subject = quote(one.subject, safe="")
        if one.verb in _FORMS:
            found.append(Button(_FORMS[one.verb].format(subject), one.text, posts=True))
        elif one.verb in _LINKS:
            path = here.url(_LINKS[one.verb].format(one.subject)) + _ANCHORS.get(one.verb, "")
            found.append(Button(path, one.text))
        elif one.verb in _FILTERS:
            path, name = _FILTERS[one.verb]
            given = _FIXED.get(one.verb, {}) | ({name: one.subject} if name else {})
            found.append(Button(here.url(path, **given), one.text))
    return found
