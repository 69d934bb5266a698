"""Mutants of depth limits."""

from __future__ import annotations

from proof.mutants.changes import in_function
from proof.simulation.mutant import Mutant

_MOVES = frozenset({"quotas", "errors"})

never_shut = Mutant(
    name="quotas: a full queue takes more",
    sql=in_function(
        "check_intake",
        ("if how = 'never' or amount <= 0 then", "if how <> 'never' or amount <= 0 then"),
    ),
    moves=_MOVES,
)
ends_not_counted = Mutant(
    name="quotas: what ends is not counted",
    sql=in_function(
        "tally_runs",
        ("cross join lateral rota.add_flow(t.namespace, t.queue, t.jobs)",
         "cross join lateral (select where false) as nothing"),
    ),
    moves=_MOVES,
)  # fmt: skip
late_commits_forgotten = Mutant(
    name="quotas: a fold forgets what commits after a younger transaction",
    sql=in_function(
        "fold_flow",
        ("d.settled <= pg_snapshot_xmin(", "d.settled <= pg_snapshot_xmax("),
        ("d.queue = '' then pg_snapshot_xmin(", "d.queue = '' then pg_snapshot_xmax("),
    ),
    moves=_MOVES | {"commits"},
)
