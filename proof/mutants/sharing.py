"""Mutants of fair queues, unique jobs, drains and maps."""

from __future__ import annotations

from typing import Any

from proof.mutants.changes import in_function
from proof.simulation.mutant import Mutant
from proof.simulation.patches import Patches
from rota.worker.role import WorkerRole

# -- shares

_SHARES = frozenset({"shares"})

weights_ignored = Mutant(
    name="shares: weights are not looked at",
    sql=in_function(
        "fair_weight_of", ("select coalesce((select w.weight", "select coalesce((select 1")
    ),
    moves=_SHARES,
)
floor_ignored = Mutant(
    name="shares: who was idle has credit",
    sql=in_function("fair_floor", ("select coalesce(", "select 0 * coalesce(")),
    moves=_SHARES,
)

# -- unique jobs

_UNIQUE = frozenset({"unique", "commits"})

unfinished_overlooked = Mutant(
    name="unique: a job that runs does not stand for others",
    sql=in_function(
        "stands_for",
        (
            "or exists (select from rota.present as p where p.id = its_job)",
            "or exists (select from rota.present as p where p.id = its_job and p.state = {state.ready})",
        ),
    ),
    moves=_UNIQUE,
)
window_ignored = Mutant(
    name="unique: a window ends with its job",
    sql=in_function(
        "stands_for",
        (
            "else moment < since + make_interval(secs => seconds)",
            "else exists (select from rota.present as p where p.id = its_job)",
        ),
    ),
    moves=_UNIQUE,
)
taken_stands = Mutant(
    name="unique: a job that was taken stands for who submits later",
    sql=in_function(
        "stands_for",
        ("p.id = its_job and p.state = {state.ready} and p.attempt = 0)", "p.id = its_job)"),
    ),
    moves=_UNIQUE,
)
_ITS_KEY = "o.namespace = its_space and o.task = j.task and o.key = its_key"
key_unlocked = Mutant(
    name="unique: two look before either has stored",
    sql=in_function(
        "submit_unique_job",
        (
            "    insert into rota.unique_key as o (",
            f"""    select * into k from rota.unique_key as o where {_ITS_KEY};
    if not found then
    insert into rota.unique_key as o (""",
        ),
        ("set job_id = o.job_id\n    returning * into k;",
         "set job_id = o.job_id\n    returning * into k;\n    end if;"),
    ),
    moves=_UNIQUE | {"commits"},
)  # fmt: skip
debounce_not_moved = Mutant(
    name="unique: a later submit does not put a debounced job off",
    sql=in_function(
        "submit_unique_job",
        ("least(due, k.since + make_interval(secs => u.latest)));", "null);"),
    ),
    moves=_UNIQUE,
)

# -- drains


def _drain_nothing(patches: Patches) -> None:
    def take_wish(self: Any, wish: str | None) -> None:
        return None

    patches.set(WorkerRole, "take_wish", take_wish)


drain_ignored = Mutant(
    name="a drained worker goes on", patch=_drain_nothing, moves=frozenset({"drains"})
)

# -- maps

_MAPS = frozenset({"maps"})

member_skipped = Mutant(
    name="maps: a chunk that is tried again passes over a member",
    sql=in_function(
        "open_chunks",
        (
            "if c.begun = c.first + c.done then",
            "if careful and c.done < c.size then",
        ),
        ("if c.begun is not null and careful then", "if careful then"),
        ("values (k.run_id, k.step, c.begun,", "values (k.run_id, k.step, coalesce(c.begun, -1),"),
    ),
    moves=_MAPS,
)
counted_again = Mutant(
    name="maps: a chunk counts its members whenever it begins",
    sql=in_function(
        "open_chunks",
        (
            "        id := k.id;\n",
            """
        update rota.map as m set succeeded = m.succeeded + 1
        where m.run_id = k.run_id and m.step = k.step and c.token is not null;
        id := k.id;
""",
        ),
    ),
    moves=_MAPS,
)
