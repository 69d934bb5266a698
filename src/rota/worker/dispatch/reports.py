"""Reports of one worker by a broker: outcomes, log lines and progress.

Protocol. Lines and progress gather for a moment; whatever has gathered is reported before the next
outcome, so that whoever sees that a job has ended finds all of it. An outcome is kept, and its job held,
until it was answered, `accepted` or `stale`. One that relays refuse (a text with a NUL, say) takes no
other with it: it is reported without its result, or as a failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.model import RESULT_DROPPED, Outcome
from rota.runtime.work import Work
from rota.worker.dispatch.book import Book
from rota.worker.dispatch.desk import finish_item, released
from rota.worker.dispatch.link import Gone, Link, Refused

log = logging.getLogger("rota.dispatch")

JobToken: TypeAlias = tuple[UUID, int]
Item: TypeAlias = dict[str, Any]

_FINISH_ITEMS = 500
_FINISH_BYTES = 1_000_000


class Reports:
    """`held`: the jobs that the worker holds, which an answered outcome removes. `link`: the calls of
    the worker, which may be another after it was declared dead."""

    def __init__(
        self, settings: Settings, tasks: Mapping[str, Any], held: dict[JobToken, Work],
        link: Callable[[], Link],
    ) -> None:  # fmt: skip
        self._tasks = tasks
        self._held = held
        self._link = link
        self._finished: list[tuple[Work, Item]] = []
        self._progress: dict[Work, Item] = {}
        self._telling = asyncio.Lock()
        self.to_finish = asyncio.Event()
        self.to_tell = asyncio.Event()
        self.book = Book(settings, self.to_tell.set)

    @property
    def unfinished(self) -> bool:
        """True while an outcome is not answered."""
        return bool(self._finished)

    @property
    def pending(self) -> bool:
        return bool(self._finished or len(self.book))

    def add(self, work: Work, outcome: Outcome) -> None:
        self._finished.append((work, finish_item(work, outcome, self._tasks)))
        self.to_finish.set()

    def let_go(self, works: Iterable[Work]) -> None:
        """Give back jobs that were offered and have not begun."""
        self._finished += [(work, released(work)) for work in works]
        self.to_finish.set()

    def forget(self, work: Work) -> None:
        """Report nothing of it: it is another's."""
        self._finished = [each for each in self._finished if each[0] is not work]
        self._progress.pop(work, None)

    def report_progress(self, work: Work, progress: bytes) -> None:
        self._progress[work] = {**ticket(work), **msgspec.json.decode(progress)}
        self.to_tell.set()

    # -- outcomes

    async def finish_all(self) -> None:
        await self.tell_all()
        await self._finish_some()

    async def _finish_some(self) -> None:
        part = _first(self._finished)
        if not part:
            return
        try:
            await self._link().call("finish", {"items": [item for _, item in part]})
        except Gone:
            raise
        except Refused as error:
            if len(part) == 1:
                self._refused(part[0], error)
                return
        else:
            self._settle(part)
            return
        # One that can't be stored must not take the others with it.
        for each in part:
            await self._finish_one(each)

    async def _finish_one(self, each: tuple[Work, Item]) -> None:
        try:
            await self._link().call("finish", {"items": [each[1]]})
        except Gone:
            raise
        except Refused as error:
            self._refused(each, error)
            return
        self._settle([each])

    def _refused(self, each: tuple[Work, Item], error: Refused) -> None:
        """Report an outcome that no relay takes without its result, or else as a failure."""
        work, item = each
        log.error("the outcome of job %s was refused: %s", work.id, error)
        self._settle([each])
        why = f"its outcome can't be stored: {error}"
        again: dict[str, Any]
        if item["outcome"] == "succeeded" and "result" in item:
            # Failing it would repeat its effects.
            again = {"outcome": "succeeded", "error": {"type": RESULT_DROPPED, "message": why}}
        elif item.get("error", {}).get("type") != "OutcomeNotStored":
            failure = {"type": "OutcomeNotStored", "message": why}
            again = {"outcome": "failed", "fatal": True, "error": failure}
        else:
            return
        self._held[work.id, work.token] = work
        self._finished.append((work, {**ticket(work), **again}))

    def _settle(self, part: Sequence[tuple[Work, Item]]) -> None:
        settled = set(map(id, part))
        self._finished = [each for each in self._finished if id(each) not in settled]
        for work, _ in part:
            self._held.pop((work.id, work.token), None)

    # -- log lines and progress

    async def tell_all(self) -> None:
        async with self._telling:
            while len(self.book) or self._progress:
                if items := self.book.items():
                    await self._report("logs", items)
                if self._progress:
                    progress, self._progress = list(self._progress.values()), {}
                    for at in range(0, len(progress), _FINISH_ITEMS):
                        await self._report("progress", progress[at : at + _FINISH_ITEMS])

    async def _report(self, name: str, items: list[dict[str, Any]]) -> None:
        try:
            await self._link().call(name, {"items": items})
        except Gone:
            raise
        except Refused as error:  # it is no reason to hold up outcomes
            log.error("%s of %d jobs were refused: %s", name, len(items), error)


def ticket(work: Work) -> Item:
    return {"job": work.id, "token": work.token}


def _first(finished: Sequence[tuple[Work, Item]]) -> list[tuple[Work, Item]]:
    """Return as many of the first as fit into one call: at least one."""
    part: list[tuple[Work, Item]] = []
    size = 0
    for each in finished[:_FINISH_ITEMS]:
        size += 200 + len(bytes(each[1].get("result", b"")))
        if part and size > _FINISH_BYTES:
            break
        part.append(each)
    return part
