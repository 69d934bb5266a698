"""What is broken when: a pure function of a seed.

Faults come every two seconds on average, and overlap.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

import msgspec

MEAN_PAUSE = 2.0


class Planned(msgspec.Struct, frozen=True):
    after: float  # seconds from the start of the fault phase
    kind: str
    target: str
    seconds: float
    amount: float = 0.0  # what it means depends on the kind


class Recipe(msgspec.Struct, frozen=True):
    """How often a kind of fault is chosen, how long it takes, and how bad it is."""

    weight: float
    shortest: float
    longest: float
    # nodes, workers, lines (of nodes and clients), all_lines (the operator's, too), clocks, server
    targets: str
    amount: tuple[float, float] = (0.0, 0.0)


# The lease is 3 s. `network` needs namespaces, `clock` needs libfaketime; what is missing is left out.
RECIPES: dict[str, Recipe] = {
    # Processes.
    "kill": Recipe(8, 0.2, 6, "nodes"),
    "kill_child": Recipe(3, 0, 0, "workers"),
    "term": Recipe(5, 0.1, 3, "nodes"),
    "stop": Recipe(5, 4, 8, "nodes"),  # the node alone: its children go on
    "stop_tree": Recipe(4, 4, 8, "nodes"),
    "stop_briefly": Recipe(3, 0.3, 2, "nodes"),
    # The server.
    "restart_server": Recipe(3, 0, 0, "server"),
    "terminate_backends": Recipe(4, 0, 0, "server", (0.1, 0.6)),
    # The database: statements that fail before their effect, locks, partitions, its clock.
    "fail_statements": Recipe(6, 0.3, 5, "server", (0.1, 1.0)),
    "cancel_statements": Recipe(4, 0.3, 3, "server", (0.05, 0.6)),
    "lock_rows": Recipe(4, 0.5, 6, "server"),
    "drop_days": Recipe(2, 0, 0, "server"),
    "database_clock": Recipe(5, 0, 0, "server", (0.2, 2.5)),
    # The line, by the proxy. What fails after its effect is there as well.
    "error_reply": Recipe(6, 0.3, 5, "all_lines", (0.1, 1.0)),
    "too_many": Recipe(4, 0.5, 5, "all_lines", (0.2, 1.0)),
    "delay": Recipe(3, 2, 6, "lines", (0.02, 0.4)),
    "throttle": Recipe(2, 2, 6, "lines", (4_000, 40_000)),
    "hold": Recipe(4, 1, 14, "lines"),
    "stall": Recipe(5, 3, 20, "lines"),
    "lose_reply": Recipe(7, 1, 5, "all_lines", (0.1, 0.7)),
    "drop_up": Recipe(3, 1, 8, "all_lines"),
    "drop_down": Recipe(4, 1, 8, "all_lines"),
    "refuse": Recipe(3, 0.5, 6, "all_lines"),
    "forget": Recipe(3, 2, 15, "all_lines"),
    # The network, by packet filters.
    "partition": Recipe(4, 1, 9, "nodes"),
    "partition_out": Recipe(3, 1, 9, "nodes"),
    "partition_in": Recipe(3, 1, 9, "nodes"),
    "partition_reset": Recipe(3, 1, 6, "nodes"),
    # Clocks.
    "clock": Recipe(5, 1, 10, "clocks", (-3600, 3600)),
}
# A worker is cut off for longer than its lease: not left to chance, for it is rare in a short run.
SILENCES = ("partition", "partition_out", "drop_up")
SILENT_FOR = 7.0  # at least
NETWORK_KINDS = frozenset(kind for kind in RECIPES if kind.startswith("partition"))


def plan_faults(
    seed: int, seconds: float, kinds: Collection[str], targets: dict[str, Sequence[str]]
) -> list[Planned]:
    """`targets` names what there is of each group of targets."""
    chance = random.Random(seed)
    chosen = [kind for kind in RECIPES if kind in kinds]
    weights = [RECIPES[kind].weight for kind in chosen]
    planned: list[Planned] = []
    after = chance.expovariate(1 / MEAN_PAUSE)
    while chosen and after < seconds:
        kind = chance.choices(chosen, weights)[0]
        recipe = RECIPES[kind]
        low, high = recipe.amount
        amount = chance.uniform(low, high) if kind != "clock" else chance.choice((low, high))
        lasts = chance.uniform(recipe.shortest, recipe.longest)
        target = chance.choice(targets[recipe.targets])
        planned.append(Planned(round(after, 3), kind, target, round(lasts, 3), round(amount, 3)))
        after += chance.expovariate(1 / MEAN_PAUSE)
    silences = [kind for kind in chosen if kind in SILENCES]
    if silences and not any(_is_silence(fault, targets["workers"]) for fault in planned):
        kind, worker = chance.choice(silences), chance.choice(targets["workers"])
        lasts = chance.uniform(SILENT_FOR, RECIPES[kind].longest)
        planned.append(Planned(round(seconds / 2, 3), kind, worker, round(lasts, 3)))
    return planned


def _is_silence(fault: Planned, workers: Sequence[str]) -> bool:
    return fault.kind in SILENCES and fault.target in workers and fault.seconds >= SILENT_FOR
