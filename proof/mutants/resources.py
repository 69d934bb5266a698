"""Mutants of resources: what jobs hold of a node, and the node that makes room for a large one."""

from __future__ import annotations

from typing import Any

from proof.mutants.changes import in_function
from proof.simulation.mutant import Mutant
from proof.simulation.patches import Patches
from rota.core import resources
from rota.worker.reservations import Reservations
from rota.worker.stock import Stock

_MOVES = frozenset({"resources", "jobs", "errors"})


def _frees_early(patches: Patches) -> None:
    take = Stock.take

    def take_and_free(self: Stock, work: Any) -> bool:
        """What is held is free again as soon as the job is there."""
        fits = take(self, work)
        if (held := self.held.get(work)) is not None:
            self.free = resources.plus(self.free, held)
            self.held[work] = dict.fromkeys(held, 0)
        return fits

    patches.set(Stock, "take", take_and_free)


def _counts_claims_alone(patches: Patches) -> None:
    """Each lane of a claim gets what is free, as if the others took nothing; nothing is refused."""

    def cap(self: Stock, shares: Any) -> dict[str, int]:
        self._bounds = {}
        return dict(shares)

    def take(self: Stock, work: Any) -> bool:
        amounts = resources.shape_of_lane(work.lane).amounts
        self.free = resources.minus(self.free, amounts)
        self.held[work] = amounts
        return True

    patches.set(Stock, "cap", cap)
    patches.set(Stock, "take", take)


def _never_reserves(patches: Patches) -> None:
    async def tick(self: Reservations) -> float:
        return 1.0

    patches.set(Reservations, "tick", tick)


def _fills_what_is_reserved(patches: Patches) -> None:
    def backfill(*arguments: Any) -> resources.Room:
        _, free, _, _, shape, _, most = arguments
        return resources.Room(resources.how_many(free, shape, most))

    patches.set(resources, "backfill", backfill)


freed_before_the_end = Mutant(
    name="resources: what a job holds is free as soon as it is claimed", patch=_frees_early,
    moves=_MOVES,
)  # fmt: skip
claimed_without_counting = Mutant(
    name="resources: claims take what doesn't fit", patch=_counts_claims_alone, moves=_MOVES
)
reservation_forgotten = Mutant(
    name="resources: no node makes room for a large job", patch=_never_reserves, moves=_MOVES
)
reservation_is_filled = Mutant(
    name="resources: small jobs fill what is reserved", patch=_fills_what_is_reserved, moves=_MOVES
)
dead_nodes_keep_their_reservation = Mutant(
    name="resources: a dead node keeps its reservation",
    sql=in_function("reserve", ("n.state = 'live' and n.expires_at > rota.now()", "true")),
    moves=_MOVES,
)
