"""Decides what becomes of messages: a job, nothing, or a dead letter.

Nothing that a message holds, and nothing that a filter or a mapping does, stops the messages after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.app import App
from rota.errors import RotaError
from rota.lib.capture import message_of, storable
from rota.model import Failure
from rota.operations.triggers import Message, TriggerSpec
from rota.store.encrypted import Encryption, encrypted_failure
from rota.store.rows import NewJob
from rota.task import SubmitOptions

_LONGEST_BODY = 20_000  # bytes of a message's body that are kept in a dead letter
_LONGEST_ERROR = 2_000
_LONGEST_HEADER = 1_000
_MOST_HEADERS = 30


class Batch(msgspec.Struct):
    """The jobs and dead letters of some messages."""

    jobs: list[NewJob] = msgspec.field(default_factory=list)
    dead: list[tuple[NewJob, Failure]] = msgspec.field(default_factory=list)
    skipped: int = 0


def decide(app: App, spec: TriggerSpec, messages: Sequence[Message]) -> Batch:
    """Make jobs of messages. One that can't become a call becomes a dead letter."""
    batch = Batch()
    task = app.tasks[spec.task]
    new_call = app.rota.submissions.new_call
    for message in messages:
        try:
            if spec.where is not None and not spec.where(message):
                batch.skipped += 1
                continue
            call = _arguments(spec, message)
            batch.jobs.append(new_call(task, _options(spec, message), (), call))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - also sys.exit() is no reason to stop here
            batch.dead.append(bury(app, spec, message, error))
    return batch


def bury(
    app: App, spec: TriggerSpec, message: Message, error: BaseException
) -> tuple[NewJob, Failure]:
    """Make the dead letter of a message. It is bounded, whatever the message is."""
    body = message.body[:_LONGEST_BODY].decode("utf-8", "replace")
    headers = {
        storable(name[:_LONGEST_HEADER]): storable(value[:_LONGEST_HEADER])
        for name, value in list(message.headers.items())[:_MOST_HEADERS]
    }
    about = {"trigger": spec.name, "position": message.position}
    shown = {"$message": {"body": body.replace("\0", "\ufffd"), "headers": headers, **about}}
    job = app.rota.submissions.new_unchecked(
        app.tasks[spec.task], _options(spec, message), msgspec.json.encode(shown)
    )
    where = "" if isinstance(error, RotaError) else "the message could not be turned into a call: "
    said = f"{where}{message_of(error)[:_LONGEST_ERROR]}"
    return job, Failure(storable(type(error).__name__), said)


def errors_of(encryption: Encryption, dead: Sequence[tuple[NewJob, Failure]]) -> list[str]:
    """Return the errors as they are stored: encrypted, if the payloads are."""
    return [
        msgspec.json.encode(
            encrypted_failure(encryption.for_job(job.id), failure)
            if encryption.required
            else failure
        ).decode()
        for job, failure in dead
    ]


def _options(spec: TriggerSpec, message: Message) -> SubmitOptions:
    return SubmitOptions.checked(headers={"trigger": spec.name, "position": message.position})


def _arguments(spec: TriggerSpec, message: Message) -> dict[str, Any]:
    found = message.json() if spec.arguments is None else spec.arguments(message)
    if not isinstance(found, dict):
        raise TypeError(
            f"the arguments must be an object of names and values, not {type(found).__name__}"
        )
    return found
