"""Mutants of claims under limits and in order."""

from __future__ import annotations

from proof.mutants.changes import in_function
from proof.simulation.mutant import Mutant

_MOVES = frozenset({"keys", "jobs"})
# In which claims wait for each other: sublanes of several keys share the limit of their queue.
_RACES = frozenset({"shares", "commits"})

counts_without_the_lock = Mutant(
    name="limits: counts without the lock",
    sql=in_function("claim_shared", ("order by m.name for no key update;", "order by m.name;")),
    moves=_RACES,
)
_LOCK = """perform from rota.meter as m where m.namespace = space and m.name = any(meters)
        order by m.name for no key update;"""
_STALE = "singles := coalesce((stale ->> each_one.name)::int, 0);"
counts_in_the_locking_statement = Mutant(
    name="limits: counts in the statement that locks",
    sql=in_function(
        "claim_shared",
        ("    singles int;\nbegin", "    singles int;\n    stale jsonb := '{}';\nbegin"),
        (
            _LOCK,
            # As the locking statement's snapshot has it, from before the wait for the lock.
            f"""
        select coalesce(jsonb_object_agg(m.name, rota.count_held(space, m.name)), '{{}}') into stale
        from rota.meter as m
        where m.namespace = space and m.name = any(meters);
        {_LOCK}
""",
        ),
        ("singles := rota.recount(space, each_one.name);", _STALE),
        ("singles := each_one.held;", _STALE),
    ),
    moves=_RACES,
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
            "from rota.future as f where f.id = one.order_job",
            "from rota.future as f where f.id = one.order_job and false",
        ),
    ),
    moves=_MOVES,
)
order_of_one_sublane = Mutant(
    name="limits: the order of a key holds in each of its sublanes alone",
    sql=in_function(
        "next_in_order",
        ("        order by s.lane <> its_lane, s.lane\n", "          and s.lane = its_lane\n"),
    ),
    moves=frozenset({"keys"}),
)
blocked_for_ever = Mutant(
    name="limits: what is blocked is not looked at again",
    sql=in_function("reopen", ("s.recheck_at <= rota.now() limit 200", "false limit 200"))
    + ";"
    + in_function(
        "plan_rechecks",
        ("set recheck_at = case when exists (", "set recheck_at = case when false and exists ("),
    ),
    moves=_MOVES,
)
released_twice = Mutant(
    name="limits: a place is released by its end, and again by who is told of it",
    sql=in_function(
        "claim_shared",
        (
            "singles := rota.recount(space, each_one.name);",
            "singles := rota.recount(space, each_one.name) - cardinality(freed);",
        ),
    ),
    moves=_MOVES,
)
moments_refunded = Mutant(
    name="limits: a rate takes back what it granted to jobs that have ended",
    sql=in_function(
        "claim_shared",
        (
            "+ j.jobs * m.spacing * interval '1 second' end",
            "+ greatest(j.jobs - cardinality(freed), 0) * m.spacing * interval '1 second' end",
        ),
    ),
    moves=frozenset({"shares"}),
)
