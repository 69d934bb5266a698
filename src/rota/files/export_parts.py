"""Exports of jobs into a file of JSON lines that go on where they were interrupted.

Protocol. The request is written to `FILE.part.json` first, then the jobs to `FILE.part`, in the order
of their ids. Every few thousand jobs they are put on the disk (compressed: as a member of the gzip file
of its own, which readers take for one stream), and then the request is replaced by one that says how
long the file is and which job was the last. Dying before that leaves bytes behind that length: the next
run cuts them off and goes on after that job. At the end the file gets its name, and the request is
removed. Dying in between leaves a request without a part: the next run begins anew, and writes the same.
"""

from __future__ import annotations

import contextlib
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
    until: datetime
    state: str | None = None
    task: str | None = None
    queue: str | None = None
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
    return path.with_name(f"{path.name}.part")


def _request_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.part.json")


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


def check_same(asked: Request, begun: Request, path: Path, *, with_end: bool) -> Request:
    """Return the request that was begun, if it is the one that is asked for now."""
    for name in ("state", "task", "queue"):
        was, now = getattr(begun, name), getattr(asked, name)
        if was != now:
            raise ConfigError(
                f"the export that was begun in {_part_of(path)} is of {name} {was or 'any'}, this one of"
                f" {now or 'any'}: give the same, or remove {_request_of(path)} to begin anew"
            )
    if with_end and asked.until < begun.until:
        raise ConfigError(
            f"the export that was begun in {_part_of(path)} ends at {begun.until:%Y-%m-%d %H:%M:%S}: "
            f"give the same period, or remove {_request_of(path)} to begin anew"
        )
    return begun


async def export_in_parts(history: Source, request: Request, path: Path) -> int:
    """Write the jobs of a request to a file, from where it was interrupted on; return how many."""
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {str(path.parent)!r} to write {path.name} to")
    part = _part_of(path)
    try:
        if not part.exists():
            request = msgspec.structs.replace(request, jobs=0, size=0, after=None)
        _note(path, request)
        with _opened(part, request.size) as handle:
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
            request = _put(handle, lines, path, request, last)
        os.replace(part, path)
        sync_folder(path.parent)
        _request_of(path).unlink()
    except OSError as error:
        raise ConfigError(f"can't write {path}: {error.strerror or error}") from None
    return request.jobs


@contextlib.contextmanager
def _opened(part: Path, size: int) -> Iterator[int]:
    """Open the part behind its first `size` bytes; what follows them is cut off."""
    handle = os.open(part, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(handle, size)
        os.lseek(handle, size, os.SEEK_SET)
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
