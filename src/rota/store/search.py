"""Searching for jobs: pages, counts, and ids to act on.

Protocol. One filter, in SQL as `found_jobs`, with a page, a count or a list of ids put around it.
Reads only. A page is ordered by id, newest first, and goes on below the last id of the page before: a
job keeps its id wherever it moves, so that none is returned twice or missed while others come and go.

A filter that matches little of a long history has to read much of it. So the statements have a short
timeout: a count that takes longer becomes the planner's estimate, and is marked so; a page is refused.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from rota.errors import StoreUnavailable, TooMuchToRead
from rota.model import Count, DeadGroup, JobSummary, OutcomeKind, State
from rota.store.database import Connection, Database, Store
from rota.store.estimates import estimated_rows
from rota.store.rows import asked_of, split_lane

_COUNT_MS = 500
_PAGE_MS = 10_000
_QUICK_MS = 25
_FEW = 5_000
LOOKED = 20_000  # jobs that a look reads
_BETWEEN = re.compile(r"\s*([:,{}\[\]])\s*")

_SUMMARY = """f.id, f.task, f.lane, f.state, f.priority, f.due_at, f.created_at, f.started_at,
    f.finished_at, f.cancel_at as cancel_requested_at, f.attempt, f.max_attempts, f.key,
    f.headers -> 'tags' as tags, f.node, f.schedule_id, f.error ->> 'type' as error_type,
    case when starts_with(f.error ->> 'message', '$rota-encrypted:') then f.error ->> 'message'
         else left(f.error ->> 'message', 300) end as error_message"""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A filter of jobs. A field that is left out matches every job."""

    states: tuple[State, ...] = ()
    task: str | None = None
    queue: str | None = None
    tag: str | None = None
    since: datetime | None = None  # created at or after
    until: datetime | None = None  # created before
    text: str | None = None
    schedule: str | None = None
    outcome: OutcomeKind | None = None  # how its last attempt ended
    group: str | None = None  # of dead letters: the fingerprint
    node: str | None = None  # the name or the id of the node that has it, or had it last
    ended_from: datetime | None = None  # ended at or after
    ended_to: datetime | None = None  # ended before

    @classmethod
    def of(
        cls, *, states: Sequence[str] | None = None, outcome: str | None = None, **rest: Any
    ) -> JobFilter:
        """Make a filter from the names of states and of an outcome. Blank texts are left out."""
        return cls(
            states=tuple(sorted({State.parse(name) for name in states or ()})),
            outcome=OutcomeKind.parse(outcome) if outcome else None,
            **{name: value or None for name, value in rest.items()},
        )

    @property
    def described(self) -> dict[str, Any]:
        """The filter with names in place of numbers, for the audit log."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        if self.states:
            found["states"] = [state.label for state in self.states]
        if self.outcome is not None:
            found["outcome"] = self.outcome.label
        return found


class Looked(msgspec.Struct, frozen=True):
    """Jobs that match, of those that were looked at: the newest ones.

    `until`: the oldest job that was looked at, if there are older ones; None: all were looked at, or as
    many as were asked for were found before.
    """

    jobs: Sequence[JobSummary]
    until: UUID | None = None
    back_to: datetime | None = None  # when that one was created
    most: int = LOOKED


class JobSearch(Store):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        found = database.queries["found_jobs"]
        self._page = (
            f"select {_SUMMARY} from ({found}) as f"  # noqa: S608
            " where ($16::uuid is null or f.id < $16) order by f.id desc limit $17"
        )
        # The same filter, of the newest jobs only. They come by the indexes on ids, in their order, so
        # that reading ends with the last row of the page.
        whole = re.search(r"from (\S+) as j\b", found)
        assert whole, "found_jobs reads the jobs as j"
        newest = (
            f"select * from {whole[1]} as j where j.namespace = $1 and ($2::smallint[] is null or "  # noqa: S608
            "j.state = any($2)) and ($16::uuid is null or j.id < $16) order by j.id desc limit $18"
        )
        looked = found.replace(whole[0], f"from ({newest}) as j", 1)
        self._look = f"select {_SUMMARY} from ({looked}) as f order by f.id desc limit $17"  # noqa: S608
        self._last = (
            f"select j.id, j.created_at from {whole[1]} as j where j.namespace = $1 and "  # noqa: S608
            "($2::smallint[] is null or j.state = any($2)) and ($3::uuid is null or j.id < $3) "
            "order by j.id desc offset $4 limit 1"
        )
        self._count = f"select count(*) from ({found}) as f"  # noqa: S608
        self._every = f"select from ({found}) as f"
        self._ids = f"select f.id from ({found}) as f order by f.id limit $16"  # noqa: S608

    async def page(
        self, namespace: str, wanted: JobFilter, before: UUID | None, limit: int, *,
        patience_ms: int | None = None,
    ) -> list[JobSummary]:  # fmt: skip
        """Return the newest that match and are older than `before`, newest first."""
        async with self._hasty(patience_ms or _PAGE_MS) as connection:
            rows = await connection.fetch(self._page, *_arguments(namespace, wanted), before, limit)
        opened = self.database.encryption.shown_text
        return [_to_summary(row, opened) for row in rows]

    async def look(
        self, namespace: str, wanted: JobFilter, before: UUID | None, limit: int, *,
        most: int | None = None,
    ) -> Looked:  # fmt: skip
        """Return those that match among the newest `most` jobs (of the states asked for) that are
        older than `before`: takes the same time however many jobs there are."""
        arguments, most = _arguments(namespace, wanted), most or LOOKED
        async with self._hasty(_PAGE_MS) as connection:
            rows = await connection.fetch(self._look, *arguments, before, limit, most)
            last = None
            if len(rows) < limit:
                last = await connection.fetchrow(
                    self._last, namespace, arguments[1], before, most - 1
                )
        opened = self.database.encryption.shown_text
        jobs = [_to_summary(row, opened) for row in rows]
        return Looked(jobs, last["id"], last["created_at"], most) if last else Looked(jobs)

    async def ids(self, namespace: str, wanted: JobFilter, limit: int) -> list[UUID]:
        """Return the ids of those that match, oldest first."""
        async with self._hasty(_PAGE_MS) as connection:
            rows = await connection.fetch(self._ids, *_arguments(namespace, wanted), limit)
        return [row[0] for row in rows]

    async def count(self, namespace: str, wanted: JobFilter) -> Count:
        """Count those that match, exactly where that is fast."""
        exact = await self._exactly(namespace, wanted, _COUNT_MS)
        return exact or await self._guess(namespace, wanted)

    async def quick_count(self, namespace: str, wanted: JobFilter) -> Count:
        """Count those that match within milliseconds, exactly only where there are few."""
        guess = await self._guess(namespace, wanted)
        if guess.value > _FEW:
            return guess
        return await self._exactly(namespace, wanted, _QUICK_MS) or guess

    async def _exactly(self, namespace: str, wanted: JobFilter, milliseconds: int) -> Count | None:
        arguments = _arguments(namespace, wanted)
        with contextlib.suppress(TooMuchToRead):
            async with self._hasty(milliseconds) as connection:
                return Count(await connection.fetchval(self._count, *arguments), exact=True)
        return None

    async def _guess(self, namespace: str, wanted: JobFilter) -> Count:
        """Return the planner's estimate."""
        rows = await estimated_rows(self.database, self._every, *_arguments(namespace, wanted))
        return Count(rows, exact=False)

    async def dead_groups(
        self, namespace: str, task: str | None, queue: str | None, limit: int
    ) -> list[DeadGroup]:
        return await self._all(DeadGroup, "dead_groups", namespace, task, queue, limit)

    async def find_dead_group(self, namespace: str, fingerprint: str, limit: int) -> list[UUID]:
        return await self._all(UUID, "find_dead_group", namespace, fingerprint, limit)

    @contextlib.asynccontextmanager
    async def _hasty(self, milliseconds: int) -> AsyncIterator[Connection]:
        try:
            async with self.database.transaction("search") as connection:
                await connection.execute(f"set local statement_timeout = {milliseconds:d}")
                yield connection
        except StoreUnavailable as error:
            if isinstance(error.__cause__, asyncpg.QueryCanceledError):
                raise TooMuchToRead(
                    "too many jobs have to be read for this filter: add a state, or a range of time"
                ) from error
            raise


