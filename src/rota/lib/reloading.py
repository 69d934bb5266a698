"""Values that are read from files, and read again when the files are replaced.

The files are looked at when the value is asked for, at most every five seconds. They may be replaced one
after the other, or half written when they are looked at: what can't be read leaves the last value in
use, says so once, and is tried again at the next look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import Generic, TypeVar

from rota.errors import ConfigError

log = logging.getLogger("rota.node")

T = TypeVar("T")

LOOK_EVERY = 5.0


class Reloading(Generic[T]):
    """A value of files. `read` raises ConfigError where they can't be used: at first, so does this."""

    def __init__(self, paths: Sequence[Path], read: Callable[[], T]) -> None:
        self._paths = paths
        self._read = read
        self._seen = self._state()
        self._said: str | None = None
        self._look_at = monotonic() + LOOK_EVERY
        self._value = read()

    def get(self) -> T:
        """Return the value, as the files have it or had it last."""
        if monotonic() >= self._look_at:
            self.look()
        return self._value

    def look(self) -> None:
        """Read the files again if they were replaced."""
        self._look_at = monotonic() + LOOK_EVERY
        state = self._state()  # first: what is replaced while we read is read again
        if state == self._seen:
            return
        try:
            self._value = self._read()
        except ConfigError as error:
            if str(error) != self._said:
                log.warning("what was read before is used on: %s", error)
            self._said = str(error)
            return
        self._seen, self._said = state, None
        log.info("read again: %s", ", ".join(map(str, self._paths)))

    def _state(self) -> list[tuple[int, int, int] | None]:
        return [_state_of(path) for path in self._paths]


def _state_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()  # of what a link leads to: Kubernetes replaces the link
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def read_secret(path: Path, setting: str) -> str:
    """Return the text of a file that has one secret. An end of line after it is none of it."""
    try:
        return path.read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"{setting} {path}: {reason}", field=setting) from None
