"""Bugs that are put in on purpose: each must be caught, or the workload is too tame.

A mutant changes a named query, a function of the schema or a Python object in the way a tired person
might. `python -m proof.mutants` runs each on one seed after the other until the checker (or the
liveness phase) objects, and prints how many seeds that took; a mutant that survives all of them is
listed last, and the exit code says so. The unchanged code must pass all those seeds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import rota.core.lifecycle
import rota.lib.ids
import rota.runtime.attempts
import rota.runtime.heartbeat
import rota.worker.claim_loop
import rota.worker.effects
import rota.worker.starter
from proof.mutants import (
    allotments,
    coordinators,
    flows,
    functions,
    hanging,
    idleness,
    limits,
    quotas,
    resources,
    sharing,
    sparing,
    steering,
)
from proof.mutants.changes import in_function, in_query, replaced
from proof.simulation.mutant import Mutant
from proof.simulation.patches import Patches
from proof.simulation.template import SCHEMA
from rota.core.lifecycle import End, GiveBack, TryAgain, judge_lost, needs_mark
from rota.model import Guarantee, OutcomeKind
from rota.runtime.attempts import succeeded
from rota.runtime.clock import DatabaseClock
from rota.runtime.heartbeat import Heartbeat
from rota.scheduler.firer import Firer
from rota.store.rows import Submitted
from rota.store.submitter import Submitter
from rota.store.work import WorkStore
from rota.worker.claim_loop import Worker
from rota.worker.cursors import Cursors
from rota.worker.effects import Effects

# -- guards of a worker's writes

# The parameters stay in use, or PostgreSQL wouldn't know their types.
_GUARD = (
    "and p.token = ($3::bigint[])[width_bucket(p.id, $2::uuid[])] and p.node = $1 ",
    "and $1::uuid is not null and $3::bigint[] is not null ",
)

finish_without_token = Mutant(
    name="finish without token", queries=in_query("finish_succeeded", _GUARD)
)
retry_without_token = Mutant(name="retry without token", queries=in_query("finish_retried", _GUARD))
return_without_token = Mutant(name="give back without token", queries=in_query("give_back", _GUARD))
token_not_rising = Mutant(
    name="a claim keeps the old token",
    queries=in_query(
        "claim", ("token = (select nextval('rota.token'))", "token = greatest(p.token, 1)")
    ),
)
attempt_not_counted = Mutant(
    name="a claim doesn't count the attempt",
    queries=in_query("claim", ("attempt = p.attempt + 1", "attempt = greatest(p.attempt, 1)")),
)

# -- effects


def _transact_outside(patches: Patches) -> None:
    async def transact(self: Effects, work: Any, handler: Any) -> Any:
        """The handler's writes are one transaction, the finish another."""
        node = self._lease.node_id
        async with self._database.transaction("transact") as connection:
            outcome = await handler(connection)
        if outcome.kind is OutcomeKind.SUCCEEDED:
            async with self._database.transaction("transact") as connection:
                await self._finish(connection, node, work, outcome)
        return outcome

    patches.set(Effects, "transact", transact)


def _finish_unchecked(patches: Patches) -> None:
    async def finish(self: Effects, connection: Any, node: Any, work: Any, outcome: Any) -> None:
        """Whether the finish found its job isn't looked at."""
        now = rota.worker.effects.monotonic()  # type: ignore[attr-defined]
        done = succeeded(work, outcome, now)
        await self._store.finish_succeeded(node, [done], now, connection)

    patches.set(Effects, "_finish", finish)


effect_outside = Mutant(name="effect outside the transaction", patch=_transact_outside)
effect_unchecked = Mutant(name="effect kept though the lease is lost", patch=_finish_unchecked)

# -- what becomes of the jobs of dead nodes


def _judging(judge: Callable[..., Any]) -> Callable[[Patches], None]:
    return lambda patches: patches.set(rota.core.lifecycle, "judge_lost", judge)


def _requeue_all(tried: Any, **facts: Any) -> Any:
    verdict = judge_lost(tried, **facts)
    if tried.guarantee is Guarantee.AT_MOST_ONCE and isinstance(verdict, End):
        return TryAgain(0.0, tried.crashes + 1)
    return verdict


