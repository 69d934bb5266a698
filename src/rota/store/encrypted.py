"""Encrypting values on their way into the tables, and decrypting them on their way out.

Protocol. Whether a namespace is encrypted is a column of `rota.namespace`, read at most every five
seconds. If it is, a submit encrypts with the first key of the process, before anything is sent to the
database; a process without a key refuses to submit. What follows from a job's payload (its result, its
errors, its progress, its log) is encrypted if the payload was, whatever the column says by then. To
decrypt, only the value is needed: it names its key.

So until five seconds after `rota namespaces encrypt` jobs may still be stored as they are.
`rota encrypt` finds those, and encrypts them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from time import monotonic
from typing import Any
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.core.time.schedule import ScheduleSpec
from rota.errors import InvalidArguments, KeyMissing, RotaError
from rota.lib.encryption import (
    ENVELOPE,
    TEXT,
    Encryptor,
    Keyring,
    is_encrypted,
    key_of,
    keyring_of,
    token_of,
)
from rota.lib.reloading import Reloading
from rota.model import Attempt, Failure, Outcome
from rota.store.rows import Bulk, NewJob, NewRun, Replacement, Submitted

RESERVED = "$rota-encrypted"
_LOOK_EVERY = 5.0


def id_of_once(key: str) -> UUID:
    """Return a `once` key as an id: an effect belongs to its key, and not to a job."""
    return UUID(bytes=hashlib.sha256(key.encode()).digest()[:16])


class PersonKey(msgspec.Struct, frozen=True):
    """The encrypted part of a person's row: the name that the application has, and the key."""

    person: str
    key: str  # in base64


