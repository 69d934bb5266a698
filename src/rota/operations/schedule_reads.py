"""Reading schedules: lists, previews, the ledger, its audit, and lint."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from rota.core.payloads import encode_payload
from rota.core.time.calendars import NamedCalendar
from rota.core.time.lint import Linter, Warned, Watched
from rota.core.time.recurrence import Recurrence
from rota.core.time.schedule import ScheduleSpec, compile_schedule
from rota.core.time.status import Audit, LatestOccurrence, OccurrenceStatus, Preview, ScheduleStatus
from rota.core.time.words import describe
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition
from rota.core.years import year_problem
from rota.errors import ConfigError, InvalidArguments, NotFound
from rota.lib.computing import Compute, Spend, compute_here
from rota.operations.base import Operations
from rota.operations.ledger import compare_ledger, to_occurrence, to_spans, to_status
from rota.operations.runs import check_input
from rota.store.rows import TaskDefaults
from rota.store.schedules import ScheduleStore, TaskDuration

if TYPE_CHECKING:
    from rota.operations.rota import Rota

_TICK = timedelta(microseconds=1)
_LEDGER_PAGE = 500
_LOOKED = 10_000  # names that a look reads
_AT_A_TIME = 100  # schedules that lint checks before other requests run
_PAGE = 500


def check_years(**moments: datetime | None) -> None:
    """Refuse moments for which rules can't be computed."""
    for field, moment in moments.items():
        if moment is not None and (problem := year_problem(field, moment)) is not None:
            raise ConfigError(problem, field=field)


class Measured(msgspec.Struct, frozen=True):
    """The stored schedules with their recurrences, how long their tasks took, and warnings about those
    that can't be planned."""

    watched: list[tuple[ScheduleStatus, Watched]]
    durations: dict[str, TaskDuration]
    broken: list[Warned]


