"""Nodes: the processes of the cluster that serve a namespace, and which shards they look after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import get
from litestar.params import FromPath, QueryParameter

from rota.errors import NotFound
from rota.model import NodeStatus
from rota.server.dependencies import TenantDep
from rota.server.policy import VIEWER


class Nodes(msgspec.Struct, frozen=True):
    """`unowned_shards`: those that no scheduler looks after right now."""

    items: Sequence[NodeStatus]
    shards: int
    unowned_shards: int


@get("/v1/nodes", policy=VIEWER, summary="The nodes of a namespace")
async def list_nodes(
    tenant: TenantDep,
    ended: Annotated[
        bool, QueryParameter(description="Also those of the last day that ended.")
    ] = False,
) -> Nodes:
    shards = await tenant.nodes.shards()
    unowned = sum(shard.owner is None for shard in shards)
    return Nodes(await tenant.nodes.list(ended=ended), len(shards), unowned)


@get("/v1/nodes/{node_id:uuid}", policy=VIEWER, summary="One node")
async def get_node(tenant: TenantDep, node_id: FromPath[UUID]) -> NodeStatus:
    for node in await tenant.nodes.list(ended=True):
        if node.id == node_id:
            return node
    raise NotFound(f"there is no node {node_id} in namespace {tenant.namespace!r}")


ROUTES = [list_nodes, get_node]
