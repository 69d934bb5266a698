"""Submitting jobs: by task, by name, many at once, and in a caller's own transaction."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import msgspec

from rota.config import check_open_task
from rota.core.codec import ResultReader
from rota.core.payloads import encode_payload
from rota.errors import DuplicateJob, InvalidArguments, KeyConflict
from rota.handle import JobHandle
from rota.lib import tracing
from rota.lib.ids import new_id, new_ids
from rota.lib.sync_bridge import sync_bridge
from rota.model import Accepted
from rota.operations.job_request import JobRequest, build_job, check_guarantee, give_keys
from rota.operations.room import submit_when_there_is_room
from rota.operations.room_warnings import RoomWarnings
from rota.store.bulk import BulkStore
from rota.store.drivers import (
    ask_encrypted,
    ask_encrypted_sync,
    submit_through,
    submit_through_sync,
)
from rota.store.rows import Bulk, NewJob, Submitted
from rota.submission import SubmitHook, apply_hooks
from rota.task import SubmitOptions, Task, as_call

if TYPE_CHECKING:
    from rota.operations.rota import Rota
    from rota.operations.runs import Runs

log = logging.getLogger("rota.submit")

_COPY_FROM = 200  # so many jobs at once are worth a COPY

Admit: TypeAlias = Callable[[str, int, int], Awaitable[None]]
Submit: TypeAlias = Callable[[NewJob, SubmitOptions], Coroutine[Any, Any, JobHandle[Any]]]


class Submissions:
    """Every way to submit a job to one namespace.

    `admit` is called with a namespace and the number and size of jobs, and raises `TooManyRequests` when
    they are over a quota. A server sets it; applications that have a database's password aren't limited.
    """

    def __init__(self, rota: Rota) -> None:
        self._rota = rota
        self.admit: Admit | None = None
        self._room = RoomWarnings()
        self.hooks: Sequence[SubmitHook] = ()  # of the app: see `App.on_submit`

    @property
    def runs(self) -> Runs:
        return self._rota.runs

    async def submit_named(
        self, task: str, payload: Mapping[str, Any] | None, options: dict[str, Any]
    ) -> JobHandle[Any]:
        """Submit by name; see `App.submit`."""
        job, chosen = self._named_job(check_open_task(task), payload or {}, options)
        return await self._submit_checked(job, chosen)

    def submit_named_sync(
        self, task: str, payload: Mapping[str, Any] | None, options: dict[str, Any]
    ) -> JobHandle[Any]:
        """Submit by name from synchronous code."""
        job, chosen = self._named_job(check_open_task(task), payload or {}, options)
        return self._submit_sync(job, chosen, self._submit_checked)

    async def _submit_checked(self, job: NewJob, options: SubmitOptions) -> JobHandle[Any]:
        """Store a job that was submitted by name. In a caller's own transaction it isn't checked by what
        nodes registered: the caller may not be allowed to read that."""
        if options.connection is not None:
            return await self._submit_one(job, options)
        with tracing.submitting(job):
            accepted = await submit_when_there_is_room(options, lambda: self.store_checked(job))
        if accepted.warnings:
            log.warning("job %s was accepted, but %s", accepted.id, "; ".join(accepted.warnings))
        reader = self._reader_of(job.task)
        return JobHandle(self._rota.jobs, accepted.id, accepted.existed, reader, accepted.warnings)

    async def submit_request(self, request: JobRequest, *, one_queue: bool = False) -> Accepted:
        """Submit a job as a request describes it, if the quotas of the namespace admit it."""
        rota = self._rota
        job = request.to_new_job(
            new_id(), rota.namespace, rota.tasks, rota.limits, one_queue=one_queue
        )
        if request.guarantee is not None:
            declared = await self.declared_guarantees([job.task])
            check_guarantee(job.task, job.guarantee, declared.get(job.task))
        if self.admit is not None:
            await self.admit(rota.namespace, 1, len(bytes(job.payload)))
        return await self.store_checked(job)

    async def store_checked(self, job: NewJob) -> Accepted:
        """Store a job, together with whatever else is submitted at the same time. If its task's code
        isn't in this process, its arguments are checked by what nodes registered."""
        warnings = await self.warnings_about(job)
        answer = await self._store_one(job)
        raise_refused(job, answer)
        if warnings:
            await self.note_unknown(job.task, answer.id)
        if job.needs:
            read = (await self._rota.store()).machines_of_lane
            warnings += await self._room.about(read, job.namespace, job.queue, job.needs)
        return Accepted(answer.id, job.task, answer.existed, warnings, answer.stood_for)

    async def _store_one(self, job: NewJob) -> Submitted:
        submitter = await self._rota.submitter()
        if job.unique is not None:
            return await submitter.submit_unique(job)
        return (await submitter.submit([job]))[0]

    async def warnings_about(self, job: NewJob) -> tuple[str, ...]:
        """Warn that no node has registered the task. Raises `InvalidArguments` if one has, and the
        arguments don't fit."""
        if job.task in self._rota.tasks:
            return ()
        signatures = await self._rota.signatures()
        return await signatures.check(job.namespace, job.task, bytes(job.payload))

    async def note_unknown(self, task: str, job_id: UUID) -> None:
        """Record that a job of a task was stored that no node has registered."""
        await (await self._rota.signatures()).note_unknown(self._rota.namespace, task, job_id)

    async def declared_guarantees(self, tasks: Collection[str]) -> dict[str, int]:
        """Return the guarantees of those tasks that are declared, in this process or by a node."""
        known = self._rota.tasks
        found = {name: int(known[name].options_.guarantee) for name in tasks if name in known}
        if elsewhere := [name for name in tasks if name not in found]:
            database = (await self._rota.store()).database
            rows = await database.fetch("defaults_of_tasks", self._rota.namespace, elsewhere)
            found.update({row["name"]: row["guarantee"] for row in rows})
        return found

    async def write_many(self, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Store many different jobs in one transaction, if the quotas of the namespace admit them."""
        if self.admit is not None:
            size = sum(len(bytes(job.payload)) for job in jobs)
            await self.admit(self._rota.namespace, len(jobs), size)
        return await BulkStore((await self._rota.store()).database).write(jobs)

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
        if (known := self._rota.tasks.get(name)) is not None:
            return self.new_call(known, chosen, (), dict(payload)), chosen
        encoded = encode_payload(payload, self._rota.limits, name)
        return self._build(name, encoded, chosen, None), chosen

    async def submit_call(
        self, task: Task[..., Any], options: SubmitOptions, args: Any, kwargs: Any
    ) -> JobHandle[Any]:
        """Submit a call of a task whose code is in this process."""
        return await self._submit_one(self.new_call(task, options, args, kwargs), options)

    def submit_call_sync(
        self, task: Task[..., Any], options: SubmitOptions, args: Any, kwargs: Any
    ) -> JobHandle[Any]:
        """Submit a call of a task from synchronous code."""
        return self.submit_job_sync(self.new_call(task, options, args, kwargs), options)

    def submit_job_sync(self, job: NewJob, options: SubmitOptions) -> JobHandle[Any]:
        """Store a job of `new_call` from synchronous code."""
        return self._submit_sync(job, options, self._submit_one)

    def new_call(
        self, task: Task[..., Any], options: SubmitOptions, args: Any, kwargs: Any
    ) -> NewJob:
        """Make the job that calls a task with these arguments, which are checked."""
        payload = task.arguments.encode(args, kwargs, self._rota.limits)
        job = self._build(task.name, payload, options, task)
        give_keys(job, task)
        return job

    async def _submit_one(self, job: NewJob, options: SubmitOptions) -> JobHandle[Any]:
        with tracing.submitting(job):
            if options.connection is not None:
                answers = await self._submit_through(options.connection, [job])
            else:
                store = partial(self._store_one, job)
                answers = [await submit_when_there_is_room(options, store)]
            return self._handles([job], answers)[0]

    def _submit_sync(self, job: NewJob, options: SubmitOptions, submit: Submit) -> JobHandle[Any]:
        """Store a job through the caller's own synchronous connection, or else by `submit`."""
        if options.connection is None:
            return sync_bridge.call(lambda: submit(job, options), "submit")
        with tracing.submitting(job):
            answers = self._submit_through_sync(options.connection, [job])
            return self._handles([job], answers)[0]

    async def submit_calls(
        self, task: Task[..., Any], options: SubmitOptions, calls: Iterable[Any]
    ) -> list[JobHandle[Any]]:
        """Submit many calls of a task, all or none."""
        if (bulk := self._bulk(task, options, calls)) is None:
            return []
        with tracing.submitting(bulk.template, len(bulk.payloads)):
            if options.connection is not None:
                jobs = _with_keys(bulk, task)
                return self._handles(jobs, await self._submit_through(options.connection, jobs))
            return await submit_when_there_is_room(
                options, partial(self._store_bulk, task, options, bulk)
            )

    async def _store_bulk(
        self, task: Task[..., Any], options: SubmitOptions, bulk: Bulk
    ) -> list[JobHandle[Any]]:
        store = BulkStore((await self._rota.store()).database)
        if bulk.template.unique is not None:
            jobs = _with_keys(bulk, task)
            return self._handles(jobs, await store.submit_unique(jobs, atomically=True))
        if _has_keys(task, options):
            return self._handles(bulk.jobs(), await store.write(_with_keys(bulk, task)))
        if len(bulk.ids) >= _COPY_FROM:
            await store.copy_jobs(bulk)
            return [JobHandle(self._rota.jobs, id, reader=task.result_reader) for id in bulk.ids]
        jobs = bulk.jobs()
        return self._handles(jobs, await store.submit_atomically(jobs))

    def submit_calls_sync(
        self, task: Task[..., Any], options: SubmitOptions, calls: Iterable[Any]
    ) -> list[JobHandle[Any]]:
        """Submit many calls from synchronous code, also through a synchronous connection."""
        if options.connection is None:
            given = list(calls)  # here, and not in the thread of the bridge
            return sync_bridge.call(lambda: self.submit_calls(task, options, given), "submit_many")
        if (bulk := self._bulk(task, options, calls)) is None:
            return []
        with tracing.submitting(bulk.template, len(bulk.payloads)):
            jobs = _with_keys(bulk, task)
            return self._handles(jobs, self._submit_through_sync(options.connection, jobs))

    def _bulk(
        self, task: Task[..., Any], options: SubmitOptions, calls: Iterable[Any]
    ) -> Bulk | None:
        if options.key is not None:
            raise InvalidArguments("submit_many can't give one key to many jobs")
        encode, limits = task.arguments.encode, self._rota.limits
        payloads = [encode(*as_call(call), limits) for call in calls]
        if not payloads:
            return None
        template = self._build(task.name, b"{}", options, task)
        return Bulk(template, new_ids(len(payloads)), payloads)

    def new_unchecked(self, task: Task[..., Any], options: SubmitOptions, payload: bytes) -> NewJob:
        """Make a job whose arguments don't fit its task: one that is to be a dead letter.

        It must be stored whatever it is: no limit, no hook and no other job of the task is asked, and
        it is ready at once.
        """
        raw = msgspec.Raw(payload)
        job = build_job(new_id(), self._rota.namespace, task.name, raw, options, task)
        job.unique = None
        return job

    async def store_within(self, connection: Any, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Store jobs that are made already, in a transaction of Rota's own."""
        return await self._submit_through(connection, jobs)

    async def _submit_through(self, connection: Any, jobs: Sequence[NewJob]) -> list[Submitted]:
        """Store jobs in the caller's transaction, without using any other connection."""
        schema, encryption = self._rota.settings.schema, self._rota.connector.encryption
        if encryption.stale:
            encryption.learn(await ask_encrypted(connection, encryption.namespace, schema))
        answers = await submit_through(connection, encryption.jobs(jobs), schema)
        while again := encryption.to_repeat(jobs, answers):
            others = await submit_through(connection, list(again.values()), schema)
            for place, answer in zip(again, others, strict=True):
                answers[place] = answer
        return answers

    def _submit_through_sync(self, connection: Any, jobs: Sequence[NewJob]) -> list[Submitted]:
        schema, encryption = self._rota.settings.schema, self._rota.connector.encryption
        if encryption.stale:
            encryption.learn(ask_encrypted_sync(connection, encryption.namespace, schema))
        answers = submit_through_sync(connection, encryption.jobs(jobs), schema)
        while again := encryption.to_repeat(jobs, answers):
            others = submit_through_sync(connection, list(again.values()), schema)
            for place, answer in zip(again, others, strict=True):
                answers[place] = answer
        return answers

    def _build(
        self, name: str, payload: bytes, options: SubmitOptions, task: Task[..., Any] | None
    ) -> NewJob:
        job = build_job(new_id(), self._rota.namespace, name, msgspec.Raw(payload), options, task)
        if self.hooks:
            job.headers = apply_hooks(self.hooks, name, job.headers)
        return job

    def _handles(
        self, jobs: Sequence[NewJob], answers: Sequence[Submitted]
    ) -> list[JobHandle[Any]]:
        for job, answer in zip(jobs, answers, strict=True):
            raise_refused(job, answer)
        return [
            JobHandle(
                self._rota.jobs, answer.id, answer.existed, self._reader_of(job.task),
                (answer.warning,) if answer.warning else (),
            )
            for job, answer in zip(jobs, answers, strict=True)
        ]  # fmt: skip

    def _reader_of(self, task: str) -> ResultReader | None:
        known = self._rota.tasks.get(task)
        return None if known is None else known.result_reader


def raise_refused(job: NewJob, answer: Submitted) -> None:
    """Raise the error of a job that was not stored because of its key, or because it is unique."""
    if answer.conflict:
        raise KeyConflict(job.key or "", str(answer.id))
    if answer.refused:
        key = job.unique.key if job.unique is not None else None
        raise DuplicateJob(job.task, str(answer.id), key or "")


def _has_keys(task: Task[..., Any], options: SubmitOptions) -> bool:
    """Return whether a task's jobs lie in sublanes, which only the database can tell of a job."""
    own = task.options_
    declared = own.concurrency, own.rate, own.concurrency_key, own.fairness_key, own.order_key
    given = options.concurrency_key, options.fairness_key, options.order_key
    return any(value is not None for value in (*declared, *given))


def _with_keys(bulk: Bulk, task: Task[..., Any]) -> list[NewJob]:
    jobs = bulk.jobs()
    for job in jobs:
        give_keys(job, task)
    return jobs