class ScheduleReads(Operations):
    """The part of `Schedules` that changes nothing."""

    def __init__(self, rota: Rota) -> None:
        super().__init__(rota)
        # Compute rules, for changes and for reads; a server has a thread for each.
        self.compute: Compute = compute_here
        self.compute_read: Compute = compute_here
        # Occurrences that a backfill or an audit may compute at most; None: any number.
        self.most_occurrences: int | None = None

    async def _store(self) -> ScheduleStore:
        return ScheduleStore(await self._database())

    def _unknown(self, name: str) -> NotFound:
        return NotFound(
            f"there is no schedule {name!r} in namespace {self._namespace!r}", subject=name
        )

    async def _calendars(self) -> dict[str, NamedCalendar]:
        return (await (await self._store()).calendars()).get(self._namespace, {})

    async def compile_spec(self, spec: ScheduleSpec) -> Recurrence:
        """Compile a rule, with the calendars that the database has."""
        calendars = await self._calendars() if spec.exclude or spec.include else {}
        try:
            return await self.compute(lambda _: compile_schedule(spec, calendars))
        except OverflowError:
            raise ConfigError(
                f"schedule {spec.name!r}: starts, ends or the anchor is too far away in time"
            ) from None

    async def list(self) -> list[ScheduleStatus]:
        """List all schedules, by name."""
        found: list[ScheduleStatus] = []
        while (
            len(page := await self.page(after=found[-1].name if found else None, limit=_PAGE))
            == _PAGE
        ):
            found += page
        return [*found, *page]

    async def pages(
        self, *, task: str | None = None, tag: str | None = None
    ) -> AsyncIterator[Sequence[ScheduleStatus]]:
        """List all schedules that match, by name, a page at a time: as many as there are, in the memory
        of one page."""
        after: str | None = None
        while True:
            page, after = await self.look(task=task, tag=tag, after=after, limit=_PAGE)
            if page:
                yield page
            if after is None:
                return

    async def page(
        self, *, task: str | None = None, tag: str | None = None, paused: bool | None = None,
        text: str | None = None, after: str | None = None, limit: int = 50,
        among: int | None = None,
    ) -> Sequence[ScheduleStatus]:  # fmt: skip
        """List the schedules that match, by name, beginning after the name `after`.

        `among`: look only at so many names, whether they match or not.
        """
        rows = await self._page(task, tag, paused, text, after, limit, among)
        shown = (await self._database()).encryption.shown_spec
        return [to_status(row, shown) for row in rows]

    async def look(
        self, *, task: str | None = None, tag: str | None = None, paused: bool | None = None,
        text: str | None = None, after: str | None = None, limit: int = 50,
    ) -> tuple[Sequence[ScheduleStatus], str | None]:  # fmt: skip
        """List those that match among the first 10,000 names after `after`: takes the same time however
        many schedules there are. Also returns the name after which to go on; None: there are no more."""
        found = await self.page(
            task=task,
            tag=tag,
            paused=paused,
            text=text,
            after=after,
            limit=limit + 1,
            among=_LOOKED,
        )
        if len(found) > limit:
            return found[:limit], found[limit - 1].name
        return found, await (await self._store()).name_after(self._namespace, after, _LOOKED)

    async def _page(
        self, task: str | None = None, tag: str | None = None, paused: bool | None = None,
        text: str | None = None, after: str | None = None, limit: int = _PAGE,
        among: int | None = None,
    ) -> Sequence[Any]:  # fmt: skip
        return await (await self._database()).fetch(
            "schedules_page", self._namespace, task or None, tag or None, paused, text or None,
            after, limit, among,
        )  # fmt: skip

    async def resolve(self, name_or_id: str) -> str:
        """Return the name of a schedule that is given by its name or its id."""
        database = await self._database()
        found: str | None = await database.fetchval("schedule_name", self._namespace, name_or_id)
        if found is None:
            raise self._unknown(name_or_id)
        return found

    async def get(self, name: str) -> ScheduleStatus:
        """Return a schedule as it is now."""
        store = await self._store()
        row = await store.find(self._namespace, name)
        if row is None:
            raise self._unknown(name)
        return to_status(row, store.database.encryption.shown_spec)

    async def latest(self, name: str | None = None, limit: int = 1) -> Sequence[LatestOccurrence]:
        """Return the newest rows of the ledger, newest first: of one schedule, or of each."""
        if name is not None:
            return await self.latest_of([name], limit)
        store, names = await self._store(), list[str]()
        found: list[LatestOccurrence] = []
        while names := await store.names(self._namespace, names[-1] if names else None, _PAGE):
            found += await self.latest_of(names, limit)
        return found

    async def latest_of(self, names: Sequence[str], limit: int = 1) -> Sequence[LatestOccurrence]:
        """Return the newest rows of the ledger of each of these schedules, newest first."""
        rows = await (await self._store()).latest_occurrences(self._namespace, names, limit)
        return [LatestOccurrence(row["name"], to_occurrence(row)) for row in rows]

    async def latest_page(
        self, limit: int = 1, *, after: str | None = None, schedules: int = _PAGE
    ) -> tuple[Sequence[LatestOccurrence], str | None]:
        """Return the newest rows of the ledger of the first schedules after the name `after`, and the
        name after which the next page begins: None after the last page."""
        names = await (await self._store()).names(self._namespace, after, schedules + 1)
        found = await self.latest_of(names[:schedules], limit)
        return found, names[schedules - 1] if len(names) > schedules else None

    async def calendars(self) -> dict[str, NamedCalendar]:
        """Return the named calendars of the namespace, by name."""
        return await self._calendars()

    async def preview(
        self, spec: ScheduleSpec, count: int = 10, *, after: datetime | None = None
    ) -> Preview:
        """Compute the next occurrences of a rule, whether it is stored or not."""
        check_years(after=after)
        start = after or await (await self._rota.store()).now()
        calendars = await self._calendars() if spec.exclude or spec.include else {}

        def compute(spend: Spend) -> Preview:
            try:
                recurrence = compile_schedule(spec, calendars)
                return Preview(describe(spec), list(spend(recurrence.after(start, count))))
            except (OverflowError, ValueError) as error:
                raise ConfigError(f"{spec.name}: this is too far away in time: {error}") from None

        return await self.compute_read(compute)

    async def occurrences(
        self, name: str, first: datetime, end: datetime, limit: int = 1000, *,
        state: str | None = None,
    ) -> Sequence[OccurrenceStatus]:  # fmt: skip
        """Read the ledger of a stretch of time, oldest first. `state`: only fired or skipped ones."""
        check_years(first=first, end=end)
        id, store = (await self.get(name)).id, await self._store()
        found: list[OccurrenceStatus] = []
        size = max(limit, _LEDGER_PAGE)
        while len(found) < limit:
            rows = await store.occurrences(id, first, end, size)
            page = [to_occurrence(row) for row in rows]
            found.extend(row for row in page if state in (None, row.state))
            if len(rows) < size:
                break
            first = page[-1].due_at + _TICK
        return found[:limit]

    async def audit(self, name: str, first: datetime, end: datetime) -> Audit:
        """Recompute what must be in the ledger, and compare: nothing missing, nothing extra."""
        check_years(first=first, end=end)
        status = await self.get(name)
        await self._check_length(status, first, end)
        store = await self._store()
        row = await store.find(self._namespace, name)
        if row is None:  # deleted meanwhile
            raise self._unknown(name)
        cursor = row["cursor"]
        stop = min(end, cursor + _TICK)
        calendars = await self._calendars()
        async with store.database.connection() as connection:
            rows = await store.versions(connection, status.id)
        ledger = await store.ledger(status.id, first, stop)

        def compare(spend: Spend) -> Audit:
            spans = to_spans(rows, calendars, cursor, stop, spend)
            return compare_ledger(name, spans, ledger, first, stop, spend)

        return await self.compute_read(compare)

    async def _check_length(self, status: ScheduleStatus, first: datetime, end: datetime) -> None:
        """Refuse a stretch of time with more occurrences than may be computed at once."""
        most = self.most_occurrences
        if most is None:
            return
        found = (await self.preview(status.readable, most, after=first - _TICK)).occurrences
        if len(found) == most and found[-1].nominal < end:
            raise ConfigError(
                f"more than {most:,} occurrences are in that stretch of time: take shorter ones",
                code="too-much", subject=status.name,
            )  # fmt: skip

    async def measure(self) -> Measured:
        """Return the stored schedules compiled, with how long their tasks usually take."""
        watched: list[tuple[ScheduleStatus, Watched]] = []
        broken: list[Warned] = []
        durations = await (await self._store()).task_durations(self._namespace)
        async for page in self._measured(durations):
            watched += page.watched
            broken += page.broken
        return Measured(watched, durations, broken)

    async def _measured(self, durations: dict[str, TaskDuration]) -> AsyncIterator[Measured]:
        """Compile the stored schedules page by page, so that other requests are answered in between."""
        calendars, after = await self._calendars(), None
        shown = (await self._database()).encryption.shown_spec
        while rows := await self._page(after=after):
            after = rows[-1]["name"]

            def compute(spend: Spend, rows: Sequence[Any] = rows) -> Measured:
                watched: list[tuple[ScheduleStatus, Watched]] = []
                broken: list[Warned] = []
                for row in spend(rows):
                    status = to_status(row, shown)
                    try:
                        spec, usual = status.readable, durations.get(status.runs)
                        recurrence = compile_schedule(spec, calendars)
                        one = Watched(spec, recurrence, usual.p50 if usual else None)
                        watched.append((status, one))
                    except (ConfigError, OverflowError) as error:
                        text = f"{status.name} doesn't fire: {error}"
                        broken.append(Warned("broken", status.name, text))
                return Measured(watched, durations, broken)

            yield await self.compute_read(compute)
            if len(rows) < _PAGE:
                return

    async def check_tasks(self, specs: Iterable[ScheduleSpec]) -> Sequence[Warned]:
        """Warn of schedules whose task no node has registered, or doesn't take their payload."""
        return await lint_tasks(self._rota, specs)

    async def lint(self, herd: int = 100) -> Sequence[Warned]:
        """Warn of what will go wrong: DST, too many at once (`herd`), too often for its duration, an end
        soon, an unknown task, or arguments that its task doesn't take."""
        now = await (await self._rota.store()).now()
        durations = await (await self._store()).task_durations(self._namespace)
        linter, broken, own, tasks = (
            Linter(now, herd),
            list[Warned](),
            list[Warned](),
            list[Warned](),
        )
        async for page in self._measured(durations):
            watched = [one for _, one in page.watched]
            broken += page.broken
            own += await self.compute_read(lambda _, watched=watched: linter.check(watched))  # type: ignore[misc]
            tasks += await lint_tasks(self._rota, [one.spec for one in watched])
        return [*broken, *own, *linter.herds(), *tasks]


