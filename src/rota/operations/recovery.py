"""Which database this is, and what to do after one was restored.

Protocol. The first node that starts on a database writes down where it is (`rota.installation`): the
PostgreSQL cluster, the database, the timeline, and the name of the installation. Every node compares
that at its start, before it registers, and refuses another place. `recover` adopts the place in one
transaction: it writes down the new one, raises the tokens, pauses the queues with jobs that may run once
at most and may have run, and records the change. Dying before its commit changes nothing; running it
again pauses nothing that was resumed meanwhile, unless such jobs still wait there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.errors import DatabaseNotRecovered
from rota.store.changes import changing
from rota.store.database import Database
from rota.store.rows import to_value

_MOST = 10_000  # jobs that are listed

_REASONS = {
    "copied": "this database is a copy: it is not in the PostgreSQL where its nodes ran before",
    "restored": "this database was restored from a backup, or promoted while no node was alive",
}


async def check_identity(database: Database, settings: Settings) -> None:
    """Refuse to start on a copy of another installation's database, or on one from the past."""
    [row] = await database.fetch("identify", settings.installation)
    if row["verdict"] == "other name":
        mine = repr(settings.installation) if settings.installation else "without a name"
        raise DatabaseNotRecovered(
            f"this database belongs to the installation {row['name']!r}, and this node is {mine}. If it "
            f"is the right database, set ROTA_INSTALLATION={row['name']}. If it is a copy of it, run "
            "`rota recover` with the name of this installation: it says which jobs would run here"
        )
    if row["verdict"] != "ok":
        seen = (
            f"; a node was seen last at {row['last_seen']:%Y-%m-%d %H:%M:%S %Z}"
            if row["last_seen"]
            else ""
        )
        raise DatabaseNotRecovered(
            f"{_REASONS[row['verdict']]}{seen}. Its jobs may have run already, and may run elsewhere. "
            "`rota recover --dry-run` says which; `rota recover` lets nodes start here"
        )


class UncertainJob(msgspec.Struct, frozen=True):
    """A job that may run once at most, and may have run already."""

    id: UUID
    namespace: str
    task: str
    queue: str
    state: str
    due_at: datetime


class Repeated(msgspec.Struct, frozen=True):
    """The number of jobs of a queue that run, or run again; or of those that may have run."""

    namespace: str
    queue: str
    jobs: int


class ScheduleGap(msgspec.Struct, frozen=True):
    """A schedule that was due since the backup. Its catch-up policy decides about the gap."""

    namespace: str
    name: str
    decided_until: datetime
    catch_up: str


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a recovery. `may_have_run`: at most 10,000 of the jobs that `uncertain` counts by
    queue. `paused`: queues, as namespace/name. `tokens_from`: those of new claims are above it."""

    installation: str | None
    copied: bool
    restored: bool
    last_seen: datetime | None
    now: datetime
    may_have_run: Sequence[UncertainJob]
    will_run: Sequence[Repeated]
    schedules: Sequence[ScheduleGap]
    uncertain: Sequence[Repeated] = ()
    paused: Sequence[str] = ()
    tokens_from: int | None = None

    @property
    def may_have_run_count(self) -> int:
        """How many jobs may have run, also those that are not listed."""
        return sum(each.jobs for each in self.uncertain)


class _State(msgspec.Struct):
    name: str | None
    recovered_at: datetime | None
    copied: bool
    restored: bool
    now: datetime
    last_seen: datetime | None


async def survey(database: Database) -> Recovery:
    """Say what would run on this database, and change nothing."""
    [row] = await database.fetch("recovery_state")
    state = to_value(row, _State)
    rows = await database.fetch("may_have_run", _MOST)
    return Recovery(
        installation=state.name, copied=state.copied, restored=state.restored,
        last_seen=state.last_seen, now=state.now,
        may_have_run=[to_value(row, UncertainJob) for row in rows],
        uncertain=[
            to_value(row, Repeated) for row in await database.fetch("queues_that_may_have_run")
        ],
        will_run=[to_value(row, Repeated) for row in await database.fetch("will_run_again")],
        schedules=[to_value(row, ScheduleGap) for row in await database.fetch("schedule_gaps")],
    )  # fmt: skip


async def recover(database: Database, settings: Settings, *, pause: bool = True) -> Recovery:
    """Let nodes start on this database, after it was restored or copied."""
    found = await survey(database)
    queues = sorted((each.namespace, each.queue) for each in found.uncertain) if pause else []
    name = settings.installation
    async with changing(
        database, "recover", f"installation {name or '(without a name)'}"
    ) as change:
        tokens = await change.connection.fetchval(database.queries["adopt_database"], name)
        for namespace, queue in queues:
            await change.connection.fetch(database.queries["pause_queue"], namespace, queue)
        paused = [f"{namespace}/{queue}" for namespace, queue in queues]
        change.after = {"paused": paused, "may_have_run": found.may_have_run_count}
    return msgspec.structs.replace(
        found, installation=name or None, paused=paused, tokens_from=tokens
    )
