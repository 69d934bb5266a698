"""Submit many jobs in one request: a stream of lines, each a job as in ``POST /v1/jobs``.

Protocol. Lines are read as they arrive, gathered into chunks and written chunk by chunk, each in one
transaction, while the next one is being read: memory stays the same however long the stream is. What
is wrong with a line (no JSON, no such field, a key's conflict) concerns that line alone: it is refused
with its number, and the others are stored. With ``on_error=stop`` the first such line ends the request,
with everything before it stored and nothing after it.

What ends a request in the middle (a quota, the database gone, the client gone) leaves the chunks before
stored. Lines with a ``key`` can then be sent again as they are: those that were stored give the same
job back.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from typing import IO, Annotated, Literal, TypeAlias
from uuid import UUID

import msgspec
from litestar import Response, post
from litestar.exceptions import InternalServerException
from litestar.params import QueryParameter
from litestar.response import Stream

from rota.client.wire import LineRefused
from rota.core.access import Principal
from rota.errors import DuplicateJob, InvalidArguments, KeyConflict, RotaError
from rota.lib.ids import new_ids
from rota.operations.job_request import JobRequest, check_guarantee
from rota.operations.rota import Rota
from rota.operations.submissions import raise_refused
from rota.server.api.bodies import NDJSON, describe_body
from rota.server.api.jobs import check_job_of_token
from rota.server.policy import OPERATOR
from rota.server.problems import Problem, to_problem
from rota.server.quotas import Quotas
from rota.server.requests import RotaRequest, TenantDep
from rota.store.rows import NewJob, Submitted

_CHUNK_LINES = 2_000
_LINES_AT_A_TIME = 200
_CHUNK_BYTES = 4_000_000
_SPOOL_BYTES = 1_000_000  # in memory; the rest is on disk
_MOST_WARNINGS = 20
_MOST_ERRORS = 1_000  # that are listed; the others are counted
_BYTES_AROUND_PAYLOAD = 65_536

_decode = msgspec.json.Decoder(JobRequest).decode
_encode = msgspec.json.Encoder().encode


class LineStored(msgspec.Struct, frozen=True):
    line: int
    id: UUID
    existed: bool = False
    duplicate: bool = False  # by a unique job


Answer: TypeAlias = LineStored | LineRefused
Chunk: TypeAlias = list[tuple[int, NewJob | LineRefused]]


class BulkSummary(msgspec.Struct, kw_only=True):
    """`stored` counts new jobs; `existed` those that were stored before with the same key."""

    lines: int = 0
    stored: int = 0
    existed: int = 0
    refused: int = 0
    errors: list[LineRefused] = []
    warnings: list[str] = []


class Lines:
    """Splits a stream into lines. A line that is too long is returned as None, and not kept."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._begun: list[bytes] = []  # the pieces of the current line
        self._size = 0
        self._skipping = False

    def feed(self, piece: bytes) -> Iterator[bytes | None]:
        first, *others = piece.split(b"\n")
        self._add(first)
        for rest in others:
            yield self._take()
            self._add(rest)

    def _add(self, piece: bytes) -> None:
        self._begun.append(piece)
        self._size += len(piece)
        if self._size > self._longest:
            self._skipping = True
            self._begun.clear()

    def _take(self) -> bytes | None:
        line = None if self._skipping else b"".join(self._begun)
        self._begun.clear()
        self._size, self._skipping = 0, False
        return line

    def end(self) -> Iterator[bytes | None]:
        if self._size:
            yield self._take()


