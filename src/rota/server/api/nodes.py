"""Nodes: the processes of the cluster that serve a namespace, and which shards they look after."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from litestar import get
from litestar.params import FromPath, QueryParameter

from rota.client.wire import NodeList
from rota.model import NodeStatus
from rota.server.dependencies import TenantDep
from rota.server.policy import VIEWER


@get("/v1/nodes", policy=VIEWER, summary="List nodes")
async def list_nodes(
    tenant: TenantDep,
    ended: Annotated[
        bool, QueryParameter(description="Also nodes that ended within the last day.")
    ] = False,
) -> NodeList:
    shards = await tenant.nodes.shards()
    unowned = sum(shard.owner is None for shard in shards)
    return NodeList(await tenant.nodes.list(ended=ended), len(shards), unowned)


@get("/v1/nodes/{node_id:uuid}", policy=VIEWER, summary="Get a node")
async def get_node(tenant: TenantDep, node_id: FromPath[UUID]) -> NodeStatus:
    return await tenant.nodes.get(node_id)


ROUTES = [list_nodes, get_node]
