"""One operation after the other, each asked for until there is an answer, which is then written down.

There are three answers. "done". "refused": Rota says why it can't do that, by an error that says so to
any caller, and nothing has changed. "failed": any other error, which nobody should ever see.

An operation that got no answer may have been done all the same. Asked for again, some are refused then
for that very reason: the schedule is deleted already, the job is running again. They are done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from proof.history import Operation
from rota.errors import (
    ConfigError,
    Conflict,
    NotFound,
    RequestRefused,
    StoreUnavailable,
    SubmitError,
)

Action = Callable[[], Awaitable[dict[str, Any]]]  # gives back what else is to be written down

# All that `rota.errors` has for a request that is refused: whatever derives from these is an answer.
REFUSALS = (ConfigError, SubmitError, NotFound, RequestRefused)
_DONE_BEFORE: dict[str, tuple[type[Exception], ...]] = {
    "delete": (NotFound,),
    "retry": (NotFound, Conflict),
    "cancel run": (Conflict,),
    "pause run": (Conflict,),
    "resume run": (Conflict,),
    "retry step": (Conflict,),
    "skip step": (Conflict,),
}
_AGAIN = 0.5  # seconds


class Asker:
    """`now` is the history's clock; `note` takes each operation when it is over."""

    def __init__(
        self, random: Random, now: Callable[[], float], note: Callable[[Operation], None]
    ) -> None:
        self._random = random
        self._now = now
        self._note = note

    async def ask(self, kind: Any, subject: str, action: Action, **told: Any) -> bool:
        """Return whether it was done."""
        began, times = self._now(), 0
        answer: Any
        while True:
            times += 1
            try:
                answer, told = "done", told | await action()
                break
            except StoreUnavailable:
                await asyncio.sleep(_AGAIN * (0.5 + self._random.random()))
            except REFUSALS as error:
                before = times > 1 and isinstance(error, _DONE_BEFORE.get(kind, ()))
                answer = "done" if before else "refused"
                told["detail"] = f"{told.get('detail', '')} {error}".strip()
                break
            except Exception as error:  # noqa: BLE001 - it is what we look for
                answer, told["detail"] = "failed", f"{type(error).__name__}: {error}"[:500]
                break
        if kind == "trigger":
            told["count"] = times
        self._note(Operation(began, self._now(), kind, subject, answer, **told))
        return bool(answer == "done")
