"""Operations on schedules: create, change, pause, resume, delete, trigger and backfill them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from rota.config import check_open_task
from rota.core.declarations import Verdict
from rota.core.payloads import encode_payload
from rota.core.resources import demands
from rota.core.time.calendars import NamedCalendar
from rota.core.time.recurrence import Occurrence
from rota.core.time.schedule import ScheduleSpec
from rota.core.time.status import ScheduleStatus
from rota.core.time.stored import decode_spec
from rota.core.time.zones import wall_time, zone
from rota.errors import ConfigError, InvalidArguments
from rota.lib.computing import Spend
from rota.lib.ids import new_id
from rota.model import Backfilled, Guarantee, Triggered
from rota.operations import declared_schedules as declaring
from rota.operations.firing import to_entry
from rota.operations.preconditions import Precondition
from rota.operations.schedule_changes import Change, Prepared, ScheduleChanges
from rota.operations.schedule_forecasts import ScheduleForecasts
from rota.operations.schedule_reads import check_years, task_warnings, workflow_queue
from rota.store.rows import TaskDefaults
from rota.store.schedules import Entry, ScheduleStore
from rota.task import SubmitOptions

if TYPE_CHECKING:
    from rota.operations.rota import Rota

log = logging.getLogger("rota.schedules")

_UNLIMITED = 1_000_000
# Of a job that starts a run.
_START_ATTEMPTS = 8
_START_SECONDS = 60.0


class Saved(msgspec.Struct, frozen=True):
    """The result of storing a schedule, with the schedule as it is now."""

    change: Change
    status: ScheduleStatus


class Schedules(ScheduleForecasts):
    """`app.schedules`"""

    def __init__(self, rota: Rota) -> None:
        super().__init__(rota)
        self.declared: dict[str, ScheduleSpec] = {}  # in code, by @app.cron
        self.always_declare = False  # whatever was declared before: for development

    # -- creating and changing

    async def declare(self, *, force: bool = False) -> Verdict:
        """Bring the schedules that the code declares into the database. Schedulers do it at start.

        What this application declared before and no longer does is deleted. A set that another
        release has superseded isn't put back, unless forced. Returns ``apply``, ``older_release``,
        ``superseded``, or ``other_application``: the application is named only by its module, and
        another one of that name has entirely different schedules.
        """
        store, rota = await self._store(), self._rota
        return await declaring.declare(
            self, store, rota.app_name, rota.settings.release,
            named=bool(rota.settings.app_name), force=force or self.always_declare,
        )  # fmt: skip

    async def put(
        self, spec: ScheduleSpec, *, source: str = "api", expect: Precondition | None = None
    ) -> Saved:
        """Create a schedule, or change it from now on: the old rule decides what was due before."""
        await self.preview(spec, 1)  # refuses a rule that takes too long, before anything is locked
        [change] = await self.put_all([spec], source=source, expect=expect)
        warnings = await task_warnings(self._rota, spec)
        status = msgspec.structs.replace(await self.get(spec.name), warnings=warnings)
        return Saved(change, status)

    async def put_all(
        self, specs: Sequence[ScheduleSpec], *, delete: Sequence[str] = (), source: str = "api",
        expect: Precondition | None = None, within: Any = None,
    ) -> Sequence[Change]:  # fmt: skip
        """Create or change many, and delete others: all or none, in one transaction.

        `expect` is checked for each schedule under its lock.
        `within`: a connection whose transaction this is to be a part of.
        """
        for spec in specs:
            check_open_task(spec.task)
        specs = [self._with_stored_payload(spec) for spec in specs]
        store = await self._store()
        prepared = [
            Prepared(spec, await self.compile_spec(spec), await self._job_options(store, spec))
            for spec in sorted(specs, key=lambda spec: spec.name)
        ]
        made: dict[str, Change] = {}
        transaction = store.database.shared_transaction("put_schedules")
        async with transaction if within is None else within.transaction() as opened:
            connection = opened if within is None else within
            changes = ScheduleChanges(store, connection, self.compute, self._namespace)
            for name in sorted({*(spec.name for spec in specs), *delete}):
                # One order of locks for everybody: also of those who delete what others change.
                await changes.lock(name)
            for new in prepared:
                made[new.spec.name] = await changes.put(new, source, expect)
            for name in sorted(delete):
                if (row := await changes.lock(name)) is not None:
                    await changes.delete(row)
        return [made[spec.name] for spec in specs]

    def _with_stored_payload(self, spec: ScheduleSpec) -> ScheduleSpec:
        """Write the payload as a submit would, if the task's code is here: by its annotations, and with
        its version."""
        task = self._rota.tasks.get(spec.task)
        if task is None or spec.workflow is not None:
            return spec
        try:
            payload = task.arguments.encode((), dict(spec.payload or {}), self._rota.limits)
        except InvalidArguments as error:
            raise InvalidArguments(f"schedule {spec.name!r}: {error}") from None
        stored = msgspec.json.decode(payload)
        return (
            spec
            if stored == (spec.payload or {})
            else msgspec.structs.replace(spec, payload=stored)
        )

    async def _job_options(self, store: ScheduleStore, spec: ScheduleSpec) -> TaskDefaults:
        for warning in await task_warnings(self._rota, spec):  # refuses what wouldn't run
            log.warning("schedule %r: %s", spec.name, warning)
        task = self._rota.tasks.get(spec.task)
        if spec.workflow is not None:
            defaults = TaskDefaults(
                await workflow_queue(self._rota, spec.workflow), guarantee=int(Guarantee.EXACTLY_ONCE),
                max_attempts=_START_ATTEMPTS, timeout=_START_SECONDS,
            )  # fmt: skip
        elif task is not None:
            own = task.options_
            defaults = TaskDefaults(own.queue, own.demands, own.priority, int(own.guarantee),
                                  own.retry.max_attempts, own.timeout)  # fmt: skip
        else:
            encode_payload(spec.payload or {}, self._rota.limits, spec.task)
            defaults = await store.task_defaults(self._namespace, spec.task)
        checked = SubmitOptions.checked(**spec.options)
        chosen = {
            name: getattr(checked, name)
            for name in spec.options
            if name in TaskDefaults.__struct_fields__
        }
        if (asked := demands(
            checked.needs, checked.resources, checked.near, checked.near_patience, defaults.needs
        )) is not None:  # fmt: skip
            chosen["needs"] = asked
        return msgspec.structs.replace(defaults, **chosen)

    async def pause(self, name: str, *, until: datetime | None = None) -> ScheduleStatus:
        """Fire no occurrence until it is resumed (or `until`). Running jobs are not affected."""
        if until is not None:
            if until.tzinfo is None:
                raise InvalidArguments("until must be a datetime with a time zone", field="until")
            if until <= await (await self._rota.store()).now():
                raise ConfigError(f"until: {until} has passed", field="until")
        store = await self._store()
        async with self._changing("pause", f"schedule {name}", after={"until": until}):
            if not await store.pause(self._namespace, name, until):
                raise self._unknown(name)
        return await self.get(name)

    async def resume(self, name: str) -> ScheduleStatus:
        """Resume a schedule. The catch-up policy decides about what was due during the pause."""
        store = await self._store()
        async with self._changing("resume", f"schedule {name}"):
            if not await store.resume(self._namespace, name):
                raise self._unknown(name)
        return await self.get(name)

    async def delete(self, name: str, *, expect: Precondition | None = None) -> None:
        """Delete a schedule. Running jobs are not affected; jobs that haven't started are skipped.

        Its ledger and its jobs stay until their retention is over.
        """
        async with self._locked(name) as (changes, row):
            if expect is not None:
                expect.check(name, row)
            await changes.delete(row)

    async def put_calendar(self, calendar: NamedCalendar) -> None:
        """Create or replace a named calendar, for `exclude` and `include`."""
        store = await self._store()
        async with self._changing("put", f"calendar {calendar.name}", after=calendar):
            await store.put_calendar(self._namespace, calendar)

    # -- running now and in retrospect

    async def trigger(self, name: str) -> Triggered:
        """Run a schedule once, now, beside its rule."""
        job_id = new_id()

        async def attempt(repeated: bool) -> Triggered:
            async with self._locked(name) as (changes, row):
                if not repeated or not await self._was_triggered(changes.store, row, job_id):
                    moment = await self._free_moment(changes.store, row)
                    local = wall_time(moment, zone(decode_spec(row["spec"]).tz))
                    found = Occurrence(row["now"], moment, local)
                    entry = to_entry(row, found, job_id, "triggered", row["previous"])
                    await changes.store.fire(changes.connection, [entry], [])
                    await changes.record("trigger", name, after={"job_id": job_id})
            return Triggered(job_id)

        return await (await self._rota.store()).persistently(attempt)

    async def _was_triggered(self, store: ScheduleStore, row: Any, job: UUID) -> bool:
        """Return whether an attempt whose answer was lost has triggered it."""
        around = timedelta(hours=1)
        entries = await store.ledger(row["id"], row["now"] - around, row["now"] + around)
        return any(each["job_id"] == job for each in entries)

    async def _free_moment(self, store: ScheduleStore, row: Any) -> datetime:
        """Return now, or a few microseconds later: a moment that is neither the rule's nor taken."""
        moment: datetime = row["now"]
        second = timedelta(seconds=1)
        recurrence = await self.compile_spec(decode_spec(row["spec"]))
        taken = await self.compute(
            lambda _: {found.nominal for found in recurrence.between(moment, moment + second)}
        )
        taken |= {each["due_at"] for each in await store.ledger(row["id"], moment, moment + second)}
        while moment in taken:
            moment += timedelta(microseconds=1)
        return moment

    async def backfill(
        self, name: str, first: datetime, end: datetime, *, max_parallel: int | None = None,
        dry_run: bool = False,
    ) -> Backfilled:  # fmt: skip
        """Run the occurrences of a past stretch of time that have no row in the ledger yet.

        They run beside the live ones, oldest first, `max_parallel` at a time: by default one, or
        for a schedule that allows overlap as many as it allows. The stretch can't begin before the
        ledger does (`ledger_days`): what ran before is not known.
        """
        if first.tzinfo is None or end.tzinfo is None:
            raise InvalidArguments("a backfill's range needs time zones")
        check_years(first=first, end=end)
        if max_parallel is not None and max_parallel < 1:
            raise InvalidArguments(
                f"max_parallel must be at least 1, not {max_parallel}", field="max_parallel"
            )
        if self.most_occurrences is not None:
            await self._check_length(await self.get(name), first, end)
        async with self._locked(name) as (changes, row):
            store = changes.store
            if first < (known_from := await store.ledger_from()):
                raise InvalidArguments(
                    f"the period starts at {first}, before {known_from}, the start of the ledger "
                    "(setting ledger_days). What ran before then is no longer known, and would run "
                    "again: start there, or submit the jobs yourself",
                    field="first",
                )
            spec = decode_spec(row["spec"])
            end = min(end, row["cursor"])
            recurrence = await self.compile_spec(spec)
            known = {each["due_at"] for each in await store.ledger(row["id"], first, end)}

            def expand(spend: Spend) -> Sequence[Entry]:
                return [
                    to_entry(row, found, new_id(), "backfilled", run_at=row["now"], caught_up=True)
                    for found in spend(recurrence.between(first, end))
                    if found.excluded_by is None and found.nominal not in known
                ]

            missing = await self.compute(expand)
            if missing and not dry_run:
                default = (spec.max_running or _UNLIMITED) if spec.overlap == "allow" else 1
                parallel = max_parallel or default
                await store.backfill(changes.connection, row["id"], new_id(), parallel, missing)
                after = {"first": first, "end": end, "count": len(missing), "parallel": parallel}
                await changes.record("backfill", name, after=after)
            return Backfilled(len(missing), dry_run)

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[tuple[ScheduleChanges, Any]]:
        """Open a transaction that holds the lock of a schedule."""
        store = await self._store()
        async with store.database.shared_transaction("schedule_by_hand") as connection:
            changes = ScheduleChanges(store, connection, self.compute, self._namespace)
            if (row := await changes.lock(name)) is None:
                raise self._unknown(name)
            yield changes, row