def _count_no_crash(tried: Any, **facts: Any) -> Any:
    verdict = judge_lost(tried, **facts)
    if isinstance(verdict, GiveBack) or tried.guarantee is Guarantee.AT_MOST_ONCE:
        return verdict
    return TryAgain(0.0, tried.crashes)


def _mark_nothing(patches: Patches) -> None:
    def never(guarantee: Guarantee, crashes: int) -> bool:
        return guarantee is not Guarantee.AT_MOST_ONCE and needs_mark(guarantee, crashes)

    patches.set(rota.runtime.attempts, "needs_mark", never)


at_most_requeued = Mutant(name="at_most_once requeued", patch=_judging(_requeue_all))
crash_not_counted = Mutant(name="crash not counted", patch=_judging(_count_no_crash))
at_most_unmarked = Mutant(name="at_most_once starts without a mark", patch=_mark_nothing)
reap_the_living = Mutant(
    name="the reaper takes from the living",
    queries=in_query(
        "take_abandoned",
        ("n.state in ('live', 'draining')", "n.state = 'draining'"),
    ),
)
impatient_reaper = Mutant(
    name="declared dead within the lease",
    queries=in_query(
        "declare_dead",
        ("expires_at < rota.now()", "heartbeat_at < rota.now() - interval '1200 milliseconds'"),
    ),
)


def _never_reconcile(patches: Patches) -> None:
    async def claim(self: Worker, wishes: Any) -> int:
        try:
            return await honest(self, wishes)
        except BaseException:
            self._reconcile = False
            raise

    honest = Worker._claim
    patches.set(Worker, "_claim", claim)


claim_not_reconciled = Mutant(name="a claim's lost answer is forgotten", patch=_never_reconcile)

# -- leases and clocks


def _trust_for_ever(patches: Patches) -> None:
    def trust(self: Heartbeat, sent: float) -> None:
        self.trusted_until = sent + 3600.0

    patches.set(Heartbeat, "_trust_from", trust)


def _lease_by_wall_clock(patches: Patches) -> None:
    def wall() -> float:
        return rota.lib.ids.time.time_ns() / 1e9  # type: ignore[attr-defined]

    patches.set(rota.runtime.heartbeat, "monotonic", wall)
    patches.set(rota.worker.claim_loop, "monotonic", wall)
    patches.set(rota.worker.starter, "monotonic", wall)


def _start_early(patches: Patches) -> None:
    patches.set(DatabaseClock, "local", lambda self, database_seconds: 0.0)


# Either of the two is enough against a start by a node that has overslept: both must be gone.
mark_without_token = Mutant(
    name="mark the start without token, and not look at the lease",
    queries=in_query("mark_started", _GUARD),
    patch=_trust_for_ever,
)
wall_clock_lease = Mutant(name="wall clock in a lease", patch=_lease_by_wall_clock)
starts_early = Mutant(name="starts when released, not when due", patch=_start_early)

# -- shards


fence_unlocked = Mutant(
    name="fence read, not held until the commit",
    queries=in_query("due_schedules", ("    for key share of s\n", "")),
)
takeover_too_early = Mutant(
    name="a shard is taken before it has expired",
    queries=in_query(
        "take_shards",
        (
            "s.expires_at <= rota.now())",
            "s.expires_at <= rota.now() + interval '10 seconds')",
        ),
    ),
)

# -- schedules


async def _fire_in_two(self: Firer, shards: Any, epochs: Any, aside: Any) -> bool:
    """The cursors are committed before what they stand for."""
    store = self._store
    async with store.database.transaction("fire") as connection:
        rows = await store.due_schedules(connection, shards, epochs, 1000, aside)
        planned, _ = await self._plan_all(connection, rows)
        await store.fire(connection, [], [each.advance for each in planned])
    async with store.database.transaction("fire") as connection:
        await store.fire(connection, [entry for each in planned for entry in each.entries], [])
    return False


cursor_first = Mutant(
    name="cursor advanced before the insert",
    patch=lambda patches: patches.set(Firer, "_fire", _fire_in_two),
)


def _no_ledger_key(queries: dict[str, str]) -> None:
    queries["due_schedules"] = replaced(
        queries["due_schedules"], ("    for update skip locked\n", "")
    )
    queries["fire"] = replaced(
        queries["fire"],
        (
            "on conflict (schedule_id, due_at) do nothing",
            "on conflict (schedule_id, due_at) do update set job_id = excluded.job_id",
        ),
    )


