"""Copies jobs into files before the retention removes them (the setting `archive_dir`).

Protocol. A day of the past is copied page by page into `past_YYYYMMDD.jsonl.gz`, one stored row a line,
encrypted values as they are. The file gets its name when it is complete and on the disk. Then the day
is emptied, in a transaction that locks it and finds as many rows as were copied. Dead letters, and rows
of days that had no partition, are appended in steps to `dead_letters_YYYYMMDD.jsonl.gz` and
`strays_YYYYMMDD.jsonl.gz`, and deleted when a step is on the disk.

If the process dies before the file has its name, the next try begins anew. If it dies after that, or the
day could not be locked, the day is copied again, and its file replaced by the same rows. A step of dead
letters may be in its file twice: their ids tell. If another janitor empties the day while this one
copies it, the count before the file gets its name differs, and the copy is thrown away: the other
janitor has it. Nothing is removed that is not in a file: while the folder can't be written, all stays.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from time import monotonic

from rota.errors import ConfigError
from rota.lib.row_files import append_lines, join_lines, whole_file
from rota.store.history import STEPWISE, HistoryStore

log = logging.getLogger("rota.archive")

_STEP = 1_000
_AGAIN = 600.0  # seconds after a folder that could not be written


class Archive:
    def __init__(self, store: HistoryStore, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._not_before = 0.0  # monotonic

    def check(self) -> None:
        """Make the folder, or refuse to start without it."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"archive_dir {str(self._folder)!r} can't be made: {error.strerror}",
                field="archive_dir",
            ) from None

    async def copy_days(self, retention_days: int) -> dict[str, int]:
        """Copy the days whose retention is over; return how many rows each has."""
        if monotonic() < self._not_before:
            return {}
        copied: dict[str, int] = {}
        for name in await self._store.old_days(retention_days):
            try:
                rows = await self._copy_day(name)
            except OSError as error:
                self._put_off(error)
                break
            if rows is not None:
                copied[name] = rows
        return copied

    async def _copy_day(self, name: str) -> int | None:
        path, rows = self._folder / f"{name}.jsonl.gz", 0
        try:
            with whole_file(path) as file:
                async for lines in self._store.pages_of_day(name):
                    # Beside the loop: compressing a page takes longer than a heartbeat may wait.
                    await asyncio.to_thread(file.write, join_lines(lines))
                    rows += len(lines)
                if await self._store.count_day(name) != rows:
                    raise _Changed
        except _Changed:
            log.info("%s changed while it was copied: it is tried again", name)
            return None
        log.info("copied %d jobs of %s to %s", rows, name, path)
        return rows

    async def move_rest(self, retention_days: int, dead_letter_days: int) -> None:
        """Move what is not dropped by the day."""
        if monotonic() < self._not_before:
            return
        now = await self._store.now()
        for kind, days in zip(STEPWISE, (dead_letter_days, retention_days), strict=True):
            path = self._folder / f"{kind}_{now:%Y%m%d}.jsonl.gz"
            while rows := await self._store.old_rows(kind, days, _STEP):
                try:
                    await asyncio.to_thread(append_lines, path, [row["row"] for row in rows])
                except OSError as error:
                    self._put_off(error)
                    return
                await self._store.forget_rows(kind, [row["id"] for row in rows])

    def _put_off(self, error: OSError) -> None:
        self._not_before = monotonic() + _AGAIN
        log.error(
            "can't write to archive_dir %s (%s): jobs whose retention is over are kept, next try in"
            " %d s", self._folder, error.strerror or error, _AGAIN,
        )  # fmt: skip


class _Changed(Exception):
    pass
