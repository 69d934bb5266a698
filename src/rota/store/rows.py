"""Rows to structs and back: the one place that knows how the tables spell things."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

import msgspec

from rota.model import Attempt, Failure, Guarantee, Job, NodeStatus, QueueStatus, State

_attempts = msgspec.json.Decoder(list[Attempt])
_failure = msgspec.json.Decoder(Failure)


class Opener(Protocol):
    """Reads what may be encrypted. See `rota.store.encrypted`."""

    def shown(self, text: str | None, id: UUID, field: str, task: str = "") -> Any: ...
    def shown_failure(self, failure: Failure | None, id: UUID) -> Failure | None: ...
    def shown_attempts(self, attempts: list[Attempt], id: UUID) -> list[Attempt]: ...


class NewJob(msgspec.Struct, omit_defaults=True):
    """A job on its way to `rota.submit_jobs`: what is left out gets the task's defaults there."""

    id: UUID
    namespace: str
    task: str
    payload: msgspec.Raw
    queue: str | None = None
    needs: tuple[str, ...] | None = None
    priority: int | None = None
    guarantee: int | None = None
    max_attempts: int | None = None
    timeout: float | None = None
    at: datetime | None = None
    delay: float | None = None
    key: str | None = None
    headers: msgspec.Raw | None = None
    workflow_id: UUID | None = None
    step: str | None = None
    # Of a payload that the database can't read: what it is known again by, under a key.
    fingerprints: list[str] | None = None


class Bulk(msgspec.Struct, frozen=True):
    """Many new jobs that differ only in their ids and arguments."""

    template: NewJob
    ids: Sequence[UUID]
    payloads: Sequence[bytes]

    def jobs(self) -> list[NewJob]:
        return [
            msgspec.structs.replace(self.template, id=id, payload=msgspec.Raw(payload))
            for id, payload in zip(self.ids, self.payloads, strict=True)
        ]


class Submitted(msgspec.Struct, frozen=True):
    """The answer to one submit."""

    id: UUID
    existed: bool  # the key named this job before
    conflict: bool  # the key names a job with other content; nothing was stored


def lane_name(namespace: str, queue: str, needs: tuple[str, ...]) -> str:
    """What a claim reads: a queue and the capabilities its jobs ask for, within a namespace."""
    return f"{namespace}/{queue}" + "".join(f"+{need}" for need in sorted(set(needs)))


def split_lane(lane: str) -> tuple[str, tuple[str, ...]]:
    """The queue and the needed capabilities."""
    queue, *needs = lane.partition("/")[2].split("+")
    return queue, tuple(needs)


def to_job(row: Mapping[str, Any], opened: Opener) -> Job:
    queue, needs = split_lane(row["lane"])
    id = row["id"]
    failure = _failure.decode(row["error"]) if row["error"] else None
    attempts = _attempts.decode(row["attempts"]) if row["attempts"] else []
    return Job(
        id=id,
        namespace=row["namespace"],
        task=row["task"],
        queue=queue,
        needs=needs,
        state=State(row["state"]).label,
        priority=row["priority"],
        due_at=row["due_at"],
        created_at=row["created_at"],
        payload=opened.shown(row["payload"], id, "payload", row["task"]),
        headers=_json(row["headers"]) or {},
        key=row["key"],
        guarantee=Guarantee(row["guarantee"]).label,
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        timeout=row["timeout"],
        crashes=row["crashes"],
        node=row["node"],
        token=row["token"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        cancel_requested_at=row["cancel_at"],
        result=opened.shown(row["result"], id, "result"),
        error=opened.shown_failure(failure, id),
        progress=opened.shown(row["progress"], id, "progress"),
        attempts=opened.shown_attempts(attempts, id),
        workflow_id=row["workflow_id"],
        step=row["step"],
    )


def to_node(row: Mapping[str, Any]) -> NodeStatus:
    fields = {field: row[field] for field in NodeStatus.__struct_fields__}
    for listed in ("roles", "queues", "capabilities"):
        fields[listed] = tuple(fields[listed])
    return NodeStatus(**fields)


def to_queue(row: Mapping[str, Any]) -> QueueStatus:
    return QueueStatus(**{field: row[field] for field in QueueStatus.__struct_fields__})


def _json(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