async def task_warnings(rota: Rota, spec: ScheduleSpec) -> tuple[str, ...]:
    """Return warnings about a schedule's task. Raises `InvalidArguments` for a wrong payload."""
    payload = dict(spec.payload or {})
    try:
        if spec.workflow is not None:
            return await _workflow_warnings(rota, spec.workflow, payload)
        if (task := rota.tasks.get(spec.task)) is not None:
            task.arguments.encode((), payload, rota.limits)
            return ()
        signatures = await rota.signatures()
        encoded = encode_payload(payload, rota.limits, spec.task)
        return await signatures.check(rota.namespace, spec.task, encoded)
    except InvalidArguments as error:
        raise InvalidArguments(f"schedule {spec.name!r}: {error}") from None


async def _workflow_warnings(rota: Rota, name: str, given: dict[str, Any]) -> tuple[str, ...]:
    """Return warnings about a workflow. Raises `InvalidArguments` for an input that it doesn't take."""
    encode_payload(given, rota.limits, name, "input")
    info = await rota.workflows.find(name)
    if info is None:
        return (f"no workflow is named {name!r} so far: is the name right?",)
    check_input(Graph(msgspec.convert(info.definition, Definition)), given)
    return (f"workflow {name!r} is retired: its runs don't start",) if info.retired_at else ()


async def workflow_queue(rota: Rota, name: str) -> str:
    """Return the queue in which a job waits that starts a run: that of the workflow's first step, which
    has workers if the run is to go on at all."""
    info = await rota.workflows.find(name)
    if info is not None:
        graph = Graph(msgspec.convert(info.definition, Definition))
        for step in (graph.steps[each] for each in graph.order):
            if step.queue is not None:
                return step.queue
    return TaskDefaults().queue


async def lint_tasks(rota: Rota, specs: Iterable[ScheduleSpec]) -> list[Warned]:
    """Warn of schedules whose task no node has registered, or doesn't take their payload."""
    found: list[Warned] = []
    unknown: dict[str, tuple[str, ...]] = {}
    for number, spec in enumerate(specs):
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)  # let other requests run
        try:
            about = f"workflow {spec.workflow}" if spec.workflow else spec.task
            warnings = unknown.get(about) or await task_warnings(rota, spec)
            if warnings:
                unknown[about] = warnings
                message = f"schedule {spec.name!r}: {'; '.join(warnings)}"
                found.append(Warned("unknown_task", spec.name, message))
        except InvalidArguments as error:
            found.append(Warned("wrong_arguments", spec.name, str(error)))
    return found