class Bulk:
    """Stores the jobs of one request."""

    def __init__(self, tenant: Rota, principal: Principal, quotas: Quotas, *, stop: bool) -> None:
        self._tenant = tenant
        self._quotas = quotas
        self._principal = principal
        self._unknown: set[str] = set()  # tasks that no node has registered
        self._stop = stop
        self._longest = tenant.settings.max_payload_bytes + _BYTES_AROUND_PAYLOAD
        self.summary = BulkSummary()

    async def run(self, stream: AsyncIterator[bytes]) -> AsyncIterator[list[Answer]]:
        """Store the lines, and yield their answers chunk by chunk."""
        writing: asyncio.Task[list[Answer]] | None = None
        try:
            async for chunk in self._chunks(stream):
                if writing is not None:
                    yield await writing
                writing = asyncio.create_task(self._write(chunk))
            if writing is not None:
                yield await writing
        finally:
            if writing is not None and not writing.done():
                # The client has disconnected. Let the transaction end, committed or not.
                await asyncio.wait([writing])

    async def _chunks(self, stream: AsyncIterator[bytes]) -> AsyncIterator[Chunk]:
        lines = Lines(self._longest)
        chunk: Chunk = []
        size = 0
        async for piece in _pieces(stream):
            for line in lines.end() if piece is None else lines.feed(piece):
                self.summary.lines += 1
                if self.summary.lines % _LINES_AT_A_TIME == 0:
                    await asyncio.sleep(0)  # let other requests run
                if line is not None and not line.strip():
                    continue
                read = await self._checked(self._read(self.summary.lines, line))
                chunk.append((self.summary.lines, read))
                size += len(line or b"")
                if self._stop and isinstance(read, LineRefused):
                    yield chunk
                    return
                if len(chunk) >= _CHUNK_LINES or size >= _CHUNK_BYTES:
                    yield chunk
                    chunk, size = [], 0
        if chunk:
            yield chunk

    def _read(self, number: int, line: bytes | None) -> NewJob | LineRefused:
        if line is None:
            return LineRefused(
                number, "payload-too-large", f"the line has more than {self._longest:,} bytes"
            )
        try:
            # The ids of a chunk are made when it is written.
            request, tenant = _decode(line), self._tenant
            check_job_of_token(self._principal, request.name, request.queue)
            return request.to_new_job(
                _NO_ID, tenant.namespace, tenant.tasks, tenant.limits,
                one_queue=self._principal.names_queues,
            )  # fmt: skip
        except RecursionError:
            return LineRefused(number, "too-deep", "the line is nested too deeply")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return LineRefused(number, "invalid", str(error))
        except (RotaError, Problem) as error:
            return _refused(number, error)

    async def _with_declared(self, chunk: Chunk) -> Chunk:
        """Refuse jobs that ask for another guarantee than their task declares."""
        asking = {
            job.task for _, job in chunk
            if isinstance(job, NewJob) and job.guarantee and job.task not in self._tenant.tasks
        }  # fmt: skip
        declared = await self._tenant.submissions.declared_guarantees(asking) if asking else {}

        def judged(number: int, read: NewJob | LineRefused) -> NewJob | LineRefused:
            if isinstance(read, NewJob) and read.task in declared:
                try:
                    check_guarantee(read.task, read.guarantee, declared[read.task])
                except RotaError as error:
                    return _refused(number, error)
            return read

        return [(number, judged(number, read)) for number, read in chunk] if declared else chunk

    async def _checked(self, read: NewJob | LineRefused) -> NewJob | LineRefused:
        """Check a job by the registered signatures, if the code of its task isn't in this process."""
        if isinstance(read, LineRefused) or read.task in self._tenant.tasks:
            return read
        try:
            warnings = await self._tenant.submissions.warnings_about(read)
        except InvalidArguments as error:
            return _refused(self.summary.lines, error)
        known = self.summary.warnings
        if warnings and warnings[0] not in known and len(known) < _MOST_WARNINGS:
            known.extend(warnings)
            self._unknown.add(read.task)
        return read

    async def _write(self, chunk: Chunk) -> list[Answer]:
        chunk = await self._with_declared(chunk)
        jobs = [read for _, read in chunk if isinstance(read, NewJob)]
        for job, id in zip(jobs, new_ids(len(jobs)) if jobs else [], strict=True):
            job.id = id
        answers: Iterator[Submitted] = iter(await self._store_jobs(jobs) if jobs else [])
        results = [
            read if isinstance(read, LineRefused) else _answer(number, read, next(answers))
            for number, read in chunk
        ]
        for job in jobs:
            if job.task in self._unknown:
                self._unknown.remove(job.task)
                await self._tenant.submissions.note_unknown(job.task, job.id)
        self._count(results)
        return results

    async def _store_jobs(self, jobs: list[NewJob]) -> list[Submitted]:
        try:
            await self._quotas.admit_token(self._principal.identity, len(jobs))
            return await self._tenant.submissions.write_many(jobs)
        except (Problem, RotaError) as error:
            problem, cause = to_problem(error), error
        assert problem is not None
        done = self.summary.stored + self.summary.existed + self.summary.refused
        raise Problem(
            problem.status, problem.code,
            f"{problem.detail}. The request ended there; {done:,} jobs before were processed",
            fields={**problem.fields, "jobs_dealt_with": str(done)}, headers=problem.headers,
            full=problem.full, subject=problem.subject,
        ) from cause  # fmt: skip

    def _count(self, answers: list[Answer]) -> None:
        summary = self.summary
        for one in answers:
            if isinstance(one, LineRefused):
                summary.refused += 1
                if len(summary.errors) < _MOST_ERRORS:
                    summary.errors.append(one)
            elif one.existed:
                summary.existed += 1
            else:
                summary.stored += 1


