"""Mutants of queues that don't keep all of their jobs that succeed."""

from __future__ import annotations

from proof.mutants.changes import in_function, in_query
from proof.simulation.mutant import Mutant

_MOVES = frozenset({"history", "commits"})

trace_forgotten = Mutant(
    name="history: who submits again is not told of a trace",
    sql=in_function("traces_of", ("limit 1", "limit 0")),
    moves=_MOVES,
)
sparing_unfenced = Mutant(
    name="history: a finish that keeps nothing is not guarded by the token",
    queries=in_query(
        "finish_sparing",
        (
            "and p.token = ($3::bigint[])[width_bucket(p.id, $2::uuid[])] and p.node = $1 ",
            "and $1::uuid is not null and $3::bigint[] is not null ",
        ),
    ),
    moves=_MOVES,
)
nothing_traced = Mutant(
    name="history: what is not kept leaves no trace",
    queries=in_query(
        "finish_sparing", ("from ended where not keeps", "from ended where not keeps and false")
    ),
    moves=_MOVES,
)