def _arguments(namespace: str, wanted: JobFilter) -> Sequence[Any]:
    states = [int(state) for state in wanted.states] or None
    return (namespace, states, wanted.task, wanted.queue, wanted.tag, wanted.since, wanted.until,
            wanted.text, wanted.schedule,
            wanted.outcome.label if wanted.outcome is not None else None,
            compact_json(wanted.text), wanted.group, wanted.node, wanted.ended_from,
            wanted.ended_to)  # fmt: skip


def compact_json(text: str | None) -> str | None:
    """Return a piece of JSON without the spaces between its parts; None if that changes nothing."""
    found = _BETWEEN.sub(r"\1", text.strip()) if text else None
    return found if found != text else None


def _to_summary(row: Any, opened: Callable[[str | None, UUID], str | None]) -> JobSummary:
    fields = dict(row)
    if fields["error_message"] is not None:
        fields["error_message"] = (opened(fields["error_message"], row["id"]) or "")[:300]
    queue, needs = split_lane(fields.pop("lane"))
    fields |= asked_of(needs)
    state, tags = State(fields.pop("state")).label, fields.pop("tags")
    return JobSummary(queue=queue, state=state, tags=_tags(tags), **fields)


def _tags(text: str | None) -> list[str]:
    """Return the tags in the headers, which may hold anything under that name."""
    found = msgspec.json.decode(text) if text else []
    return [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []
