"""Lets runs of workflows go on: see `rota.operations.run_advance` for the protocol.

A scheduler looks for runs that need a decision four times a second. A worker looks when the end of a
step here has left one, so that a condition or the end of a run doesn't wait for that.

A run that can't be decided about here, such as one that is encrypted with a key that this node doesn't
have, is left out for a while: it would hold up the others, and another node may have the key.
"""

from __future__ import annotations

import logging
from uuid import UUID

from rota.errors import KeyMissing, StoreUnavailable
from rota.operations.run_advance import RunAdvance
from rota.runtime.ticker import Service
from rota.store.database import Database

log = logging.getLogger("rota.workflows")

_RUNS = 100
_LEFT_OUT = 100  # looks


class Advancer(Service):
    name = "advancer"

    def __init__(self, database: Database, interval: float) -> None:
        self._advance = RunAdvance(database)
        self._interval = interval
        self._stuck: dict[UUID, int] = {}  # runs that are left out, and for how many looks

    async def tick(self) -> float:
        runs = await self._advance.pending(_RUNS, list(self._stuck))
        self._stuck = {run: looks - 1 for run, looks in self._stuck.items() if looks > 1}
        advanced = [await self._advance_one(run) for run in runs]
        return 0.0 if any(advanced) else self._interval

    async def _advance_one(self, run: UUID) -> bool:
        """Advance a run. One that can't be decided about must not hold up the others."""
        try:
            return await self._advance.advance(run)
        except StoreUnavailable:
            raise
        except Exception as error:
            self._stuck[run] = _LEFT_OUT
            if isinstance(error, KeyMissing):
                log.warning("run %s can't be advanced by this node: %s", run, error)
            else:
                log.exception("run %s can't be advanced", run)
            return False
