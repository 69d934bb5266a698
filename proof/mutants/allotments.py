"""Mutants of allotments: places that nodes keep under limits of whole queues and tasks."""

from __future__ import annotations

from typing import Any

from proof.mutants.changes import in_function
from proof.simulation.mutant import Mutant
from proof.simulation.patches import Patches
from rota.worker.gates import Gates

_MOVES = frozenset({"keys", "jobs", "errors"})

others_are_not_counted = Mutant(
    name="allotments: what other nodes have is not counted",
    sql=in_function(
        "allot",
        ("least(wanted, most - others, greatest(fair, most - promised))", "least(wanted, most)"),
    ),
    moves=_MOVES,
)
ceiling_is_ignored = Mutant(
    name="allotments: a node is taken to obey before it has the answer",
    sql=in_function("allot", ("given := greatest(ceiling, target);", "given := target;")),
    moves=_MOVES,
)
dead_nodes_keep_theirs = Mutant(
    name="allotments: a dead node keeps its places",
    sql=in_function("allotted", ("n.state in ('live', 'draining')", "true"))
    + ";"
    + in_function("other_allotments", ("n.state in ('live', 'draining')", "true"))
    + ";"  # which would only put it off
    + in_function("forget_sublanes", ("n.state in ('live', 'draining')", "true")),
    moves=_MOVES,
)


def _always_open(patches: Patches) -> None:
    def enter(self: Gates, work: Any) -> bool:
        """Lets every job start that was claimed."""
        return True

    patches.set(Gates, "enter", enter)


gate_is_open = Mutant(
    name="allotments: what was claimed ahead starts at once", patch=_always_open, moves=_MOVES
)
