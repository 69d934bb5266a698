"""Mutants of claims under limits and in order."""

from __future__ import annotations

from proof.mutants.changes import in_function
from proof.simulation.mutant import Mutant

_MOVES = frozenset({"keys", "jobs", "errors"})

counts_without_the_lock = Mutant(
    name="limits: counts without the lock",
    sql=in_function("claim_shared", ("order by m.name for no key update;", "order by m.name;")),
    moves=_MOVES,
)
counts_nothing = Mutant(
    name="limits: what runs is not counted",
    sql=in_function(
        "claim_shared",
        ("singles := rota.recount(space, each_one.name);", "singles := 0;"),
    ),
    moves=_MOVES,
)
passes_a_retry = Mutant(
    name="limits: the next of its order_key passes one that waits for its retry",
    sql=in_function(
        "next_in_order",
        (
            "from rota.future as f where f.id = last_job;",
            "from rota.future as f where f.id = last_job and false;",
        ),
    ),
    moves=_MOVES,
)
blocked_for_ever = Mutant(
    name="limits: what is blocked is not looked at again",
    sql=in_function("reopen", ("s.recheck_at <= rota.now() and s.state = 3", "false"))
    + ";"
    + in_function(
        "plan_rechecks",
        ("set recheck_at = case when exists (", "set recheck_at = case when false and exists ("),
    ),
    moves=_MOVES,
)
