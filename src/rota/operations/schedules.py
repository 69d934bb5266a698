"""Operations on schedules: create, change, pause, resume, delete, trigger and backfill them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import msgspec

from rota.config import check_open_task
from rota.core.arguments import encode_payload
from rota.core.declarations import Verdict
from rota.core.time.calendars import NamedCalendar
from rota.core.time.plan import LedgerEntry
from rota.core.time.recurrence import Occurrence, Recurrence
from rota.core.time.schedule import ScheduleSpec, compile_schedule
from rota.core.time.zones import wall_time, zone
from rota.errors import ConfigError, InvalidArguments
from rota.lib.computing import Spend
from rota.lib.ids import new_id
from rota.operations import declared_schedules as declaring
from rota.operations.deleting import delete_locked
from rota.operations.firing import occurrence_headers
from rota.operations.ledger import (
    ScheduleStatus,
)
from rota.operations.preconditions import Precondition
from rota.operations.schedule_checks import task_warnings
from rota.operations.schedule_reads import ScheduleReads, check_years
from rota.operations.settling import Budget, Stretch, settle, stretches_of
from rota.store.changes import Change as Recorded
from rota.store.changes import changing, record
from rota.store.schedules import FIRED, Entry, JobOptions, ScheduleStore, State, decode_spec
from rota.task import SubmitOptions

if TYPE_CHECKING:
    from rota.operations.rota import Rota

log = logging.getLogger("rota.schedules")

Change = Literal["created", "updated", "unchanged"]

_UNLIMITED = 1_000_000


class Saved(msgspec.Struct, frozen=True):
    """The result of storing a schedule, with the schedule as it is now."""

    change: Change
    status: ScheduleStatus


class Schedules(ScheduleReads):
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
        store = await self._store()
        prepared = [
            (spec, await self.compile_spec(spec), await self._job_options(store, spec))
            for spec in sorted(specs, key=_by_name)
        ]
        changes: dict[str, Change] = {}
        budget = Budget()
        transaction = store.database.shared_transaction("put_schedules")
        async with transaction if within is None else _part_of(within) as connection:
            for name in sorted({*(spec.name for spec in specs), *delete}):
                # One order of locks for everybody: also of those who delete what others change.
                await store.lock(connection, self._namespace, name)
            for spec, recurrence, options in prepared:
                change = await self._put_on(
                    store, connection, spec, recurrence, options, source, expect, budget
                )
                changes[spec.name] = change
            for name in sorted(delete):
                if (row := await store.lock(connection, self._namespace, name)) is not None:
                    await self._delete(store, connection, row, budget)
        return [changes[spec.name] for spec in specs]

    async def _put_on(
        self, store: ScheduleStore, connection: Any, spec: ScheduleSpec, recurrence: Recurrence,
        options: JobOptions, source: str, expect: Precondition | None, budget: Budget,
    ) -> Change:  # fmt: skip
        for _ in range(3):  # a racing creation makes the next look an update
            row = await store.lock(connection, self._namespace, spec.name)
            if expect is not None:
                expect.check(spec.name, row)
            if row is None:
                if await self._create(store, connection, spec, recurrence, options, source):
                    await self._record(store, connection, "create", spec.name, after=spec)
                    return "created"
                continue
            if self._says_the_same(store, row, spec):
                return "unchanged"
            await self._update(store, connection, row, spec, recurrence, options, source, budget)
            await self._record(
                store, connection, "update", spec.name, before=row["spec"], after=spec
            )
            return "updated"
        raise ConfigError(
            f"schedule {spec.name!r} is being created and deleted by others; try again"
        )

    def _says_the_same(self, store: ScheduleStore, row: Any, spec: ScheduleSpec) -> bool:
        try:
            known = store.database.encryption.shown_spec(row["id"], decode_spec(row["spec"]))
        except (ConfigError, msgspec.MsgspecError):
            return False  # one that can't be read is replaced
        return msgspec.json.encode(known) == msgspec.json.encode(spec)

    async def _create(
        self, store: ScheduleStore, connection: Any, spec: ScheduleSpec, recurrence: Recurrence,
        options: JobOptions, source: str,
    ) -> bool:  # fmt: skip
        now = await connection.fetchval(store.database.queries["now"])
        id = new_id()
        spec = (await store.database.known_encryption()).spec(id, spec)
        await self._ensure_lane(store, connection, options)
        next_due = await self.compute(lambda _: _next_due(recurrence, now))
        state = State(now, next_due, now if spec.paused else None)
        made = await store.insert(connection, id, self._namespace, spec, options, state, source)
        if made:
            text = msgspec.json.encode(spec).decode()
            await store.note_version(connection, id, 1, now, text)
        return made

    async def _update(
        self, store: ScheduleStore, connection: Any, row: Any, spec: ScheduleSpec,
        recurrence: Recurrence, options: JobOptions, source: str, budget: Budget,
    ) -> None:  # fmt: skip
        now: datetime = row["now"]
        valid_from = max(now, row["cursor"])
        stretches = await self._stretches(store, connection, row, valid_from)
        settled = await settle(store, connection, row, stretches, budget, self.compute)
        spec = (await store.database.known_encryption()).spec(row["id"], spec)
        # A pause is the operator's: an update that says nothing of it leaves it as it is.
        resumed = _was_paused(row["spec"]) and not spec.paused
        paused_at = None if resumed else row["paused_at"] or (now if spec.paused else None)
        await self._ensure_lane(store, connection, options)
        # What is left of the old version is for the firer to look at, at once.
        next_due: datetime | None = now
        if not settled.behind:
            next_due = await self.compute(lambda _: _next_due(recurrence, valid_from))
        state = State(settled.cursor, next_due, paused_at, settled.behind)
        version = await store.update(
            connection, row["id"], self._namespace, spec, options, state, source
        )
        text = msgspec.json.encode(spec).decode()
        await store.note_version(
            connection, row["id"], version, valid_from, text, settled.unsettled
        )
        if settled.unsettled:
            log.error(
                "schedule %s was updated, but its version %d can't be read: what was due from %s to "
                "%s is not known (%s)", row["name"], row["version"], settled.unsettled.begin, valid_from,
                settled.unsettled.reason,
            )  # fmt: skip

    async def _stretches(
        self, store: ScheduleStore, connection: Any, row: Any, ends: datetime
    ) -> list[Stretch]:
        """The versions that may have undecided occurrences until `ends`."""
        calendars = (await store.calendars()).get(self._namespace, {})
        return await stretches_of(
            store, connection, row, lambda spec: compile_schedule(spec, calendars), ends,
            self.compute,
        )  # fmt: skip

    async def _delete(
        self, store: ScheduleStore, connection: Any, row: Any, budget: Budget
    ) -> None:
        await delete_locked(store, connection, row, budget, self.compute)
        await self._record(store, connection, "delete", row["name"], before=row["spec"])

    async def _job_options(self, store: ScheduleStore, spec: ScheduleSpec) -> JobOptions:
        for told in await task_warnings(self._rota, spec):  # refuses what wouldn't run
            log.warning("schedule %r: %s", spec.name, told)
        task = self._rota.tasks.get(spec.task)
        if task is not None:
            own = task.options_
            defaults = JobOptions(own.queue, own.needs, own.priority, int(own.guarantee),
                                  own.retry.max_attempts, own.timeout)  # fmt: skip
        else:
            encode_payload(spec.payload or {}, self._rota.limits, spec.task)
            defaults = await store.task_defaults(self._namespace, spec.task)
        checked = SubmitOptions.checked(**spec.options)
        chosen = {
            name: getattr(checked, name)
            for name in spec.options
            if name in JobOptions.__struct_fields__
        }
        return msgspec.structs.replace(defaults, **chosen)

    async def _ensure_lane(
        self, store: ScheduleStore, connection: Any, options: JobOptions
    ) -> None:
        needs = "".join(f"+{need}" for need in sorted(set(options.needs)))
        await store.ensure_lane(connection, f"{self._namespace}/{options.queue}{needs}")

    async def pause(self, name: str, *, until: datetime | None = None) -> ScheduleStatus:
        """Fire no occurrence until it is resumed (or `until`). Running jobs are not affected."""
        if until is not None:
            if until.tzinfo is None:
                raise InvalidArguments("until must be a datetime with a time zone", field="until")
            if until <= await (await self._rota.store()).now():
                raise ConfigError(f"until: {until} has passed", field="until")
        store = await self._store()
        subject, after = f"schedule {name}", {"until": until}
        async with changing(store.database, "pause", subject, after=after):
            if not await store.pause(self._namespace, name, until):
                raise self._unknown(name)
        return await self.get(name)

    async def resume(self, name: str) -> ScheduleStatus:
        """Resume a schedule. The catch-up policy decides about what was due during the pause."""
        store = await self._store()
        async with changing(store.database, "resume", f"schedule {name}"):
            if not await store.resume(self._namespace, name):
                raise self._unknown(name)
        return await self.get(name)

    async def delete(self, name: str, *, expect: Precondition | None = None) -> None:
        """Delete a schedule. Running jobs are not affected; jobs that haven't started are skipped.

        Its ledger and its jobs stay until their retention is over.
        """
        async with self._locked(name) as (store, connection, row):
            if expect is not None:
                expect.check(name, row)
            await self._delete(store, connection, row, Budget())

    async def put_calendar(self, calendar: NamedCalendar) -> None:
        """Create or replace a named calendar, for `exclude` and `include`."""
        store = await self._store()
        subject = f"calendar {calendar.name}"
        async with changing(store.database, "put", subject, after=calendar):
            await store.put_calendar(self._namespace, calendar)

    async def _record(
        self, store: ScheduleStore, connection: Any, action: str, name: str, *,
        before: Any = None, after: Any = None,
    ) -> None:  # fmt: skip
        """In the audit log, where nothing is encrypted: there a payload isn't told."""
        change = Recorded(action, f"schedule {name}", namespace=self._namespace,
                          before=_told(before), after=_told(after))  # fmt: skip
        await record(store.database, connection, change)

    # -- running now and in retrospect

    async def trigger(self, name: str) -> UUID:
        """Run a schedule once, now, beside its rule; the job's id."""
        job = new_id()

        async def attempt(repeated: bool) -> UUID:
            async with self._locked(name) as (store, connection, row):
                if not repeated or not await self._was_triggered(store, row, job):
                    moment = await self._free_moment(store, row)
                    await store.fire(connection, [_by_hand(row, moment, job)], [])
                    await self._record(store, connection, "trigger", name, after={"job_id": job})
            return job

        return await (await self._rota.store()).persistently(attempt)

    async def _was_triggered(self, store: ScheduleStore, row: Any, job: UUID) -> bool:
        """By an attempt whose answer was lost."""
        around = timedelta(hours=1)
        entries = await store.ledger(row["id"], row["now"] - around, row["now"] + around)
        return any(each["job_id"] == job for each in entries)

    async def _free_moment(self, store: ScheduleStore, row: Any) -> datetime:
        """Now, or a few microseconds later: not a moment of the rule's, nor one that is taken."""
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
        self,
        name: str,
        first: datetime,
        end: datetime,
        *,
        max_parallel: int | None = None,
        dry_run: bool = False,
    ) -> int:
        """Run the occurrences of a past stretch that have no row in the ledger yet; how many.

        They run beside the live ones, oldest first, `max_parallel` at a time: by default one, or
        for a schedule that allows overlap as many as it allows. The stretch can't begin before the
        ledger does (`ledger_days`): nobody knows what has run before.
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
        async with self._locked(name) as (store, connection, row):
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
                moments = spend(recurrence.between(first, end))
                return _backfilled(
                    row, [o for o in moments if o.excluded_by is None and o.nominal not in known]
                )

            missing = await self.compute(expand)
            if missing and not dry_run:
                default = (spec.max_running or _UNLIMITED) if spec.overlap == "allow" else 1
                parallel = max_parallel or default
                await store.backfill(connection, row["id"], new_id(), parallel, missing)
                told = {"first": first, "end": end, "count": len(missing), "parallel": parallel}
                await self._record(store, connection, "backfill", name, after=told)
            return len(missing)

    @asynccontextmanager
    async def _locked(self, name: str) -> AsyncIterator[tuple[ScheduleStore, Any, Any]]:
        store = await self._store()
        async with store.database.shared_transaction("schedule_by_hand") as connection:
            row = await store.lock(connection, self._namespace, name)
            if row is None:
                raise self._unknown(name)
            yield store, connection, row


@asynccontextmanager
async def _part_of(connection: Any) -> AsyncIterator[Any]:
    async with connection.transaction():  # a savepoint
        yield connection


def _told(value: Any) -> Any:
    """A schedule as the audit log tells it: without its payload, which may be encrypted later on."""
    if isinstance(value, str):  # as it is stored
        value = msgspec.json.decode(value)
        if isinstance(value, dict) and value.get("payload"):  # one that is broken may be anything
            value["payload"] = "(not recorded)"
    elif isinstance(value, ScheduleSpec) and value.payload:
        value = msgspec.structs.replace(value, payload="(not recorded)")
    return value


def _by_name(spec: ScheduleSpec) -> str:
    return spec.name


def _next_due(recurrence: Recurrence, after: datetime) -> datetime | None:
    """When the next occurrence has to be planned: without its jitter, as the plan says it."""
    found = next(recurrence.after(after, 1), None)
    return found.nominal + recurrence.spread_offset if found is not None else None


def _was_paused(text: str) -> bool:
    try:
        return decode_spec(text).paused
    except (ConfigError, msgspec.MsgspecError):
        return False


def _by_hand(row: Any, moment: datetime, job: UUID) -> Entry:
    local = wall_time(moment, zone(decode_spec(row["spec"]).tz))
    entry = LedgerEntry(nominal=moment, due_at=moment, local=local, verdict="fire")
    headers = occurrence_headers(row["name"], entry, row["previous"])
    return Entry(row["id"], moment, row["now"], FIRED, "triggered", False, job, headers)


def _backfilled(row: Any, missing: Sequence[Occurrence]) -> Sequence[Entry]:
    entries = []
    for found in missing:
        entry = LedgerEntry(nominal=found.nominal, due_at=found.due_at, local=found.local,
                            verdict="fire", caught_up=True)  # fmt: skip
        headers = occurrence_headers(row["name"], entry, None)
        entries.append(
            Entry(
                row["id"], found.nominal, row["now"], FIRED, "backfilled", True, new_id(), headers
            )
        )
    return entries
