"""Many jobs in one request: a stream of lines, each a job as in ``POST /v1/jobs``.

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
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import IO, Annotated, Literal
from uuid import UUID

import msgspec
from litestar import Response, post
from litestar.exceptions import InternalServerException
from litestar.params import QueryParameter
from litestar.response import Stream

from rota.client.wire import LineRefused
from rota.core.access import Principal
from rota.errors import InvalidArguments, KeyConflict, RotaError
from rota.lib.ids import new_ids
from rota.operations.job_request import JobRequest, check_guarantee
from rota.operations.rota import Rota
from rota.server.api.bodies import NDJSON, BulkOperation
from rota.server.api.jobs import check_task_of_token
from rota.server.dependencies import TenantDep
from rota.server.policy import OPERATOR
from rota.server.problems import Problem, to_problem
from rota.server.requests import RotaRequest
from rota.store.rows import NewJob, Submitted

_CHUNK_LINES = 2_000
_LINES_AT_A_TIME = 200
_CHUNK_BYTES = 4_000_000
_SPOOL_BYTES = 1_000_000  # in memory; the rest is on disk
_MOST_WARNINGS = 20
_MOST_ERRORS = 1_000  # that are told one by one; the rest is counted
_ROOM_AROUND_A_PAYLOAD = 65_536

_decode = msgspec.json.Decoder(JobRequest).decode
_encode = msgspec.json.Encoder().encode


class LineStored(msgspec.Struct, frozen=True):
    line: int
    id: UUID
    existed: bool = False


class BulkSummary(msgspec.Struct, kw_only=True):
    """`stored` counts new jobs, `existed` those whose key had been used for the same before."""

    lines: int = 0
    stored: int = 0
    existed: int = 0
    refused: int = 0
    errors: list[LineRefused] = []
    warnings: list[str] = []


class Lines:
    """Pieces of a stream to lines. One that is too long comes as None, and is never held."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._begun: list[
            bytes
        ] = []  # pieces of the line that hasn't ended: joined once, when it does
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
    """One request's stream on its way into the store."""

    def __init__(
        self,
        tenant: Rota,
        principal: Principal,
        *,
        stop: bool,
    ) -> None:
        self._tenant = tenant
        self._principal = principal
        self._unknown: set[str] = set()  # tasks that nobody has registered, to be told of
        self._stop = stop
        self._longest = tenant.settings.max_payload_bytes + _ROOM_AROUND_A_PAYLOAD
        self.summary = BulkSummary()

    async def run(
        self, stream: AsyncIterator[bytes]
    ) -> AsyncIterator[Sequence[LineStored | LineRefused]]:
        """What became of the lines, chunk by chunk."""
        writing: asyncio.Task[list[LineStored | LineRefused]] | None = None
        try:
            async for chunk in self._chunks(stream):
                if writing is not None:
                    yield await writing
                writing = asyncio.create_task(self._write(chunk))
            if writing is not None:
                yield await writing
        finally:
            if writing is not None and not writing.done():
                # The client has gone. What is under way is committed or not; we don't ask.
                await asyncio.wait([writing])

    async def _chunks(
        self, stream: AsyncIterator[bytes]
    ) -> AsyncIterator[list[tuple[int, NewJob | LineRefused]]]:
        lines = Lines(self._longest)
        chunk: list[tuple[int, NewJob | LineRefused]] = []
        size = 0
        async for piece in _pieces(stream):
            for line in lines.end() if piece is None else lines.feed(piece):
                self.summary.lines += 1
                if self.summary.lines % _LINES_AT_A_TIME == 0:
                    await asyncio.sleep(0)  # others have their turn
                if line is not None and not line.strip():
                    continue  # an empty line is nothing
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
            # Its id is given when it is written, with those of the whole chunk.
            request, tenant = _decode(line), self._tenant
            check_task_of_token(self._principal, request.name)
            return request.to_new_job(_NO_ID, tenant.namespace, tenant.tasks, tenant.limits)
        except RecursionError:
            return LineRefused(number, "too-deep", "it is nested too deeply")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return LineRefused(number, "invalid", str(error))
        except (RotaError, Problem) as error:
            return _refused(number, error)

    async def _with_declared(
        self, chunk: list[tuple[int, NewJob | LineRefused]]
    ) -> list[tuple[int, NewJob | LineRefused]]:
        """Those that ask for another guarantee than their task declares, wherever it does, refused."""
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
        """By what nodes registered, if the task's code isn't here."""
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

    async def _write(
        self, chunk: list[tuple[int, NewJob | LineRefused]]
    ) -> list[LineStored | LineRefused]:
        chunk = await self._with_declared(chunk)
        jobs = [read for _, read in chunk if isinstance(read, NewJob)]
        for job, id in zip(jobs, new_ids(len(jobs)) if jobs else [], strict=True):
            job.id = id
        answers: Iterator[Submitted] = iter(await self._store_jobs(jobs) if jobs else [])
        told = [
            read if isinstance(read, LineRefused) else _told(number, read, next(answers))
            for number, read in chunk
        ]
        for job in jobs:
            if job.task in self._unknown:
                self._unknown.remove(job.task)
                await self._tenant.submissions.note_unknown(job.task, job.id)
        self._count(told)
        return told

    async def _store_jobs(self, jobs: list[NewJob]) -> list[Submitted]:
        try:
            return await self._tenant.submissions.write_many(jobs)
        except (Problem, RotaError) as error:
            raise self._stopped(error) from error

    def _stopped(self, error: Exception) -> Problem:
        problem = to_problem(error)
        assert problem is not None
        done = self.summary.stored + self.summary.existed + self.summary.refused
        return Problem(
            problem.status, problem.code,
            f"{problem.detail}. The request ended there: {done:,} jobs before were dealt with",
            fields={**problem.fields, "jobs_dealt_with": str(done)}, headers=problem.headers,
        )  # fmt: skip

    def _count(self, told: list[LineStored | LineRefused]) -> None:
        summary = self.summary
        for one in told:
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
    """And None at the end."""
    try:
        async for piece in stream:
            yield piece
    except InternalServerException:
        raise Problem(400, "disconnected", "the client went away") from None  # nobody hears it
    yield None


