"""Rows of the tables as structs: new jobs on their way in, and query results on their way out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from hashlib import sha256
from operator import attrgetter
from typing import Any, TypeVar, get_origin
from uuid import UUID

import msgspec

from rota.core.resources import shape_of, to_public
from rota.core.unique import Unique
from rota.model import Guarantee, Retry

T = TypeVar("T")
New = TypeVar("New", "NewJob", "NewRun")


@cache
def _json_fields(kind: type) -> tuple[str, ...]:
    if not issubclass(kind, msgspec.Struct):
        return ()
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return tuple(
        name
        for name, type_ in fields.items()
        if type_ is Any
        or get_origin(type_) is dict
        or (isinstance(type_, type) and issubclass(type_, msgspec.Struct))
    )


def to_value(row: Any, kind: type[T]) -> T:
    """Return a row as a struct or a tuple; as any other type, its first column.

    The driver returns JSON as text. It is decoded for fields that hold an object, or anything.
    """
    if get_origin(kind) is tuple:
        return msgspec.convert(tuple(row), kind)
    if not issubclass(kind, msgspec.Struct):
        return msgspec.convert(row[0], kind)
    fields = dict(row)
    for name in _json_fields(kind):
        if fields.get(name) is not None:
            fields[name] = msgspec.json.decode(fields[name])
    return msgspec.convert(fields, kind)


def columns_of(rows: Sequence[Any], *names: str) -> list[list[Any]]:
    """Return the named fields of these structs as columns, for `unnest` in SQL."""
    return [list(map(attrgetter(name), rows)) for name in names]


class NewJob(msgspec.Struct, omit_defaults=True):
    """A job on its way to `rota.submit_jobs`, which fills in the task's defaults for omitted fields."""

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
    concurrency_key: str | None = None
    fairness_key: str | None = None
    order_key: str | None = None
    order_failure: str | None = None
    # Of an encrypted payload, for its idempotency key: one under each encryption key of this process.
    fingerprints: list[str] | None = None
    unique: Unique | None = None
    # Of a unique job with an encrypted payload: the same, encrypted for the job that it may replace.
    replacement: Replacement | None = None


class Trace(msgspec.Struct, frozen=True):
    """A record that a job succeeded, in a queue that does not keep such jobs."""

    queue: str
    task: str
    ended_at: datetime


class Replacement(msgspec.Struct, frozen=True):
    job: UUID
    payload: msgspec.Raw


def decode_new(text: bytes, kind: type[New]) -> New:
    """Return a new job or run from the JSON that it was sent as between processes."""
    fields: dict[str, Any] = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    headers = fields.pop(
        "headers", None
    )  # msgspec can write a Raw that may be absent, and not read it
    new = msgspec.json.decode(msgspec.json.encode(fields), type=kind)
    new.headers = headers
    return new


class TaskDefaults(msgspec.Struct, frozen=True):
    """The options of a task's jobs where a submit or a schedule gives none."""

    queue: str = "default"
    needs: tuple[str, ...] = ()
    priority: int = 0
    guarantee: int = Guarantee.AT_LEAST_ONCE
    max_attempts: int = Retry().max_attempts
    timeout: float | None = None
    limited: bool = False


class NewRun(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A run of a workflow on its way to `rota.start_run_of`."""

    id: UUID
    namespace: str
    workflow: str
    input: msgspec.Raw
    version: int | None = None
    priority: int | None = None
    deadline: float | None = None
    headers: msgspec.Raw | None = None
    key: str | None = None
    # Of an input that the database can't read: what it is known again by, under a key.
    fingerprints: list[str] | None = None
    schedule: UUID | None = None


class NewSignal(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A signal on its way to `rota.send_signal_of`."""

    id: UUID
    namespace: str
    name: str
    key: str
    payload: msgspec.Raw
    once: str | None = None
    later: bool = False  # sent in a caller's transaction: offered after its commit


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
    # Of a unique job: stored, existed, changed, refused, encrypt, replayed or conflict.
    outcome: str | None = None
    warning: str | None = None  # in a caller's own transaction: its queue is full

    @property
    def refused(self) -> bool:
        return self.outcome == "refused"

    @property
    def stood_for(self) -> bool:
        """Whether another job stands for it, of which it need not be the same submit."""
        return self.outcome in ("existed", "changed")


def lane_name(namespace: str, queue: str, needs: tuple[str, ...]) -> str:
    """Return the lane of a queue and of the capabilities that its jobs need, in a namespace."""
    return f"{namespace}/{queue}" + "".join(f"+{need}" for need in sorted(set(needs)))


def split_lane(lane: str) -> tuple[str, tuple[str, ...]]:
    """Return the queue and the needed capabilities of a lane or a sublane."""
    queue, *needs = lane.partition("/")[2].partition("#")[0].split("+")
    return queue, tuple(needs)


def asked_of(needs: tuple[str, ...]) -> dict[str, Any]:
    """Return what is stored as needs as the fields that users see."""
    shape = shape_of(needs)
    return {
        "needs": shape.capabilities, "resources": to_public(shape.amounts), "near": shape.near,
    }  # fmt: skip


def share_of(
    concurrency_key: str | None = None,
    fairness_key: str | None = None,
    order_key: str | None = None,
    order_failure: str | None = None,
    limited_task: str | None = None,
) -> str | None:
    """Return the keys of a job as one text: the same as rota.share_of() in SQL."""
    parts = (
        ("c", concurrency_key), ("f", fairness_key), ("o", order_key), ("t", limited_task),
        ("x", order_failure),
    )  # fmt: skip
    escaped = (
        (name, value.replace("%", "%25").replace("&", "%26"))
        for name, value in parts
        if value is not None
    )
    return "&".join(f"{name}={value}" for name, value in escaped) or None


def sublane_of(lane: str, share: str | None) -> str:
    """Return the lane of jobs with these keys: the same as rota.sublane_of() in SQL."""
    return lane if share is None else f"{lane}#{sha256(share.encode()).hexdigest()[:32]}"
