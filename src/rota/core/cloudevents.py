"""Events as CloudEvents 1.0, in their JSON format.

`source` and `id` together name an event for ever: who gets it twice drops the second by them. `subject`
is what it is about: a job's id, a run's, or a name. `sequence` rises with the order of events.
"""

from __future__ import annotations

import hashlib

import msgspec

from rota.model import Event

CONTENT_TYPE = "application/cloudevents+json"
_TYPES = {
    "run_succeeded": "run.succeeded", "run_cancelled": "run.cancelled", "fired": "occurrence.fired",
    "run_failed": "run.failed", "run_late": "run.late", "run_parked": "run.parked",
    "missed": "occurrence.missed", "overran": "occurrence.overran", "late": "occurrence.late",
    "set_aside": "schedule.set_aside", "queue_lag": "queue.lag", "queue_full": "queue.full",
    "queue_open": "queue.open", "node_dead": "node.dead", "task_unknown": "task.unknown",
    "slower": "task.slower",
}  # fmt: skip


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event on its way."""

    id: str
    type: str
    subject: str
    body: bytes

    @property
    def digest(self) -> str:
        """A name for this event and no other, also among those of other installations, whose ids and
        namespaces may be the same: for brokers that drop what they have seen.
        """
        return hashlib.sha256(self.body).hexdigest()


def cloud_event(namespace: str, event: Event) -> CloudEvent:
    """Make the CloudEvent of an event."""
    kind = f"rota.{_TYPES.get(event.kind, f'job.{event.kind}')}"
    subject = str(event.job_id) if event.job_id else _subject(event)
    data = {"kind": event.kind, "task": event.task, "job_id": event.job_id, "detail": event.detail}
    body = msgspec.json.encode({
        "specversion": "1.0", "id": str(event.id), "source": f"/namespaces/{namespace}", "type": kind,
        "subject": subject, "time": event.at, "sequence": f"{event.id:020}",
        "datacontenttype": "application/json", "data": data,
    })  # fmt: skip
    return CloudEvent(id=f"{namespace}-{event.id}", type=kind, subject=subject, body=body)


def _subject(event: Event) -> str:
    for name in ("run", "schedule", "queue", "node"):
        if found := event.detail.get(name):
            return str(found)
    return event.task or event.kind
