"""What happened, as one number: equal for equal seeds, or something depends on the real world."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from proof.simulation.loop import Process, SimLoop

# What only the real server knows: it never decides anything, and differs from run to run.
_REAL = ("pg_stat_user_tables",)
_SPACE = re.compile(r"\s+")


class Trace:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._hash = hashlib.sha256()
        self._names: dict[str, str] = {}
        self.lines: list[str] | None = None  # kept only when asked for
        self.count = 0

    def name_queries(self, queries: dict[str, str]) -> None:
        self._names = {text: name for name, text in queries.items()}

    def name_of(self, text: str) -> str | None:
        return self._names.get(text)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def note(self, process: Process, text: str, result: Any, error: BaseException | None) -> None:
        name = self._names.get(text) or _SPACE.sub(" ", text)[:60]
        if error is not None:
            outcome = type(error).__name__
        elif any(word in text for word in _REAL):
            outcome = "-"
        else:
            outcome = repr(result)
        self.add(process.name, name, outcome)

    def add(self, who: str, what: str, outcome: str = "") -> None:
        self.count += 1
        line = f"{self._loop.time():.6f} {who} {what} {outcome}"
        self._hash.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)
