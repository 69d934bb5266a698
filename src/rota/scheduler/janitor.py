"""Keeps the tables in shape: days of the past ahead of time, old ones dropped, the hot table vacuumed.

Protocol. Every step can be repeated and raced by any number of janitors: partitions are made if not
there, dropped if still there, rows deleted in bounded steps. `present` is vacuumed by its count of
dead rows, because autovacuum pauses for longer than a fast queue can wait. To spare the tables, only the
owner of the first shard does it; who that is matters to nothing else.
"""

from __future__ import annotations

import logging
from time import monotonic

from rota.config import Settings
from rota.operations.deleting import finish_deletions
from rota.runtime.ticker import Service
from rota.scheduler.archive import Archive
from rota.scheduler.shards import Ownership
from rota.store.events import EventStore
from rota.store.history import HistoryStore
from rota.store.limits import LimitStore
from rota.store.run_stats import RunStatsStore
from rota.store.schedules import ScheduleStore
from rota.store.work import NIL, UpkeepStore

log = logging.getLogger("rota.janitor")

_DAYS_AHEAD = 7
_STEP = 10_000
_RUNS = 100  # runs that are deleted at once, with all their steps
_DEAD_ROWS = 50_000
_CLEAN_EVERY = 60.0
_DEADLINES_EVERY = 2.0
_LAGS_EVERY = 5.0
_TALLIES_EVERY = 5.0
_TALLIES = 2_000  # taken at once
_SAMPLES_EVERY = 30.0
_SAMPLED = 2_000  # jobs of a lane that are counted
_STATS_DAYS = 31


class Janitor(Service):
    name = "janitor"

    def __init__(self, store: UpkeepStore, settings: Settings, ownership: Ownership) -> None:
        self._store = store
        self._settings = settings
        self._ownership = ownership
        self._events = EventStore(store.database)
        self._limits = LimitStore(store.database)
        self._archive: Archive | None = None
        if settings.archive_dir is not None:
            self._archive = Archive(HistoryStore(store.database), settings.archive_dir)
            self._archive.check()
        self._schedules = ScheduleStore(store.database)
        self._clean_at = 0.0  # monotonic, as the next two
        self._vacuum_from = _DEAD_ROWS
        self._deadlines_at = 0.0
        self._lags_at = 0.0
        self._tallies_at = 0.0
        self._samples_at = 0.0
        self._stats = RunStatsStore(store.database)
        self._strays_after = NIL  # the job up to which running ones were looked at

    async def tick(self) -> float:
        if not any(grant.shard == 0 for grant in self._ownership.held()):
            return 1.0
        if monotonic() >= self._clean_at:
            await self.clean()
            self._clean_at = monotonic() + _CLEAN_EVERY
        more = await finish_deletions(self._schedules)
        # Both read all that is ready: at most a twentieth of the time, however much that is.
        if (began := monotonic()) >= self._deadlines_at:
            await self._events.note_missed_deadlines()
            self._deadlines_at = began + max(_DEADLINES_EVERY, 20 * (monotonic() - began))
        if self._settings.lag_after and (began := monotonic()) >= self._lags_at:
            await self._events.note_queue_lag(self._settings.lag_after)
            self._lags_at = began + max(_LAGS_EVERY, 20 * (monotonic() - began))
        if (began := monotonic()) >= self._tallies_at:
            while await self._stats.fold(_TALLIES) >= _TALLIES:
                pass
            self._tallies_at = began + max(_TALLIES_EVERY, 20 * (monotonic() - began))
        if (began := monotonic()) >= self._samples_at:
            await self._stats.sample_queues(_SAMPLED)
            await self._stats.sample_shares()
            self._samples_at = began + max(_SAMPLES_EVERY, 20 * (monotonic() - began))
        await self._vacuum_if_needed()
        return 0.0 if more else 1.0

    async def clean(self) -> None:
        """Make days, drop days, and delete what is past its retention. Also called by tests."""
        settings = self._settings
        await self._store.make_days(_DAYS_AHEAD)
        strays, self._strays_after = await self._store.note_strays(self._strays_after)
        if strays:
            log.error("added %d missing records of batches of running jobs", strays)
        await self._store.forget_shard_moves()
        await self._events.forget(settings.retention_days)
        while await self._events.forget_outbox(settings.retention_days, _STEP) >= _STEP:
            pass
        await self._forget_jobs()
        while await self._store.forget_old(settings.retention_days, _STEP) >= _STEP:
            pass
        while await self._limits.forget_sublanes(_STEP) >= _STEP:
            pass
        await self._limits.forget_permits(_STEP)
        while await self._stats.forget(max(settings.retention_days, _STATS_DAYS), _STEP) >= _STEP:
            pass
        while await self._limits.forget_unique_keys(_STEP) >= _STEP:
            pass
        while await self._store.forget_signals(settings.retention_days, _RUNS) >= _RUNS:
            pass
        while await self._store.forget_runs(settings.retention_days, _RUNS) >= _RUNS:
            pass

    async def _forget_jobs(self) -> None:
        """Remove ended jobs past their retention; with an archive, when they are in it."""
        settings, archived = self._settings, None
        if self._archive is not None:
            archived = await self._archive.copy_days(settings.retention_days)
        for name in await self._store.drop_old_days(
            settings.retention_days, settings.ledger_days, settings.log_days, archived
        ):
            log.info("dropped %s: its retention is over", name)
        days = settings.retention_days, settings.dead_letter_days
        if self._archive is not None:
            await self._archive.move_rest(*days)
            return
        while await self._store.forget_ended(*days, _STEP) >= _STEP:
            pass

    async def _vacuum_if_needed(self) -> None:
        dead, live = await self._store.dead_rows()
        if dead > max(self._vacuum_from, live // 5):
            await self._store.vacuum_present()
            left, _ = await self._store.dead_rows()
            # Rows that an old transaction keeps visible can't be removed: don't try again before their
            # number has doubled, or vacuum would run all the time without effect.
            self._vacuum_from = max(_DEAD_ROWS, 2 * left)
