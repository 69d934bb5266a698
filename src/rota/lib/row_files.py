"""Files of JSON lines. A file appears whole under its name, or not at all."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces `path` at the end, if there was no error.

    A name that ends with .gz is compressed. What was written is on the disk before the name is: neither
    a crash nor a full disk leaves a part of the file under it.
    """
    if path.exists() and not path.is_file():
        # Such as /dev/stdout, which would become a file of this name.
        raise OSError(errno.EINVAL, "it is there, and is not a regular file")
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as raw:
            with compressed(raw, path) as file:
                yield file
            raw.flush()
            os.fsync(raw.fileno())
        os.chmod(name, 0o600)  # payloads may hold what not everybody should read
        os.replace(name, path)
        sync_folder(path.parent)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def compressed(raw: IO[bytes], path: Path) -> contextlib.AbstractContextManager[IO[bytes]]:
    if path.suffix == ".gz":
        return gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6)  # type: ignore[return-value]
    return contextlib.nullcontext(raw)


def append_lines(path: Path, lines: list[str]) -> None:
    """Add lines to a compressed file, and return when they are on the disk.

    Each call adds a member of its own, which readers of gzip files read as one stream.
    """
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb") as raw:
        raw.write(gzip.compress(join_lines(lines), compresslevel=6))
        raw.flush()
        os.fsync(raw.fileno())
    sync_folder(path.parent)


def join_lines(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def sync_folder(path: Path) -> None:
    """Put the names in a folder on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