_NO_ID = UUID(int=0)


async def _pieces(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes | None]:
    """Yield the pieces of the stream, then None."""
    try:
        async for piece in stream:
            yield piece
    except InternalServerException:
        raise Problem(400, "disconnected", "the client disconnected") from None
    yield None


def _answer(number: int, job: NewJob, answer: Submitted) -> Answer:
    try:
        raise_refused(job, answer)
    except (DuplicateJob, KeyConflict) as error:
        return _refused(number, error)
    return LineStored(number, answer.id, answer.existed, answer.stood_for)


def _refused(number: int, error: RotaError | Problem) -> LineRefused:
    problem = to_problem(error)
    code, detail = (problem.code, problem.detail) if problem else ("invalid", str(error))
    return LineRefused(number, code, detail)


@post(
    "/v1/jobs:bulk", policy=OPERATOR, summary="Submit many jobs", status_code=200,
    request_max_body_size=None, opt={"uncompressed": True},
    operation_class=describe_body(None, media_type=NDJSON),
    description="The body is NDJSON: a job per line, as in `POST /v1/jobs`. Lines are stored in "
    "chunks of up to 2,000, each in one transaction. A line that can't be stored is refused, and "
    "listed with its number; `on_error=stop` ends the request there. Answered when all are stored: "
    "with a summary, or with `answer=lines` with a line for each line, followed by the summary.",
)  # fmt: skip
async def submit_bulk(
    tenant: TenantDep,
    request: RotaRequest,
    answer: Annotated[Literal["summary", "lines"], QueryParameter()] = "summary",
    on_error: Annotated[Literal["continue", "stop"], QueryParameter()] = "continue",
) -> Response[BulkSummary]:
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Problem(415, "unsupported-media-type", "send the lines without encoding")
    quotas = request.context.quotas
    bulk = Bulk(tenant, request.principal, quotas, stop=on_error == "stop")
    answers = bulk.run(request.stream())
    if answer == "lines":
        return Stream(_read_back(await _spooled(answers, bulk)), media_type=NDJSON)  # type: ignore[return-value]
    async for _ in answers:
        pass
    return Response(bulk.summary)


async def _spooled(chunks: AsyncIterator[list[Answer]], bulk: Bulk) -> IO[bytes]:
    """Write the answers to disk first: many clients don't read before they have sent everything."""
    spool: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115
    try:
        async for answers in chunks:
            spool.write(b"".join(_encode(one) + b"\n" for one in answers))
    except Problem as problem:
        stopped = LineRefused(bulk.summary.lines, problem.code, problem.detail)
        spool.write(_encode({"stopped": stopped}) + b"\n")
    summary = msgspec.structs.asdict(bulk.summary)
    summary.pop("errors")
    spool.write(_encode({"summary": summary}) + b"\n")
    spool.seek(0)
    return spool


async def _read_back(spool: IO[bytes]) -> AsyncIterator[bytes]:
    with spool:
        while piece := spool.read(65_536):
            yield piece


ROUTES = [submit_bulk]
