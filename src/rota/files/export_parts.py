"""Exports of jobs into a file of JSON lines that go on where they were interrupted.

Protocol. The request is written to `FILE.part.json` first, then the jobs to `FILE.part`, in the order
of their ids. Every few thousand jobs they are put on the disk (compressed: as a member of the gzip file
of its own, which readers take for one stream), and then the request is replaced by one that says how
long the file is and which job was the last. Dying before that leaves bytes behind that length: the next
run cuts them off and goes on after that job. At the end the file gets its name, and the request is
removed. Dying in between leaves a request without a part: the next run begins anew, and writes the same.
Who writes has locked the part: a second export to the same file is refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import os
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Protocol
from uuid import UUID

import msgspec

from rota.errors import ConfigError
from rota.lib.row_files import sync_folder, whole_file
from rota.model import Job

_STEP = 4_000_000  # bytes of lines between two looks at the disk


class Request(msgspec.Struct, frozen=True):
    """The jobs that are exported, and how many of them are written."""

    since: datetime
    until: datetime  # not in the future: jobs with lower ids than the last written could still end
    state: str | None = None
    task: str | None = None
    queue: str | None = None
    namespace: str | None = None
    asked: tuple[datetime | None, datetime | None] = (None, None)  # its period, where given in full
    jobs: int = 0
    size: int = 0  # of the part, up to the last job that counts
    after: UUID | None = None


class Source(Protocol):
    """The history: `rota.operations.history.History`, here or through a server."""

    def jobs(
        self, since: datetime, until: datetime, *, state: str | None = None,
        task: str | None = None, queue: str | None = None, after: UUID | None = None,
    ) -> AsyncIterator[Job]: ...  # fmt: skip


def _part_of(path: Path) -> Path:
    return _beside(path, ".part")


def _request_of(path: Path) -> Path:
    return _beside(path, ".part.json")


def _beside(path: Path, ending: str) -> Path:
    if not path.name:
        raise ConfigError(f"{str(path)!r} is not the name of a file")
    return path.with_name(f"{path.name}{ending}")


def find_begun(path: Path) -> Request | None:
    """Return the request of an export to this file that was interrupted."""
    try:
        return msgspec.json.decode(_request_of(path).read_bytes(), type=Request)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"can't go on with {path}: {_request_of(path)} can't be read ({error}). Remove it to begin"
            " anew"
        ) from None


def check_same(asked: Request, begun: Request, path: Path) -> Request:
    """Return the request that was begun, if it is the one that is asked for now."""
    for name in ("namespace", "state", "task", "queue"):
        was, now = getattr(begun, name), getattr(asked, name)
        if was != now:
            raise ConfigError(
                f"the export that was begun in {_part_of(path)} is of {name} {was or 'any'}, this one of"
                f" {now or 'any'}: give the same, or remove {_request_of(path)} to begin anew"
            )
    for verb, was_at, was_asked, now_asked in zip(
        ("begins", "ends"), (begun.since, begun.until), begun.asked, asked.asked, strict=True
    ):
        if now_asked is not None and now_asked not in (was_asked, was_at):
            raise ConfigError(
                f"the export that was begun in {_part_of(path)} {verb} at {was_at:%Y-%m-%d %H:%M:%S}: "
                f"give the same period, or remove {_request_of(path)} to begin anew"
            )
    return begun


async def export_in_parts(history: Source, request: Request, path: Path) -> int:
    """Write the jobs of a request to a file, from where it was interrupted on; return how many."""
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {str(path.parent)!r} to write {path.name} to")
    part = _part_of(path)
    try:
        with _opened(part) as handle:
            if os.fstat(handle).st_size < request.size:  # not all that was noted is there
                request = msgspec.structs.replace(request, jobs=0, size=0, after=None)
            _note(path, request)
            # What follows was written and not noted.
            os.ftruncate(handle, request.size)
            os.lseek(handle, request.size, os.SEEK_SET)
            request = await _write_jobs(history, handle, path, request)
            os.replace(part, path)
            sync_folder(path.parent)
            _request_of(path).unlink()
    except OSError as error:
        raise ConfigError(f"can't write {path}: {error.strerror or error}") from None
    return request.jobs


async def _write_jobs(history: Source, handle: int, path: Path, request: Request) -> Request:
    lines: list[bytes] = []
    held = 0
    jobs = history.jobs(
        request.since, request.until, state=request.state, task=request.task,
        queue=request.queue, after=request.after,
    )  # fmt: skip
    last: UUID | None = request.after
    async with contextlib.aclosing(jobs) as each:  # type: ignore[type-var]
        async for job in each:
            lines.append(msgspec.json.encode(job) + b"\n")
            held += len(lines[-1])
            last = job.id
            if held >= _STEP:
                request = _put(handle, lines, path, request, last)
                lines, held = [], 0
    return _put(handle, lines, path, request, last)


@contextlib.contextmanager
def _opened(part: Path) -> Iterator[int]:
    """Open the part, which nobody else may write meanwhile."""
    handle = os.open(part, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another export is writing {part}: wait until it has ended"
            ) from None
        yield handle
    finally:
        os.close(handle)


def _put(
    handle: int, lines: list[bytes], path: Path, request: Request, last: UUID | None
) -> Request:
    """Put these lines on the disk, and then the note that they are there."""
    text = b"".join(lines)
    if path.suffix == ".gz" and (text or not request.size):
        text = gzip.compress(text, compresslevel=6)
    view = memoryview(text)
    while view:
        view = view[os.write(handle, view) :]
    os.fsync(handle)
    done = msgspec.structs.replace(
        request, jobs=request.jobs + len(lines), size=request.size + len(text), after=last
    )
    _note(path, done)
    return done


def _note(path: Path, request: Request) -> None:
    with whole_file(_request_of(path)) as file:
        file.write(msgspec.json.encode(request))
