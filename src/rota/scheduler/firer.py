"""Fires schedules: every occurrence gets its row in the ledger, and at most one job.

Protocol. In one transaction: lock the shards that this scheduler owns under their epochs (an owner whose
epoch is over fires nothing, and steps down), lock the schedules that are due within the horizon
(passing over those that another scheduler has), plan each purely from its rule and its cursor, write
ledger rows, the jobs of those that are new there, and the schedules' new cursors. Dying before the
commit leaves nothing, and the next tick plans the same again; two firers can't hold the same schedule,
and if they could, the ledger's key (schedule, due time) would let only one of them make the job.

Schedules of other shards are swept for what their owner has missed, as in the releaser.

An occurrence whose time has come while nobody fired is found the same way, later: the plan says by
the schedule's catch-up policy whether it still runs. Work per tick is bounded: what doesn't fit is
planned by the next tick, at once. A schedule that was updated while it had undecided occurrences is
planned by its old version first (see `rota.operations.settling`).

A schedule that can't be planned (its zone is unknown here, a newer release wrote it) or written (the
database refuses its rows) is set aside by this node: noted for people to see, passed over, and tried
again every minute, or at once when it is updated. It stays due, so that a node that can plan it does. A
transaction that the database refuses is repeated with a savepoint around each half, until the schedule
that is to blame stands alone; as long as all is well there are no savepoints.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any
from uuid import UUID

import msgspec

from rota.core.time.schedule import ScheduleSpec, compile_schedule
from rota.core.time.stored import decode_spec
from rota.errors import RotaError
from rota.operations.firing import Compiled, plan_row, to_advance, to_entries
from rota.operations.settling import ScheduleTransaction, Stretch, next_stretch, plan_stretch
from rota.runtime.ticker import Service
from rota.scheduler.shards import Ownership, ShardSelection
from rota.store.driver_errors import blames_the_data
from rota.store.schedules import Advance, Aside, Entry, PlanningProblem, ScheduleStore
from rota.store.work import NIL

log = logging.getLogger("rota.firer")

_SCHEDULES = 1_000  # a transaction
_OCCURRENCES = 200  # of one schedule in a transaction
_INTERVAL = 0.25
_PROMOTIONS = 500
_WAITING_SCHEDULES = 2_000  # that one statement looks at
_CALENDARS_SECONDS = 5.0
_RETRY_SECONDS = 60.0  # until a schedule that was set aside is tried again
_REMEMBERED = 20_000  # compiled schedules
_REASON_LENGTH = 500


class Planned(msgspec.Struct, frozen=True):
    """The writes that follow from planning one schedule."""

    row: Any
    entries: list[Entry]
    advance: Advance
    more: bool


class _Refused(RotaError):
    """The database refuses what one of the schedules would write."""


class Firer(Service):
    name = "firer"

    def __init__(self, store: ScheduleStore, ownership: Ownership) -> None:
        self._store = store
        self._ownership = ownership
        self._selection = ShardSelection(ownership)
        self._retry_after = _RETRY_SECONDS
        self._node = f"{store.database.settings.node_name}:{os.getpid()}"
        self._compiled: OrderedDict[UUID, Compiled] = OrderedDict()
        self._calendars: Mapping[str, Any] = {}
        self._calendars_until = 0.0
        # Schedules that this node can't plan: the version, and when it tries again.
        self._aside: dict[UUID, tuple[int, float]] = {}
        self._careful = False
        self._promoted_to = NIL  # the schedule after which the next ones with waiting jobs come

    async def tick(self) -> float:
        shards, epochs = self._selection.next()
        if not shards:
            return _INTERVAL
        aside = self._passed_over()
        work = await self._store.work(shards, epochs, aside)
        self._ownership.lost(work.lost)
        if work.resume:
            for name in await self._store.resume_due():
                log.info("schedule %s resumed: its pause is over", name)
        go_on = await self._promote() if work.waiting else False
        more = await self._fire(shards, epochs, aside) if work.due or work.resume else False
        return 0.0 if more or go_on else _INTERVAL

    async def _promote(self) -> bool:
        """Let jobs start that wait for another of their schedule.

        Return whether more is to be done at once.
        """
        promoted, self._promoted_to = await self._store.promote_waiting(
            _PROMOTIONS, self._promoted_to, _WAITING_SCHEDULES
        )
        return promoted >= _PROMOTIONS or self._promoted_to != NIL

    async def _fire(
        self, shards: Sequence[int], epochs: Sequence[int | None], aside: Aside
    ) -> bool:
        """Fire due schedules. Return whether more is to be done at once."""
        try:
            more = await self._fire_once(shards, epochs, aside)
        except _Refused:
            self._careful = True
            return True
        self._careful = False
        return more

    async def _fire_once(
        self, shards: Sequence[int], epochs: Sequence[int | None], aside: Aside
    ) -> bool:
        async with self._store.database.transaction("fire") as connection:
            rows = await self._store.due_schedules(connection, shards, epochs, _SCHEDULES, aside)
            planned, problems = await self._plan_all(connection, rows)
            if self._careful:
                planned = await self._write_halves(connection, planned, problems)
            else:
                await self._write(connection, planned)
            if problems:
                await self._store.note_problems(connection, self._node, list(problems.values()))
            mended = [each.row for each in planned if each.row["id"] in self._aside]
            if mended:
                ids = [row["id"] for row in mended]
                await self._store.clear_problems(connection, self._node, ids)
        self._remember_problems(rows, problems, mended)
        return len(rows) == _SCHEDULES or any(each.more for each in planned)

    # -- planning

    async def _plan_all(
        self, connection: Any, rows: Sequence[Any]
    ) -> tuple[list[Planned], dict[UUID, PlanningProblem]]:
        planned: list[Planned] = []
        problems: dict[UUID, PlanningProblem] = {}
        for row in rows:
            try:
                spec = self._spec(row)
            except Exception as error:  # noqa: BLE001 (whatever it is, others go on)
                problems[row["id"]] = _problem(row, error)
                continue
            # Outside the try: an error of the database is not the schedule's fault.
            pending = row["undecided_version"] is not None
            named = pending or bool(spec.exclude or spec.include)
            calendars = (await self._named_calendars()).get(row["namespace"], {}) if named else {}
            stretches: list[Stretch] = []
            if pending:
                transaction = ScheduleTransaction(self._store, connection)
                stretches = await transaction.stretches(row, calendars, None)
            try:
                if stretches:
                    planned.append(_plan_pending(row, stretches))
                    continue
                newest = plan_row(row, self._compile(row, spec, calendars), limit=_OCCURRENCES)
                entries = to_entries(row, newest)
                advance = to_advance(row, newest, entries)
                planned.append(Planned(row, entries, advance, newest.more))
            except Exception as error:  # noqa: BLE001 (whatever it is, others go on)
                problems[row["id"]] = _problem(row, error)
        return planned, problems

    def _spec(self, row: Any) -> ScheduleSpec:
        known = self._compiled.get(row["id"])
        if known is not None and known.version == row["version"]:
            return known.spec
        return decode_spec(row["spec"])

    def _compile(self, row: Any, spec: ScheduleSpec, calendars: Mapping[str, Any]) -> Compiled:
        known = self._compiled.get(row["id"])
        if known is not None and known.version == row["version"]:
            self._compiled.move_to_end(row["id"])
            return known
        known = Compiled(row["version"], spec, compile_schedule(spec, calendars))
        if not spec.exclude and not spec.include:  # else read anew: calendars change without it
            self._compiled[row["id"]] = known
            if len(self._compiled) > _REMEMBERED:
                self._compiled.popitem(last=False)
        return known

    async def _named_calendars(self) -> Mapping[str, Any]:
        if monotonic() >= self._calendars_until:
            self._calendars = await self._store.calendars()
            self._calendars_until = monotonic() + _CALENDARS_SECONDS
        return self._calendars

    # -- writing

    async def _write(self, connection: Any, planned: Sequence[Planned]) -> None:
        try:
            await self._store.fire(
                connection,
                [entry for each in planned for entry in each.entries],
                [each.advance for each in planned],
            )
        except Exception as error:
            if blames_the_data(error):
                raise _Refused(str(error)) from error
            raise

    async def _write_halves(
        self, connection: Any, planned: list[Planned], problems: dict[UUID, PlanningProblem]
    ) -> list[Planned]:
        """Write all but those that the database refuses. Return what was written."""
        if not planned:
            return []
        try:
            async with connection.transaction():
                await self._write(connection, planned)
            return planned
        except _Refused as error:
            if len(planned) == 1:
                row = planned[0].row
                problems[row["id"]] = _problem(row, error)
                return []
        half = len(planned) // 2
        return [
            *await self._write_halves(connection, planned[:half], problems),
            *await self._write_halves(connection, planned[half:], problems),
        ]

    # -- schedules that are set aside

    def _passed_over(self) -> Aside:
        now = monotonic()
        waiting = [(id, version) for id, (version, until) in self._aside.items() if until > now]
        return [id for id, _ in waiting], [version for _, version in waiting]

    def _remember_problems(
        self, rows: Sequence[Any], problems: Mapping[UUID, PlanningProblem], mended: Sequence[Any]
    ) -> None:
        for row in rows:
            if (problem := problems.get(row["id"])) is not None:
                known = self._aside.get(row["id"])
                if known is None or known[0] != problem.version:
                    log.error(
                        "schedule %s of namespace %s is set aside on this node, and tried again in "
                        "%.0f s or when it is updated: %s",
                        row["name"], row["namespace"], self._retry_after, problem.reason,
                    )  # fmt: skip
                self._aside[row["id"]] = (problem.version, monotonic() + self._retry_after)
        for row in mended:
            log.info("schedule %s can be planned again", row["name"])
            self._aside.pop(row["id"], None)
        # Whose retry is long overdue was deleted, or belongs to another node.
        long_ago = monotonic() - 10 * max(self._retry_after, 60.0)
        for id in [id for id, (_, until) in self._aside.items() if until < long_ago]:
            del self._aside[id]


def _plan_pending(row: Any, stretches: Sequence[Stretch]) -> Planned:
    first, *later = stretches
    if first.compiled is None:
        raise RotaError(
            f"version {first.version}, which has occurrences that are not decided, can't be read: "
            f"{first.problem}. After an update, the schedule continues without them"
        )
    planned = plan_stretch(row, first, later, limit=_OCCURRENCES)
    entries = to_entries(row, planned)
    fired = sum(entry.job_id is not None for entry in entries)
    advance = next_stretch(row, stretches, planned, fired)
    return Planned(row, entries, advance, advance.next_due == row["now"])


def _problem(row: Any, error: Exception) -> PlanningProblem:
    reason = (str(error) or type(error).__name__).replace("\0", "\\0")
    return PlanningProblem(row["id"], row["version"], reason[:_REASON_LENGTH])