def _told(number: int, job: NewJob, answer: Submitted) -> LineStored | LineRefused:
    if answer.conflict:
        return _refused(number, KeyConflict(job.key or "", str(answer.id)))
    return LineStored(number, answer.id, answer.existed)


def _refused(number: int, error: RotaError | Problem) -> LineRefused:
    problem = to_problem(error)
    code, detail = (problem.code, problem.detail) if problem else ("invalid", str(error))
    return LineRefused(number, code, detail)


@post(
    "/v1/jobs:bulk", policy=OPERATOR.unaudited, summary="Submit many jobs", status_code=200,
    request_max_body_size=None, operation_class=BulkOperation, opt={"uncompressed": True},
    description="The body is NDJSON: a job per line, as in `POST /v1/jobs`. Lines are stored in "
    "chunks of up to 2,000, each in one transaction. A line that can't be stored is refused alone "
    "and told with its number; `on_error=stop` ends there instead. Answered when all is stored: with "
    "a summary, or with `answer=lines` by a line for each line, and then the summary.",
)  # fmt: skip
async def submit_bulk(
    tenant: TenantDep,
    request: RotaRequest,
    answer: Annotated[Literal["summary", "lines"], QueryParameter()] = "summary",
    on_error: Annotated[Literal["continue", "stop"], QueryParameter()] = "continue",
) -> Response[BulkSummary]:
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Problem(415, "unsupported-media-type", "send the lines as they are, not encoded")
    bulk = Bulk(tenant, request.principal, stop=on_error == "stop")
    told = bulk.run(request.stream())
    if answer == "lines":
        return Stream(_read_back(await _spooled(told, bulk)), media_type=NDJSON)  # type: ignore[return-value]
    async for _ in told:
        pass
    return Response(bulk.summary)


async def _spooled(
    chunks: AsyncIterator[Sequence[LineStored | LineRefused]], bulk: Bulk
) -> IO[bytes]:
    """Kept on disk until everything has been read: many clients don't read before they have sent."""
    spool: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115
    try:
        async for told in chunks:
            spool.write(b"".join(_encode(one) + b"\n" for one in told))
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
