"""A bug that is put in on purpose, to see that the simulation and the checker find it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from proof.simulation.engine import Engine
from proof.simulation.patches import Patches


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """What it changes, before the cluster starts."""

    name: str
    queries: Callable[[dict[str, str]], None] | None = None  # the named queries, in place
    sql: str = ""  # run in the database after migration; the schema is `sim`
    patch: Callable[[Patches], None] | None = None  # Python objects, by `patches.set`
    # Those without which it can't show, and few others: with all of them a seed takes thrice as long.
    moves: frozenset[str] = frozenset({"jobs", "commits"})

    def infect(self, engine: Engine, patches: Patches) -> None:
        if self.sql:
            engine.ask_script(self.sql)
        if self.patch is not None:
            self.patch(patches)


def _finish_without_guard(queries: dict[str, str]) -> None:
    guard = "and p.token = ($3::bigint[])[width_bucket(p.id, $2::uuid[])] and p.node = $1 "
    text = queries["finish_succeeded"]
    assert guard in text
    queries["finish_succeeded"] = text.replace(
        guard, "and $1::uuid is not null and $3::bigint[] is not null "
    )


_GATE_ALWAYS_OPEN = """
create or replace function sim.begin_scheduled(me uuid, ids uuid[], tokens bigint[])
    returns table (job_id uuid, verdict text) language sql volatile as $$
    update sim.present as p set started_at = sim.now()
    from unnest(ids, tokens) as a(id, token)
    where p.id = a.id and p.token = a.token and p.node = me and p.state = 4 and p.cancel_at is null
    returning p.id, 'start'
$$
"""

# Two that prove the hook; the others are elsewhere.
EXAMPLES = {
    mutant.name: mutant
    for mutant in (
        Mutant(name="finish-without-guard", queries=_finish_without_guard),
        Mutant(name="gate-always-open", sql=_GATE_ALWAYS_OPEN),
    )
}
