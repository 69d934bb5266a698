"""Puts a coordination service into a seed: which one, its network, its faults, what is asked of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from random import Random
from typing import Any

import rota.scheduler.coordination.consul
import rota.scheduler.coordination.etcd
import rota.scheduler.coordination.opening
import rota.scheduler.coordination.zookeeper
from proof.simulation.cluster import Cluster, NodeMember
from proof.simulation.coordinator import rules, threads
from proof.simulation.coordinator.consul import ConsulModel
from proof.simulation.coordinator.etcd import EtcdModel
from proof.simulation.coordinator.faults import Note, ServiceNemesis
from proof.simulation.coordinator.over_http import ModelTransport
from proof.simulation.coordinator.rules import Rules, Watched
from proof.simulation.coordinator.service import Service
from proof.simulation.coordinator.zookeeper import ZooKeeperModel, make_client
from proof.simulation.loop import Process, SimLoop
from proof.simulation.network import Network
from proof.simulation.patches import Patches, current
from proof.simulation.template import SCHEMA
from rota.lib.addresses import Address
from rota.scheduler.coordination import Coordination
from rota.scheduler.coordination.consul import ConsulCoordination
from rota.scheduler.coordination.etcd import EtcdCoordination
from rota.scheduler.coordination.zookeeper import ZooKeeperCoordination

MODELS: tuple[type[Service], ...] = (EtcdModel, ZooKeeperModel, ConsulModel)
# The longest that a dead node's shards may wait, by the service's rules and our own look.
_TAKEOVER = {"etcd": 6.0, "zookeeper": 7.0, "consul": 26.0}


def choose(seed: int, moves: frozenset[str]) -> type[Service] | None:
    """Return the service of a seed; beside other moves, one seed in four stays with PostgreSQL alone."""
    if "coordinator" not in moves:
        return None
    none = (None,) if len(moves) > 1 else ()
    return Random(f"{seed} coordinator").choice((*MODELS, *none))


def replace_kazoo(
    replace: Callable[[Any, str, Any], None], loop: SimLoop, service: ZooKeeperModel
) -> None:
    """Put the model's client and threads on virtual time into the driver of ZooKeeper."""
    module = rota.scheduler.coordination.zookeeper
    replace(module, "KazooClient", make_client(service))
    replace(module, "ThreadPoolExecutor", lambda *_, **__: threads.Executor(loop))
    replace(module, "threading", threads.module_for(loop))
    replace(module, "sleep", threads.sleep)


def open_driver(service: Service, address: Address, folder: str) -> Coordination:
    """Return the real driver of that service, on behalf of the process that asks for it."""
    if isinstance(service, ZooKeeperModel):
        return ZooKeeperCoordination(address, folder)
    transport = ModelTransport(service, current())
    if isinstance(service, EtcdModel):
        return EtcdCoordination(address, folder, transport)
    return ConsulCoordination(address, folder, transport)


class Coordinator:
    """A seed's service, from its start to the judgement."""

    def __init__(self, kind: type[Service], cluster: Cluster) -> None:
        self._cluster = cluster
        self._random = Random(f"{cluster.seed} coordinator's own")
        random, gateway = self._random, cluster.gateway
        network = Network(
            cluster.loop, Random(random.random()), 10 ** random.uniform(-3.5, -2),
            random.uniform(0.3, 1.2),
        )  # fmt: skip
        self.service = kind(cluster.loop, network, Random(random.random()), gateway.trace)
        self.rules = Rules(self.service, gateway.engine, SCHEMA)
        cluster.settings = cluster.settings.replace(coordination=f"{kind.scheme}://service")

    def install(self, patches: Patches) -> None:
        self._cluster.gateway.engine.ask_script(rules.INSTALL.format(schema=SCHEMA))
        patches.set(rota.scheduler.coordination.opening, "open_driver", self._open_driver)
        if isinstance(self.service, ZooKeeperModel):
            replace_kazoo(patches.set, self._cluster.loop, self.service)
        for module in (rota.scheduler.coordination.etcd, rota.scheduler.coordination.consul):
            patches.set(module, "_CHUNK", self._random.choice((3, 5, 64)))
        self.rules.watch(patches)

    def _open_driver(self, address: Address, folder: str) -> Coordination:
        return Watched(open_driver(self.service, address, folder), self.rules)

    def make_nemesis(self, note: Note) -> ServiceNemesis:
        lease = self._cluster.settings.shard_lease
        return ServiceNemesis(self.service, self._random, lease, self._processes, note)

    def _schedulers(self) -> list[NodeMember]:
        return [node for node in self._cluster.nodes if "scheduler" in node.roles]

    def _processes(self) -> list[Process]:
        return [each.process for each in self._schedulers() if each.process is not None and each.up]

    async def end(self) -> None:
        """In a mended cluster: shares are even, and those of a scheduler that dies are taken over."""
        if await self.rules.settled(len(self._schedulers())) is None:
            return
        alone = [each for each in self._schedulers() if "worker" not in each.roles]
        victim = self._random.choice(alone)
        assert victim.process is not None
        before, begun, name = self.rules.epochs(), self.service.loop.time(), victim.process.name
        node = self._identity(victim)
        victim.crash()
        # No fault of the history: for that, all was mended before.
        self._cluster.gateway.trace.add("nemesis", f"kill of {name}", "at the end")
        limit = _TAKEOVER[self.service.name] + math.ceil(self._cluster.settings.shard_lease)
        while self.service.loop.time() < begun + limit:
            after = self.rules.epochs()
            if all(str(owner) != node for owner, _ in after.values()):
                moved = sum(after[shard] != pair for shard, pair in before.items())
                self.rules.counts["taken over"] = moved
                return
            await asyncio.sleep(0.5)
        self.rules.add(
            f"a dead scheduler's shards are taken over: {name}'s are not after {limit} s"
        )

    def _identity(self, victim: NodeMember) -> str:
        """Its present id: a node that was declared dead has another one than it began with."""
        assert victim.process is not None
        return str(self.rules.shards_of(victim.process)._me)
