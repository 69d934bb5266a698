"""Encryption what goes into the tables, and opening what comes out of them.

Protocol. Whether a namespace is encrypted is a column of `rota.namespace`, asked at most every five
seconds: a submit encrypts if it is, with the first key of the process, before anything is sent to the
database; a process without a key refuses to submit. What follows from a job's payload (its result, its
errors, its progress, what it logs) is encrypted if the payload was, whatever the namespace says by then.
Opening asks nothing: an envelope says of itself what it is.

So between `rota namespaces encrypt` and five seconds later jobs may still be stored as they are. `rota
encrypt` finds those, and encrypts them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic
from typing import Any
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.core.time.schedule import ScheduleSpec
from rota.errors import InvalidArguments, KeyMissing, RotaError
from rota.lib.encryption import ENVELOPE, TEXT, Encryptor, key_of, keyring_of, token_of
from rota.model import Attempt, Failure, Outcome
from rota.store.rows import Bulk, NewJob

RESERVED = "$rota-encrypted"
_LOOK_EVERY = 5.0


def id_of_once(key: str) -> UUID:
    """A `once` key as an id: its effect belongs to whoever has the key, and to no job."""
    return UUID(bytes=hashlib.sha256(key.encode()).digest()[:16])


class Encryption:
    """A process's keys, and whether its namespace asks for them."""

    def __init__(self, settings: Settings) -> None:
        self.ring = keyring_of(settings)
        self.namespace = settings.namespace
        self.required = False
        self._look_at = 0.0

    @property
    def stale(self) -> bool:
        """Whether it has to be asked again if the namespace is encrypted."""
        return monotonic() >= self._look_at

    async def look(self, ask: Callable[[str], Awaitable[Any]]) -> None:
        self.learn(await ask(self.namespace))

    def learn(self, required: bool) -> None:
        self.required = required
        self._look_at = monotonic() + _LOOK_EVERY

    def check(self) -> None:
        if self.required and self.ring is None:
            raise KeyMissing(
                f"namespace {self.namespace!r} is encrypted, and this process has no key: set "
                "ROTA_ENCRYPTION_KEYS (or ROTA_ENCRYPTION_KEYS_FILE) to what the others have"
            )

    # -- encryption

    def for_job(self, id: UUID) -> Encryptor:
        self.check()
        assert self.ring is not None
        return self.ring.encryptor(self.namespace, "j", id)

    def jobs(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        return [self._job(job) for job in jobs] if self.required else jobs

    def _job(self, job: NewJob) -> NewJob:
        payload = bytes(job.payload)
        if payload.startswith(ENVELOPE.encode()):
            return job  # encrypted by an earlier call
        prints = None
        encryptor = self.for_job(job.id)
        if job.key is not None:
            assert self.ring is not None
            prints = self.ring.fingerprints(self.namespace, job.task, payload)
        encrypted = encryptor.json("payload", payload, job.task).encode()
        return msgspec.structs.replace(job, payload=msgspec.Raw(encrypted), fingerprints=prints)

    def bulk(self, bulk: Bulk) -> Bulk:
        if not self.required:
            return bulk
        task = bulk.template.task
        payloads = [
            self.for_job(id).json("payload", payload, task).encode()
            for id, payload in zip(bulk.ids, bulk.payloads, strict=True)
        ]
        return Bulk(bulk.template, bulk.ids, payloads)

    def spec(self, id: UUID, spec: ScheduleSpec) -> ScheduleSpec:
        """A schedule's, with what its jobs are given encrypted."""
        if isinstance(spec.payload, dict) and RESERVED in spec.payload:
            raise InvalidArguments(f"schedule {spec.name!r}: the name {RESERVED!r} is Rota's own")
        if not self.required or not spec.payload:
            return spec
        self.check()
        assert self.ring is not None
        encryptor = self.ring.encryptor(self.namespace, "s", id)
        token = encryptor.token("payload", msgspec.json.encode(spec.payload), spec.task)
        return msgspec.structs.replace(spec, payload={RESERVED: token})

    # -- opening

    def open(self, text: str, id: UUID, field: str, task: str = "") -> bytes:
        """What is in an envelope. Raises KeyMissing, NotAuthentic."""
        if self.ring is None:
            raise KeyMissing(
                f"{field} of {id} is encrypted with the key {key_of(text)!r}, and this process has "
                "none: set ROTA_ENCRYPTION_KEYS (or ROTA_ENCRYPTION_KEYS_FILE)"
            )
        return self.ring.open(token_of(text), self.namespace, id, field, task)

    def once(self, key: str, result: str) -> bytes:
        """What an effect gave that was done before, perhaps by another job."""
        if not result.startswith(ENVELOPE):
            return result.encode()
        return self.open(result, id_of_once(key), "once")

    def encrypted_once(self, key: str, result: bytes) -> str:
        assert self.ring is not None  # it has opened the job's payload
        return self.ring.encryptor(self.namespace, "e", id_of_once(key)).json("once", result)

    def opened_payload(self, text: str, id: UUID, task: str) -> tuple[bytes, Encryptor | None]:
        """A claimed job's payload, and what its result has to be encrypted with. Raises KeyMissing (then
        the job belongs back to the queue, for others) and NotAuthentic (it can never run)."""
        if not text.startswith(ENVELOPE):
            return text.encode(), None
        payload = self.open(text, id, "payload", task)
        assert self.ring is not None
        return payload, self.ring.encryptor(self.namespace, "j", id)

    def shown(self, text: str | None, id: UUID, field: str, task: str = "") -> Any:
        """A JSON value for people: in place of what can't be opened, why."""
        if text is None:
            return None
        if not text.startswith(ENVELOPE):
            return msgspec.json.decode(text)
        try:
            return msgspec.json.decode(self.open(text, id, field, task))
        except RotaError as error:
            return {RESERVED: str(error)}

    def shown_text(self, text: str | None, id: UUID, field: str = "error") -> str | None:
        if text is None or not text.startswith(TEXT):
            return text
        try:
            return self.open(text, id, field).decode()
        except RotaError as error:
            return f"({error})"

    def shown_failure(self, failure: Failure | None, id: UUID) -> Failure | None:
        if failure is None or not failure.message.startswith(TEXT):
            return failure
        return msgspec.structs.replace(
            failure,
            message=self.shown_text(failure.message, id) or "",
            traceback=self.shown_text(failure.traceback, id) or "",
        )

    def shown_attempts(self, attempts: list[Attempt], id: UUID) -> list[Attempt]:
        return [
            attempt
            if attempt.error is None
            else msgspec.structs.replace(attempt, error=self.shown_failure(attempt.error, id))
            for attempt in attempts
        ]

    def fingerprint(self, spec: ScheduleSpec) -> str:
        """Of a schedule's payload: equal for equal content, and telling nothing without a key."""
        assert self.ring is not None
        payload = msgspec.json.encode(spec.payload)
        return self.ring.fingerprints(self.namespace, spec.task, payload)[0]

    def shown_spec(self, id: UUID, spec: ScheduleSpec) -> ScheduleSpec:
        encrypted = spec.payload
        if not isinstance(encrypted, dict) or list(encrypted) != [RESERVED]:
            return spec
        token = encrypted[RESERVED]
        opened = self.shown(f'{ENVELOPE}{token}"}}', id, "payload", spec.task)
        return msgspec.structs.replace(spec, payload=opened)


def encrypted_outcome(encryptor: Encryptor, outcome: Outcome) -> Outcome:
    """As it is written down: what it returned or raised, encrypted."""
    result = None
    if outcome.result is not None:
        result = encryptor.json("result", outcome.result).encode()
    return msgspec.structs.replace(
        outcome, result=result, failure=encrypted_failure(encryptor, outcome.failure)
    )


def encrypted_failure(encryptor: Encryptor, failure: Failure | None) -> Failure | None:
    """Its class stays readable: dead letters are grouped by it, and retries judged."""
    if failure is None or failure.message.startswith(TEXT):
        return failure
    return msgspec.structs.replace(
        failure,
        message=encryptor.text("error", failure.message),
        traceback=encryptor.text("error", failure.traceback) if failure.traceback else "",
    )
