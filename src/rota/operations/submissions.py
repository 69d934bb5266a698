"""Submitting jobs: by task, by name, many at once, and in a caller's own transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rota.config import check_open_task
from rota.core.arguments import Limits, encode_payload
from rota.core.codec import ResultReader
from rota.errors import InvalidArguments, KeyConflict
from rota.handle import JobHandle
from rota.lib import tracing
from rota.lib.ids import new_id, new_ids
from rota.lib.sync_bridge import sync_bridge
from rota.store.drivers import (
    ask_encrypted,
    ask_encrypted_sync,
    submit_through,
    submit_through_sync,
)
from rota.store.rows import Bulk, NewJob, Submitted
from rota.task import SubmitOptions, Task

if TYPE_CHECKING:
    from rota.operations.rota import Rota

log = logging.getLogger("rota.submit")

_COPY_FROM = 200  # so many jobs at once are worth a COPY
_HEADER_LIMITS = Limits(16_384, 64)


class Submissions:
    def __init__(self, rota: Rota) -> None:
        self._rota = rota

    async def submit_named(
        self, task: str, payload: Mapping[str, Any] | None, options: dict[str, Any]
    ) -> JobHandle[Any]:
        """Submit by name; see `App.submit`."""
        job, chosen = self._named_job(check_open_task(task), payload or {}, options)
        return await self._submit_checked(job, chosen)

    def submit_named_sync(
        self, task: str, payload: Mapping[str, Any] | None, options: dict[str, Any]
    ) -> JobHandle[Any]:
        job, chosen = self._named_job(check_open_task(task), payload or {}, options)
        if chosen.connection is not None:
            return self._submit_one_sync(job, chosen)
        return sync_bridge.call(lambda: self._submit_checked(job, chosen), "submit")

    async def _submit_checked(self, job: NewJob, options: SubmitOptions) -> JobHandle[Any]:
        """Checked by what was registered, if the code isn't here. Not in callers' own transactions: they
        may not be allowed to read it."""
        if job.task in self._rota.tasks or options.connection is not None:
            return await self._submit_one(job, options)
        signatures = await self._rota.signatures()
        namespace = self._rota.namespace
        warnings = await signatures.check(namespace, job.task, bytes(job.payload))
        handle = await self._submit_one(job, options)
        if warnings:
            handle.warnings = warnings
            log.warning("job %s was accepted, but %s", handle.id, "; ".join(warnings))
            await signatures.note_unknown(namespace, job.task, handle.id)
        return handle

    async def submit_own(
        self, task: str, payload: Mapping[str, Any], **options: Any
    ) -> JobHandle[Any]:
        """Submit a job of a task that is Rota's own. For Rota alone."""
        job, chosen = self._named_job(task, payload, options)
        return await self._submit_one(job, chosen)

    def _named_job(
        self, name: str, payload: Mapping[str, Any], options: dict[str, Any]
    ) -> tuple[NewJob, SubmitOptions]:
        chosen = SubmitOptions.checked(**options)
        if not isinstance(payload, Mapping):
            raise InvalidArguments(
                f"task {name!r}: the payload must be a dict of argument names and values"
            )
        if known := self._rota.tasks.get(name):
            encoded = known.arguments.encode((), dict(payload), self._rota.limits)
            return self._new_job(known, chosen, encoded), chosen
        encoded = encode_payload(payload, self._rota.limits, name)
        job = NewJob(id=new_id(), namespace=self._rota.namespace, task=name,
                     payload=msgspec.Raw(encoded))  # fmt: skip
        return _with_options(job, chosen), chosen

    async def submit_call(
        self, task: Task[..., Any], options: SubmitOptions, args: Any, kwargs: Any
    ) -> JobHandle[Any]:
        payload = task.arguments.encode(args, kwargs, self._rota.limits)
        return await self._submit_one(self._new_job(task, options, payload), options)

    def submit_call_sync(
        self, task: Task[..., Any], options: SubmitOptions, args: Any, kwargs: Any
    ) -> JobHandle[Any]:
        payload = task.arguments.encode(args, kwargs, self._rota.limits)
        return self._submit_one_sync(self._new_job(task, options, payload), options)

    async def _submit_one(self, job: NewJob, options: SubmitOptions) -> JobHandle[Any]:
        with tracing.submitting(job):
            return await self._store_one(job, options)

    async def _store_one(self, job: NewJob, options: SubmitOptions) -> JobHandle[Any]:
        if options.connection is not None:
            answers = await self._submit_through(options.connection, [job])
        else:
            answers = await (await self._rota.submitter()).submit([job])
        return self._handles([job], answers)[0]

    def _submit_one_sync(self, job: NewJob, options: SubmitOptions) -> JobHandle[Any]:
        with tracing.submitting(job):
            if options.connection is None:
                return sync_bridge.call(lambda: self._store_one(job, options), "submit")
            answers = self._submit_through_sync(options.connection, [job])
            return self._handles([job], answers)[0]

    async def submit_calls(
        self, task: Task[..., Any], options: SubmitOptions, calls: Iterable[Any]
    ) -> list[JobHandle[Any]]:
        if options.key is not None:
            raise InvalidArguments("submit_many can't give one key to many jobs")
        encode, limits = task.arguments.encode, self._rota.limits
        payloads = [encode(*_as_call(call), limits) for call in calls]
        template = self._new_job(task, options, b"{}")
        if not payloads:
            return []
        with tracing.submitting(template, len(payloads)):
            return await self._store_many(Bulk(template, new_ids(len(payloads)), payloads), options)

    async def _store_many(self, bulk: Bulk, options: SubmitOptions) -> list[JobHandle[Any]]:
        if options.connection is not None:
            jobs = bulk.jobs()
            answers = await self._submit_through(options.connection, jobs)
            return self._handles(jobs, answers)
        store = await self._rota.store()
        if len(bulk.ids) >= _COPY_FROM:
            await store.copy_jobs(bulk)
            reader = self._reader_of(bulk.template.task)
            return [JobHandle(self._rota.jobs, id, reader=reader) for id in bulk.ids]
        jobs = bulk.jobs()
        return self._handles(jobs, await store.submit_atomically(jobs))

    async def _submit_through(self, connection: Any, jobs: Sequence[NewJob]) -> list[Submitted]:
        """In the caller's transaction, asking nothing of any other connection."""
        schema, encryption = self._rota.settings.schema, self._rota.connector.encryption
        if encryption.stale:
            encryption.learn(await ask_encrypted(connection, encryption.namespace, schema))
        return await submit_through(connection, encryption.jobs(jobs), schema)

    def _submit_through_sync(self, connection: Any, jobs: Sequence[NewJob]) -> list[Submitted]:
        schema, encryption = self._rota.settings.schema, self._rota.connector.encryption
        if encryption.stale:
            encryption.learn(ask_encrypted_sync(connection, encryption.namespace, schema))
        return submit_through_sync(connection, encryption.jobs(jobs), schema)

    def _new_job(self, task: Task[..., Any], options: SubmitOptions, payload: bytes) -> NewJob:
        defaults = task.options_
        job = NewJob(
            id=new_id(),
            namespace=self._rota.namespace,
            task=task.name,
            payload=msgspec.Raw(payload),
            queue=defaults.queue,
            needs=defaults.needs,
            priority=defaults.priority,
            guarantee=int(defaults.guarantee),
            max_attempts=defaults.retry.max_attempts,
            timeout=defaults.timeout,
        )
        return _with_options(job, options)

    def _handles(
        self, jobs: Sequence[NewJob], answers: Sequence[Submitted]
    ) -> list[JobHandle[Any]]:
        for job, answer in zip(jobs, answers, strict=True):
            if answer.conflict:
                raise KeyConflict(job.key or "", str(answer.id))
        return [
            JobHandle(self._rota.jobs, answer.id, answer.existed, self._reader_of(job.task))
            for job, answer in zip(jobs, answers, strict=True)
        ]

    def _reader_of(self, task: str) -> ResultReader | None:
        known = self._rota.tasks.get(task)
        return None if known is None else known.result_reader


def _with_options(job: NewJob, options: SubmitOptions) -> NewJob:
    for field in ("at", "delay", "key", "priority", "queue", "needs", "max_attempts", "timeout"):
        if (value := getattr(options, field)) is not None:
            setattr(job, field, value)
    if headers := options.all_headers:
        job.headers = msgspec.Raw(encode_payload(headers, _HEADER_LIMITS, job.task, "header"))
    return job


def _as_call(call: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(call, dict):
        return (), call
    if isinstance(call, tuple):
        return call, {}
    return (call,), {}