no_ledger_key = Mutant(name="no unique key on occurrences", queries=_no_ledger_key)
overlap_in_memory = Mutant(
    name="overlap not asked of the database",
    sql=in_function(
        "begin_scheduled",
        ("s.overlap = 1 and s.max_running is null", "coalesce(s.max_running, 1) <= 1"),
    ),
)


class _UndoneError(Exception):
    """To end a transaction as if it had not been."""


_PASS = f"""
with passed as (
    update {SCHEMA}.present as p set started_at = {SCHEMA}.now()
    from unnest($2::uuid[], $3::bigint[]) as a(id, token)
    where p.id = a.id and p.token = a.token and p.node = $1 and p.state = 4
    returning p.id, p.schedule_id
)
insert into {SCHEMA}.gate (schedule_id, job_id)
select schedule_id, id from passed on conflict do nothing"""


def _look_then_begin(patches: Patches) -> None:
    """What the schedule's row lock is for: two may look before either has begun."""

    async def begin(self: WorkStore, node: Any, ids: Any, tokens: Any) -> Any:
        verdicts: dict[Any, str] = {}
        with contextlib.suppress(_UndoneError):
            async with self.database.transaction("begin") as connection:
                found = await connection.fetch(
                    self.database.queries["begin_scheduled"], node, ids, tokens
                )
                verdicts = dict(found)
                raise _UndoneError
        asked = list(zip(ids, tokens, strict=True))
        passed = [pair for pair in asked if verdicts.get(pair[0]) == "start"]
        held = [pair for pair in asked if verdicts.get(pair[0]) != "start"]
        if passed:
            async with self.database.connection() as connection:
                await connection.execute(_PASS, node, *map(list, zip(*passed, strict=True)))
        others = await honest(self, node, *map(list, zip(*held, strict=True))) if held else {}
        return {**dict.fromkeys((id for id, _ in passed), "start"), **others}

    honest = WorkStore.begin_scheduled
    patches.set(WorkStore, "begin_scheduled", begin)


overlap_unlocked = Mutant(
    name="overlap looked at in one transaction, begun in another", patch=_look_then_begin
)
entered_together = Mutant(
    name="jobs that begin together don't count each other",
    sql=in_function(
        "begin_scheduled",
        ("row_number() over (partition by j.schedule_id, j.asks order by j.place)", "1"),
    ),
)
skip_unrecorded = Mutant(
    name="a skip isn't written into the ledger",
    sql=in_function(
        "skip_job",
        ("set state = 2, reason = why, decided_at", "set decided_at"),
    ),
)

# -- submitting

key_not_unique = Mutant(
    name="no unique key on submits",
    sql=in_function(
        "submit_together",
        ("coalesce(k.job_id <> f.id, false) as existed", "false as existed"),
        ("coalesce(k.job_id, f.id) as answer", "f.id as answer"),
    ),
)
repeat_stores_again = Mutant(
    name="a repeated submit stores what has moved on",
    sql=in_function("submit_together", ("    if repeated then", "    if false then")),
)


def _answer_first(patches: Patches) -> None:
    async def flush(self: Submitter, taken: Any) -> None:
        for jobs, future in taken:
            if not future.done():
                future.set_result([Submitted(j.id, False, False) for j in jobs])
        await self._store.submit_jobs([job for jobs, _ in taken for job in jobs])

    patches.set(Submitter, "_flush", flush)


answered_first = Mutant(name="acknowledged before the commit", patch=_answer_first)

# -- looking


def _never_sweep(patches: Patches) -> None:
    def wish(self: Cursors, lane: str, slots: int, now: float) -> Any:
        place = self._lanes.get(lane)
        if place is not None:
            place.next_sweep = float("inf")
        return honest(self, lane, slots, now)

    honest = Cursors.wish
    patches.set(Cursors, "wish", wish)


never_swept = Mutant(name="late commit below the cursor never swept", patch=_never_sweep)

MUTANTS: list[Mutant] = [
    value
    for room in (
        globals(),
        vars(steering),
        vars(idleness),
        vars(hanging),
        vars(flows),
        vars(functions),
        vars(allotments),
        vars(resources),
        vars(limits),
        vars(quotas),
        vars(sharing),
        vars(sparing),
        vars(coordinators),
    )
    for value in list(room.values())
    if isinstance(value, Mutant)
]
