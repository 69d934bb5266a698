"""What is said about queues, nodes, dead letters and events, and about oneself."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote
from uuid import UUID

import msgspec

from rota.client import answers
from rota.client.asking import Ask, Page, Talk, get, post, read
from rota.client.following import Follow
from rota.client.listing import Pages
from rota.model import NodeStatus, QueueStatus
from rota.store.events import Event
from rota.store.search import DeadGroup


def queues() -> Talk[list[QueueStatus]]:
    """All queues, with how full and how late they are."""
    return (yield from get("/v1/queues", answers.QueueList)).items


def queue(name: str) -> Talk[QueueStatus]:
    """One queue."""
    return get(f"/v1/queues/{quote(name, safe='')}", QueueStatus)


def pause_queue(name: str) -> Talk[QueueStatus]:
    """None of its jobs is started until it is resumed. What runs goes on."""
    return post(f"/v1/queues/{quote(name, safe='')}/pause", QueueStatus, repeatable=True)


def resume_queue(name: str) -> Talk[QueueStatus]:
    """Its jobs are started again."""
    return post(f"/v1/queues/{quote(name, safe='')}/resume", QueueStatus, repeatable=True)


def set_max_run_time(name: str, seconds: float | None) -> Talk[QueueStatus]:
    """Set how long an attempt of this queue's jobs may run when the job has no timeout.

    What runs longer is stopped, as after a timeout. None: the installation's maximum counts.
    """
    said = msgspec.json.encode({"max_run_time": seconds})
    path = f"/v1/queues/{quote(name, safe='')}"
    return read((yield Ask(method="PUT", path=path, body=said, repeatable=True)), QueueStatus)


def nodes(*, ended: bool = False) -> Talk[answers.NodeList]:
    """The live nodes; with `ended`, also those that stopped or died within the last day."""
    return get("/v1/nodes", answers.NodeList, ended=ended)


def node(id: UUID | str) -> Talk[NodeStatus]:
    """One node."""
    return get(f"/v1/nodes/{quote(str(id), safe='')}", NodeStatus)


def dead(
    *, task: str | None = None, queue: str | None = None, limit: int = 100
) -> Talk[list[DeadGroup]]:
    """Jobs that failed for good, in groups by task and error, the largest first."""
    found = yield from get("/v1/dead", answers.DeadGroups, task=task, queue=queue, limit=limit)
    return found.items


def retry_group(
    fingerprint: str, *, dry_run: bool = False, limit: int = 10_000
) -> Talk[answers.ManyChanged]:
    """Run a group's jobs again, the oldest first."""
    path = f"/v1/dead/{quote(fingerprint, safe='')}/retry"
    body = {"dry_run": dry_run, "limit": limit}
    return post(path, answers.ManyChanged, body, repeatable=dry_run)


def discard_group(
    fingerprint: str, *, dry_run: bool = False, limit: int = 10_000
) -> Talk[answers.ManyChanged]:
    """Take a group's jobs off the list for good."""
    path = f"/v1/dead/{quote(fingerprint, safe='')}/discard"
    body = {"dry_run": dry_run, "limit": limit}
    return post(path, answers.ManyChanged, body, repeatable=dry_run)


def events(
    *, kind: str | None = None, since: datetime | None = None, limit: int | None = None,
    page_size: int = 100,
) -> Pages[Event]:  # fmt: skip
    """What people should hear of, the newest first."""
    return Pages("/v1/events", Page[Event], {"kind": kind, "since": since}, limit, page_size)


def follow_events(*, kind: str | None = None, from_start: bool = False) -> Follow[Event]:
    """Events as they happen, without end; `from_start`: after all that are there already."""
    query = {"kind": kind, "after": "0.0" if from_start else None}
    return Follow("/v1/events/stream", query, Event)


def me() -> Talk[answers.Me]:
    """Who the token belongs to, and what it may do."""
    return get("/v1/session", answers.Me)
