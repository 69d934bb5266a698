"""Requests about queues, nodes, dead letters and events, and about the token itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import quote
from uuid import UUID

import msgspec

from rota.client import wire
from rota.client.asking import Ask, Page, Talk, get, post, read
from rota.client.following import Follow
from rota.client.listing import Pages
from rota.model import ManyChanged, NodeStatus, QueueStatus
from rota.store.events import Event
from rota.store.search import DeadGroup


def queues() -> Talk[Sequence[QueueStatus]]:
    """List queues, with how full and how late they are."""
    return (yield from get("/v1/queues", wire.QueueList)).items


def queue(name: str) -> Talk[QueueStatus]:
    """Get a queue."""
    return get(f"/v1/queues/{quote(name, safe='')}", QueueStatus)


def pause_queue(name: str) -> Talk[QueueStatus]:
    """Start none of its jobs until it is resumed. Running jobs are not affected."""
    return post(f"/v1/queues/{quote(name, safe='')}/pause", QueueStatus, repeatable=True)


def resume_queue(name: str) -> Talk[QueueStatus]:
    """Start the jobs of a paused queue again."""
    return post(f"/v1/queues/{quote(name, safe='')}/resume", QueueStatus, repeatable=True)


def set_max_run_time(name: str, seconds: float | None) -> Talk[QueueStatus]:
    """Set how long an attempt of this queue's jobs may run when the job has no timeout.

    An attempt that runs longer is stopped, as after a timeout. None: the installation's maximum applies.
    """
    said = msgspec.json.encode({"max_run_time": seconds})
    path = f"/v1/queues/{quote(name, safe='')}"
    return read((yield Ask(method="PUT", path=path, body=said, repeatable=True)), QueueStatus)


def nodes(*, ended: bool = False) -> Talk[wire.NodeList]:
    """List the live nodes; with `ended`, also those that stopped or died within the last day."""
    return get("/v1/nodes", wire.NodeList, ended=ended)


def node(id: UUID | str) -> Talk[NodeStatus]:
    """Get a node."""
    return get(f"/v1/nodes/{quote(str(id), safe='')}", NodeStatus)


def dead(
    *, task: str | None = None, queue: str | None = None, limit: int = 100
) -> Talk[Sequence[DeadGroup]]:
    """List dead letters in groups by task and error, the largest first."""
    found = yield from get("/v1/dead", wire.DeadGroups, task=task, queue=queue, limit=limit)
    return found.items


def retry_group(
    fingerprint: str, *, dry_run: bool = False, limit: int = 10_000
) -> Talk[ManyChanged]:
    """Run a group's jobs again, the oldest first."""
    path = f"/v1/dead/{quote(fingerprint, safe='')}/retry"
    body = {"dry_run": dry_run, "limit": limit}
    return post(path, ManyChanged, body, repeatable=dry_run)


def discard_group(
    fingerprint: str, *, dry_run: bool = False, limit: int = 10_000
) -> Talk[ManyChanged]:
    """Take a group's jobs off the list for good."""
    path = f"/v1/dead/{quote(fingerprint, safe='')}/discard"
    body = {"dry_run": dry_run, "limit": limit}
    return post(path, ManyChanged, body, repeatable=dry_run)


def events(
    *, kind: str | None = None, since: datetime | None = None, limit: int | None = None,
    page_size: int = 100,
) -> Pages[Event]:  # fmt: skip
    """List events, newest first."""
    return Pages("/v1/events", Page[Event], {"kind": kind, "since": since}, limit, page_size)


def follow_events(*, kind: str | None = None, from_start: bool = False) -> Follow[Event]:
    """Follow events as they happen, without end; `from_start`: begin with the stored ones."""
    query = {"kind": kind, "after": "0.0" if from_start else None}
    return Follow("/v1/events/stream", query, Event)


def me() -> Talk[wire.Me]:
    """Who the token belongs to, and what it may do."""
    return get("/v1/session", wire.Me)
