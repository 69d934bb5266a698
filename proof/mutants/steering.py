"""Mutants of what people do to schedules and jobs, and of what handlers and servers do that is odd.

They show by what the moves of the simulation add to a seed (see `proof.simulation.moves`).
"""

from __future__ import annotations

import inspect
from typing import Any

import asyncpg
import msgspec

import rota.operations.schedule_changes
import rota.store.session
from proof.simulation.mutant import Mutant
from proof.simulation.patches import Patches
from rota.context import Context, OnceAnswer, OnUnknown
from rota.errors import StoreUnavailable
from rota.operations.settling import Settled
from rota.scheduler.firer import Firer
from rota.store.work import WorkStore

_SCHEDULES = frozenset({"schedules", "jobs"})

# -- schedules


async def _settle_nothing(_transaction: Any, row: Any, _stretches: Any) -> Settled:
    """The new version begins now, whatever the old one has not decided."""
    return Settled(max(row["now"], row["cursor"]), None, None)


def _plan_together(patches: Patches) -> None:
    async def plan_all(self: Firer, connection: Any, rows: Any) -> Any:
        planned, troubles = await honest(self, connection, rows)
        if troubles:
            raise ValueError("one of the schedules can't be planned")
        return planned, troubles

    honest = Firer._plan_all
    patches.set(Firer, "_plan_all", plan_all)


def _leave_waiters(queries: dict[str, str]) -> None:
    text = queries["skip_unstarted"]
    old = "(f.state = 1 or f.attempt = 0)"
    if old not in text:
        raise LookupError(f"the mutant has nothing to change: {old!r} isn't in\n{text}")
    queries["skip_unstarted"] = text.replace(old, "f.state = 2 and f.attempt = 0")


pending_passed_over = Mutant(
    name="an update moves the cursor past what is pending",
    patch=lambda patches: patches.set(rota.operations.schedule_changes, "settle", _settle_nothing),
    moves=_SCHEDULES,
)
schedules_not_isolated = Mutant(
    name="one bad schedule stops the others",
    patch=_plan_together,
    moves=_SCHEDULES | {"spoil"},
)
waiters_left_behind = Mutant(
    name="deleting a schedule leaves its waiting jobs",
    queries=_leave_waiters,
    moves=_SCHEDULES,
)

# -- jobs


def _lose_the_cancelled(queries: dict[str, str]) -> None:
    text = queries["give_back"]
    old = "select id from held where not wanted"
    if old not in text:
        raise LookupError(f"the mutant has nothing to change: {old!r} isn't in\n{text}")
    queries["give_back"] = text.replace(old, "select id from held where false")


def _repeatable_reads(patches: Patches) -> None:
    def settings(*arguments: Any) -> dict[str, str]:
        return {**honest(*arguments), "default_transaction_isolation": "repeatable read"}

    honest = rota.store.session.settings_of
    patches.set(rota.store.session, "settings_of", settings)


cancel_lost = Mutant(
    name="a cancelled job that is given back is forgotten",
    queries=_lose_the_cancelled,
)
stale_gate = Mutant(
    name="places are counted from a stale snapshot",
    patch=_repeatable_reads,
    moves=_SCHEDULES | {"commits"},
)

# -- errors and odd handlers

_SERVER_TROUBLE = ("53", "58", "XX")


def _drop_what_failed(patches: Patches) -> None:
    async def finish(self: WorkStore, node: Any, part: Any, *rest: Any) -> Any:
        try:
            return await honest(self, node, part, *rest)
        except (StoreUnavailable, asyncpg.PostgresError) as error:
            cause = error if isinstance(error, asyncpg.PostgresError) else error.__cause__
            if str(getattr(cause, "sqlstate", "") or "").startswith(_SERVER_TROUBLE):
                return len(part)
            raise

    honest: Any = WorkStore.finish_succeeded
    patches.set(WorkStore, "finish_succeeded", finish)


def _free_the_key(patches: Patches) -> None:
    async def once(
        self: Context, key: str, effect: Any, *, on_unknown: OnUnknown = "refuse"
    ) -> Any:
        asked = msgspec.json.encode([key, on_unknown == "run"])
        answer = await self._channel.call("once_begin", asked)
        begun = msgspec.json.decode(answer, type=OnceAnswer)
        if begun.done:
            return begun.value(key)
        try:
            value = effect()
            if inspect.isawaitable(value):
                value = await value
            encoded = msgspec.json.encode([key, value])
        except Exception:
            await self._channel.call("once_drop", msgspec.json.encode(key))
            raise
        await self._channel.call("once_end", encoded)
        return value

    patches.set(Context, "once", once)


finish_error_dropped = Mutant(
    name="an outcome that a full disk refused is dropped",
    patch=_drop_what_failed,
    moves=frozenset({"errors", "jobs"}),
)
once_key_freed = Mutant(
    name="a once key is freed after its effect",
    patch=_free_the_key,
    moves=frozenset({"odd", "errors"}),
)
