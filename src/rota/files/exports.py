"""Exports of jobs into files: JSON lines, compressed or not, or Parquet."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any, Literal, Protocol

import msgspec

from rota.errors import ConfigError
from rota.lib.row_files import whole_file
from rota.model import Job

Format = Literal["jsonl", "parquet"]

_ROWS = 10_000  # of a group of a Parquet file, which is in memory
_BYTES = 50_000_000  # or fewer rows, when they are large
# Values of any shape are JSON text in a column.
_JSON = ("payload", "result", "error", "headers", "progress", "attempts")


class _Writer(Protocol):
    def write(self, job: Job) -> None: ...

    def close(self) -> None: ...


async def export_jobs(jobs: AsyncIterator[Job], path: Path, file_format: Format) -> int:
    """Write jobs to a file, and return how many. The file appears when all of them are in it."""
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {str(path.parent)!r} to write {path.name} to")
    count = 0
    try:
        with whole_file(path) as file:
            writer: _Writer = _JsonLines(file) if file_format == "jsonl" else _Parquet(file)
            # The iterator may hold a connection: it is closed here, not when it is collected.
            async with contextlib.aclosing(jobs) as each:  # type: ignore[type-var]
                async for job in each:
                    writer.write(job)
                    count += 1
            writer.close()
    except OSError as error:
        raise ConfigError(f"can't write {path}: {error.strerror or error}") from None
    return count


class _JsonLines:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, job: Job) -> None:
        self._file.write(msgspec.json.encode(job) + b"\n")

    def close(self) -> None:
        pass


class _Parquet:
    def __init__(self, file: IO[bytes]) -> None:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError:
            raise ConfigError(
                "Parquet files need pyarrow: pip install 'rota[parquet]', or use --format jsonl"
            ) from None
        self._pa = pa
        moment = pa.timestamp("us", tz="UTC")
        types = {
            "priority": pa.int16(), "attempt": pa.int16(), "max_attempts": pa.int16(),
            "crashes": pa.int16(), "token": pa.int64(), "step": pa.int32(), "timeout": pa.float32(),
            "needs": pa.list_(pa.string()),
            **dict.fromkeys(("created_at", "due_at", "started_at", "finished_at"), moment),
            "cancel_requested_at": moment,
        }  # fmt: skip
        self._schema = pa.schema(
            [(name, types.get(name, pa.string())) for name in Job.__struct_fields__]
        )
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[dict[str, Any]] = []
        self._size = 0

    def write(self, job: Job) -> None:
        row = {name: getattr(job, name) for name in Job.__struct_fields__}
        for name, value in row.items():
            if name in _JSON:
                row[name] = None if value is None else msgspec.json.encode(value).decode()
                self._size += len(row[name] or "")
            elif self._schema.field(name).type == self._pa.string() and value is not None:
                row[name] = str(value)
        self._rows.append(row)
        if len(self._rows) >= _ROWS or self._size >= _BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_table(self._pa.Table.from_pylist(self._rows, self._schema))
        self._rows, self._size = [], 0

    def close(self) -> None:
        self._flush()
        self._writer.close()