class Encryption:
    """The keys of a process, and whether its namespace is encrypted."""

    def __init__(self, settings: Settings) -> None:
        file = settings.encryption_keys_file
        self._ring = keyring_of(settings) if file is None else None
        self._file = None if file is None else Reloading([file], lambda: keyring_of(settings))
        self.namespace = settings.namespace
        self.required = False
        self._look_at = 0.0

    @property
    def ring(self) -> Keyring | None:
        """The keys: those of a file as it is now, so that they change without a restart."""
        return self._ring if self._file is None else self._file.get()

    @property
    def stale(self) -> bool:
        """Return whether the namespace's column has to be read again."""
        return monotonic() >= self._look_at

    def learn(self, required: bool) -> None:
        self.required = required
        self._look_at = monotonic() + _LOOK_EVERY

    def check(self) -> None:
        if self.required and self.ring is None:
            raise KeyMissing(
                f"namespace {self.namespace!r} is encrypted, and this process has no key: set "
                "ROTA_ENCRYPTION_KEYS (or ROTA_ENCRYPTION_KEYS_FILE) to what the others have"
            )

    def encryptor(self, kind: str, id: UUID) -> Encryptor:
        self.check()
        assert self.ring is not None
        return self.ring.encryptor(self.namespace, kind, id)

    # -- encrypting

    def for_job(self, id: UUID) -> Encryptor:
        return self.encryptor("j", id)

    def jobs(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        return [self._job(job) for job in jobs] if self.required else jobs

    def _job(self, job: NewJob) -> NewJob:
        payload = bytes(job.payload)
        if payload.startswith(ENVELOPE.encode()):
            return job  # encrypted by an earlier call
        encrypted = self.for_job(job.id).json("payload", payload, job.task).encode()
        by_content = job.key is not None or (job.unique is not None and job.unique.key is None)
        prints = self.fingerprints(job.task, payload) if by_content else None
        return msgspec.structs.replace(job, payload=msgspec.Raw(encrypted), fingerprints=prints)

    def to_repeat(self, jobs: Sequence[NewJob], answers: Sequence[Submitted]) -> dict[int, NewJob]:
        """Return the jobs, by their place, that are to change another job and for that have to be
        encrypted for it. They are sent again."""
        return {
            place: self._for_another(jobs[place], answer.id)
            for place, answer in enumerate(answers)
            if answer.outcome == "encrypt"
        }

    def _for_another(self, job: NewJob, other: UUID) -> NewJob:
        payload = self.for_job(other).json("payload", bytes(job.payload), job.task).encode()
        return msgspec.structs.replace(
            self._job(job), replacement=Replacement(other, msgspec.Raw(payload))
        )

    def fingerprints(self, task: str, payload: bytes) -> list[str]:
        assert self.ring is not None
        return self.ring.fingerprints(self.namespace, task, payload)

    def fingerprint(self, spec: ScheduleSpec) -> str:
        """Return the fingerprint of a schedule's payload under the current key."""
        return self.fingerprints(spec.job_task, msgspec.json.encode(spec.payload))[0]

    def encrypt_run(self, run: NewRun) -> None:
        """Encrypt the input of a run that is about to start, if the namespace asks for it."""
        if self.required:
            encryptor, given = self.for_job(run.id), bytes(run.input)
            if run.key is not None:
                run.fingerprints = self.fingerprints(f"workflow {run.workflow}", given)
            run.input = msgspec.Raw(encryptor.json("input", given).encode())

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
        """Return a schedule's definition with the payload of its jobs encrypted."""
        if isinstance(spec.payload, dict) and RESERVED in spec.payload:
            raise InvalidArguments(f"schedule {spec.name!r}: the name {RESERVED!r} is Rota's own")
        if not self.required or not spec.payload:
            return spec
        plain = msgspec.json.encode(spec.payload)
        token = self.encryptor("s", id).token("payload", plain, spec.job_task)
        return msgspec.structs.replace(spec, payload={RESERVED: token})

    def encrypted_once(self, key: str, result: bytes) -> str:
        return self.encryptor("e", id_of_once(key)).json("once", result)

    def person_fingerprints(self, person: str) -> list[str]:
        """Return what a person is found by, under each key of this process."""
        if self.ring is None:
            raise KeyMissing(
                "keys of persons are stored encrypted, and this process has no encryption key: set "
                "ROTA_ENCRYPTION_KEYS (or ROTA_ENCRYPTION_KEYS_FILE)"
            )
        return self.fingerprints("person", msgspec.json.encode(person))

    def encrypted_person(self, made: PersonKey, id: UUID) -> str:
        return self.for_job(id).text("person", msgspec.json.encode(made).decode())

    # -- decrypting

    def opened_person(self, text: str, id: UUID) -> PersonKey:
        return msgspec.json.decode(self.open(text, id, "person"), type=PersonKey)

    def open(self, text: str, id: UUID, field: str, task: str = "") -> bytes:
        """Decrypt a value; return one that isn't encrypted as it is. Raises KeyMissing, NotAuthentic."""
        if not is_encrypted(text):
            return text.encode()
        if self.ring is None:
            raise KeyMissing(
                f"{field} of {id} is encrypted with the key {key_of(text)!r}, and this process has "
                "none: set ROTA_ENCRYPTION_KEYS (or ROTA_ENCRYPTION_KEYS_FILE)"
            )
        return self.ring.open(token_of(text), self.namespace, id, field, task)

    def once(self, key: str, result: str) -> bytes:
        """Return the result of an effect that was done before, perhaps by another job."""
        return self.open(result, id_of_once(key), "once")

    def opened_payload(self, text: str, id: UUID, task: str) -> tuple[bytes, Encryptor | None]:
        """Return a claimed job's payload, and the encryptor for its result.

        Raises KeyMissing (the job has to go back to its queue, for other nodes) and NotAuthentic (it can
        never run).
        """
        payload = self.open(text, id, "payload", task)
        return payload, self.for_job(id) if is_encrypted(text) else None

    def value(self, text: str | None, id: UUID, field: str) -> Any:
        """Return a JSON value, decrypted if it is encrypted. Raises KeyMissing, NotAuthentic."""
        return None if text is None else msgspec.json.decode(self.open(text, id, field))

    def shown(self, text: str | None, id: UUID, field: str, task: str = "") -> Any:
        """Return a JSON value to be shown; in place of one that can't be decrypted, the reason."""
        if text is None:
            return None
        try:
            return msgspec.json.decode(self.open(text, id, field, task))
        except RotaError as error:
            return {RESERVED: str(error)}

    def shown_text(self, text: str | None, id: UUID, field: str = "error") -> str | None:
        if text is None or not text.startswith(TEXT):
            return text  # not encoded: it may hold what isn't valid UTF-8
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

    def shown_spec(self, id: UUID, spec: ScheduleSpec) -> ScheduleSpec:
        encrypted = spec.payload
        if not isinstance(encrypted, dict) or list(encrypted) != [RESERVED]:
            return spec
        text = msgspec.json.encode(encrypted).decode()
        return msgspec.structs.replace(spec, payload=self.shown(text, id, "payload", spec.job_task))


def encrypted_outcome(encryptor: Encryptor, outcome: Outcome) -> Outcome:
    """Return an outcome with its result or error encrypted."""
    result = outcome.result and encryptor.json("result", outcome.result).encode()
    return msgspec.structs.replace(
        outcome, result=result, failure=encrypted_failure(encryptor, outcome.failure)
    )


def encrypted_failure(encryptor: Encryptor, failure: Failure | None) -> Failure | None:
    """Encrypt the text of an error. Its class stays readable, for retries and groups of dead letters."""
    if failure is None or failure.message.startswith(TEXT):
        return failure
    return msgspec.structs.replace(
        failure,
        message=encryptor.text("error", failure.message),
        traceback=encryptor.text("error", failure.traceback) if failure.traceback else "",
    )
