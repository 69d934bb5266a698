"""The cluster: nodes and their heartbeats, shards as a map, who took over from whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import msgspec
from litestar.params import QueryParameter

from rota.model import ShardStatus, Takeover
from rota.server.dashboard.commands import Copyable, cli, curl, python
from rota.server.dashboard.pages import Html, page, show
from rota.server.dashboard.words import NOTHING
from rota.server.dependencies import ContextDep, PrincipalDep, TenantDep
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest

_COLOURS = 4
_MOVES = 20


class Owner(msgspec.Struct, frozen=True):
    """A scheduler, and what it looks after."""

    id: UUID | None
    name: str
    letter: str
    colour: str
    shards: int


@page("/cluster", policy=VIEWER)
async def cluster(
    request: RotaRequest,
    tenant: TenantDep,
    context: ContextDep,
    principal: PrincipalDep,
    ended: Annotated[str | None, QueryParameter(pattern="^(|yes)$")] = None,
) -> Html:
    nodes = await tenant.nodes.list(ended=bool(ended))
    shards = await tenant.nodes.shards()
    # Of nodes in all namespaces: for those who may see all.
    moves: Sequence[Takeover] = ()
    if principal.everywhere:
        moves = (await context.app.nodes.takeovers())[:_MOVES]
        shards = await context.app.nodes.shards()
    owners = _owners(shards)
    return await show(
        request, "cluster.html", nodes=nodes, shards=shards, owners=owners,
        owner_of={owner.id: owner for owner in owners}, moves=moves, ended=bool(ended),
        how=Copyable(
            cli="\n".join((cli("nodes"), cli("shards"))), curl=curl("GET", "/v1/nodes"),
            python=python("await app.nodes.list()"),
        ),
    )  # fmt: skip


def _owners(shards: Sequence[ShardStatus]) -> list[Owner]:
    """Each with a letter and a colour: a colour alone would tell some people nothing."""
    held: dict[UUID | None, list[ShardStatus]] = {}
    for shard in shards:
        held.setdefault(shard.owner, []).append(shard)
    found, place = [], 0
    for owner, own in sorted(held.items(), key=lambda item: str(item[0])):
        if owner is None:
            found.append(Owner(None, "nobody", NOTHING, "none", len(own)))
            continue
        name = own[0].node or "a scheduler of another namespace"
        letter = chr(ord("A") + place % 26)
        found.append(Owner(owner, name, letter, f"own-{place % _COLOURS}", len(own)))
        place += 1
    return found


ROUTES = [cluster]
