"""The page of the cluster: nodes and their heartbeats, shards and their owners, takeovers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import msgspec
from litestar.params import QueryParameter

from rota.model import ShardStatus, Takeover
from rota.server.dashboard.pages import Copyable, Html, Skip, cli, curl, page, part, show
from rota.server.dashboard.words import NOTHING
from rota.server.policy import VIEWER
from rota.server.requests import ContextDep, PrincipalDep, RotaRequest, StatsDep, TenantDep

_COLOURS = 4
_MOVES = 20
_ROWS = 40


class Owner(msgspec.Struct, frozen=True):
    """A scheduler, and the number of shards that it owns."""

    id: UUID | None
    name: str
    letter: str
    colour: str
    shards: int


@page("/cluster", policy=VIEWER)
async def cluster(
    request: RotaRequest,
    tenant: TenantDep,
    stats: StatsDep,
    context: ContextDep,
    principal: PrincipalDep,
    ended: Annotated[str | None, QueryParameter(pattern="^(|yes)$")] = None,
    skip: Skip = 0,
) -> Html:
    found = await stats.nodes(ended=bool(ended), skip=skip, most=_ROWS + 1)
    nodes = part(request, found, skip, _ROWS, ended=ended or None)
    shards = await tenant.nodes.shards()
    # They concern nodes of all namespaces.
    moves: Sequence[Takeover] = ()
    if principal.everywhere:
        moves = (await context.app.nodes.takeovers())[:_MOVES]
        shards = await context.app.nodes.shards()
    owners = _owners(shards)
    alive = [node for node in nodes.rows if node.state in ("live", "draining")]
    return await show(
        request, "cluster.html", nodes=nodes, totals=await stats.node_totals(), shards=shards,
        owners=owners,
        owner_of={owner.id: owner for owner in owners}, moves=moves, ended=bool(ended),
        coordinators=sorted({node.coordinator for node in alive if node.coordinator}),
        coordinator_faults=sorted({n.coordinator_fault for n in alive if n.coordinator_fault}),
        how=[
            Copyable("List the nodes", cli=cli("nodes"), curl=curl("GET", "/v1/nodes"),
                     python="await app.nodes.list()"),
            Copyable("List the shards", cli=cli("shards")),
        ],
    )  # fmt: skip


def _owners(shards: Sequence[ShardStatus]) -> list[Owner]:
    """Return the owners, each with a letter as well: some people don't see colours."""
    held: dict[UUID | None, list[ShardStatus]] = {}
    for shard in shards:
        held.setdefault(shard.owner, []).append(shard)
    found, place = [], 0
    for owner, own in sorted(held.items(), key=lambda item: str(item[0])):
        if owner is None:
            found.append(Owner(None, "no owner", NOTHING, "none", len(own)))
            continue
        name = own[0].node or "a scheduler of another namespace"
        letter = chr(ord("A") + place % 26)
        found.append(Owner(owner, name, letter, f"own-{place % _COLOURS}", len(own)))
        place += 1
    return found


ROUTES = [cluster]
