"""Creating, updating and deleting schedules within one transaction, with their audit records."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Any, Literal

import msgspec

from rota.core.time.recurrence import Recurrence
from rota.core.time.schedule import ScheduleSpec
from rota.core.time.stored import decode_spec
from rota.errors import ConfigError
from rota.lib.computing import Compute
from rota.lib.ids import new_id
from rota.operations.deleting import delete_locked
from rota.operations.preconditions import Precondition
from rota.operations.settling import ScheduleTransaction, settle
from rota.store.changes import Change as Recorded
from rota.store.changes import record
from rota.store.rows import TaskDefaults, lane_name
from rota.store.schedules import ScheduleStore, State

log = logging.getLogger("rota.schedules")

Change = Literal["created", "updated", "unchanged"]


class Prepared(msgspec.Struct, frozen=True):
    """A schedule that is checked and compiled, before anything is locked."""

    spec: ScheduleSpec
    recurrence: Recurrence
    options: TaskDefaults


class ScheduleChanges(ScheduleTransaction):
    """Changes schedules of a namespace whose rows it locks."""

    def __init__(
        self, store: ScheduleStore, connection: Any, compute: Compute, namespace: str
    ) -> None:
        super().__init__(store, connection, compute)
        self.namespace = namespace

    async def lock(self, name: str) -> Any:
        """Return the locked row of a schedule, or None."""
        return await self.store.lock(self.connection, self.namespace, name)

    async def put(self, new: Prepared, source: str, expect: Precondition | None) -> Change:
        """Create the schedule, or change it from now on."""
        name = new.spec.name
        for _ in range(3):  # a racing creation makes the next look an update
            row = await self.lock(name)
            if expect is not None:
                expect.check(name, row)
            if row is None:
                if await self._create(new, source):
                    await self.record("create", name, after=new.spec)
                    return "created"
                continue
            if self._is_unchanged(row, new.spec):
                return "unchanged"
            await self._update(row, new, source)
            await self.record("update", name, before=row["spec"], after=new.spec)
            return "updated"
        raise ConfigError(f"schedule {name!r} is being created and deleted by others; try again")

    async def delete(self, row: Any) -> None:
        """Delete a schedule that is locked, or begin to."""
        await delete_locked(self, row)
        await self.record("delete", row["name"], before=row["spec"])

    async def record(
        self, action: str, name: str, *, before: Any = None, after: Any = None
    ) -> None:
        """Write the audit record of a change, without payloads: nothing is encrypted there."""
        change = Recorded(
            action, f"schedule {name}", namespace=self.namespace,
            before=_without_payload(before), after=_without_payload(after),
        )  # fmt: skip
        await record(self.store.database, self.connection, change)

    def _is_unchanged(self, row: Any, spec: ScheduleSpec) -> bool:
        try:
            encryption = self.store.database.encryption
            known = encryption.shown_spec(row["id"], decode_spec(row["spec"]))
        except (ConfigError, msgspec.MsgspecError):
            return False  # one that can't be read is replaced
        return msgspec.json.encode(known) == msgspec.json.encode(spec)

    async def _create(self, new: Prepared, source: str) -> bool:
        store, connection, id = self.store, self.connection, new_id()
        now = await connection.fetchval(store.database.queries["now"])
        spec = (await store.database.known_encryption()).spec(id, new.spec)
        await self._ensure_lane(new.options)
        state = State(now, await self._next_due(new, now), now if spec.paused else None)
        namespace = self.namespace
        made = await store.insert(connection, id, namespace, spec, new.options, state, source)
        if made:
            text = msgspec.json.encode(spec).decode()
            await store.note_version(connection, id, 1, now, text)
        return made

    async def _update(self, row: Any, new: Prepared, source: str) -> None:
        store, connection = self.store, self.connection
        now: datetime = row["now"]
        valid_from = max(now, row["cursor"])
        calendars = (await store.calendars()).get(self.namespace, {})
        settled = await settle(self, row, await self.stretches(row, calendars, valid_from))
        spec = (await store.database.known_encryption()).spec(row["id"], new.spec)
        # A pause is the operator's: an update that says nothing of it leaves it as it is.
        resumed = _was_paused(row["spec"]) and not spec.paused
        paused_at = None if resumed else row["paused_at"] or (now if spec.paused else None)
        await self._ensure_lane(new.options)
        # What is left of the old version is for the firer to look at, at once.
        next_due = now if settled.undecided_version else await self._next_due(new, valid_from)
        state = State(settled.cursor, next_due, paused_at, settled.undecided_version)
        version = await store.update(
            connection, row["id"], self.namespace, spec, new.options, state, source
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

    async def _next_due(self, new: Prepared, after: datetime) -> datetime | None:
        """Return when the next occurrence has to be planned: without its jitter, as in a plan."""
        recurrence = new.recurrence
        found = await self.compute(lambda _: next(recurrence.after(after, 1), None))
        return found.nominal + recurrence.spread_offset if found is not None else None

    async def _ensure_lane(self, options: TaskDefaults) -> None:
        lane = lane_name(self.namespace, options.queue, options.needs)
        await self.store.ensure_lane(self.connection, lane)


def _without_payload(value: Any) -> Any:
    """Return a schedule as the audit log shows it: its payload may be encrypted later on."""
    if isinstance(value, str):  # as it is stored
        value = msgspec.json.decode(value)
        if isinstance(value, dict) and value.get("payload"):  # one that is broken may be anything
            value["payload"] = "(not recorded)"
    elif isinstance(value, ScheduleSpec) and value.payload:
        value = msgspec.structs.replace(value, payload="(not recorded)")
    return value


def _was_paused(text: str) -> bool:
    try:
        return decode_spec(text).paused
    except (ConfigError, msgspec.MsgspecError):
        return False
