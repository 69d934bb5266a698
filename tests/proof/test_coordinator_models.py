"""The models of etcd, ZooKeeper and Consul in the simulation pass the suite of the real ones.

With the real drivers, on virtual time. And the services' faults reach the drivers.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import Any
from uuid import UUID, uuid5

import pytest

import rota.scheduler.coordination.zookeeper as zookeeper
from proof.simulation.coordinator.service import Service, State
from proof.simulation.coordinator.setting import MODELS, open_driver, replace_kazoo
from proof.simulation.coordinator.zookeeper import ZooKeeperModel
from proof.simulation.loop import Process, SimLoop, context_of
from proof.simulation.network import Network
from proof.simulation.trace import Trace
from rota.scheduler.coordination import Coordination, CoordinatorUnavailable
from rota.scheduler.coordination.opening import parse_coordination
from tests.support.coordination_suite import CoordinationSuite

_FOLDER = "rota/00000000-0000-7000-8000-000000000001"
_SUITE = [name for name in dir(CoordinationSuite) if name.startswith("test_")]


class World:
    """A service on virtual time, and drivers in processes of their own."""

    def __init__(self, kind: type[Service], monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = SimLoop()
        network = Network(self.loop, Random(1), 0.002, 0.5)
        self.service = kind(self.loop, network, Random(2), Trace(self.loop))
        if isinstance(self.service, ZooKeeperModel):
            replace_kazoo(monkeypatch.setattr, self.loop, self.service)
            monkeypatch.setattr(zookeeper, "monotonic", self.loop.time)
        self.ttl = 10.0 if kind.name == "consul" else 4.0
        self._nodes = 0

    async def make_node(self) -> UUID:
        self._nodes += 1
        return uuid5(UUID(int=0), str(self._nodes))

    def open_driver(self) -> Coordination:
        return open_driver(
            self.service, parse_coordination(f"{self.service.scheme}://service"), _FOLDER
        )

    def run(self, work: Callable[[Coordination], Awaitable[Any]]) -> Any:
        async def whole() -> Any:
            driver = self.open_driver()
            try:
                return await work(driver)
            finally:
                await driver.close()

        context = context_of(Process("one"))
        return self.loop.run_until_complete(self.loop.create_task(whole(), context=context))


@pytest.fixture(params=MODELS, ids=lambda kind: kind.name)
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(request.param, monkeypatch)
    yield made
    made.loop.bury()
    made.loop.close()


@pytest.mark.parametrize("name", _SUITE)
def test_a_model_passes_the_suite_of_the_real_ones(world: World, name: str) -> None:
    class Suite(CoordinationSuite):
        ttl = world.ttl

    async def conform(driver: Coordination) -> None:
        given: dict[str, Any] = {
            "coordination": driver, "make_node": world.make_node, "pass_time": asyncio.sleep,
        }  # fmt: skip
        test = getattr(Suite(), name)
        wanted = inspect.signature(test).parameters
        await test(**{key: value for key, value in given.items() if key in wanted})

    begun = time.monotonic()
    world.run(conform)
    assert time.monotonic() - begun < 60  # by virtual time it is minutes


def test_a_service_that_hangs_or_is_away_is_an_error_and_then_used_again(world: World) -> None:
    async def work(driver: Coordination) -> None:
        node = await world.make_node()
        await driver.renew(node, world.ttl)
        for break_it, mend in (
            (world.service.stop, world.service.start),
            (world.service.freeze, world.service.thaw),
        ):
            break_it()
            with pytest.raises((CoordinatorUnavailable, TimeoutError)):
                await asyncio.wait_for(_until_it_fails(driver, node, world.ttl), 3 * world.ttl)
            mend()
            await asyncio.sleep(3 * world.ttl)
            assert node in (await _persist(driver, node, world.ttl)).members

    world.run(work)


def test_numbers_of_a_wiped_service_begin_again(world: World) -> None:
    async def work(driver: Coordination) -> None:
        node = await world.make_node()
        await _persist(driver, node, world.ttl)
        for _ in range(5):
            [before] = await driver.acquire(node, world.ttl, [3])
            await driver.release(node, [3])
        world.service.replace(State())
        await asyncio.sleep(3 * world.ttl)
        await _persist(driver, node, world.ttl)
        [after] = await driver.acquire(node, world.ttl, [3])
        assert after.epoch < before.epoch

    world.run(work)


def test_what_a_former_session_of_a_node_holds_is_not_held(world: World) -> None:
    """As after an interruption: kazoo begins a new session, and the ephemeral nodes of the old one live
    on. Or a backup has brought an old session back."""

    async def work(driver: Coordination) -> None:
        node = await world.make_node()
        await _persist(driver, node, world.ttl)
        assert len(await driver.acquire(node, world.ttl, [1, 2])) == 2
        former = world.service.backup()
        assert [g.shard for g in (await driver.renew(node, world.ttl)).grants_of(node)] == [1, 2]
        await driver.release(node)
        await _persist(driver, node, world.ttl)
        for session, lease in former.sessions.items():
            world.service.state.sessions[session] = lease
            world.service.renew(world.service.state, session)
        for key, entry in former.keys.items():
            if "/shards/" in key:
                world.service.state.keys[key] = entry
        world.service.state.revision += 100
        for key in [key for key in world.service.state.keys if key.endswith("/shards")]:
            folder = world.service.state.keys[key]
            changed = folder._replace(modified=world.service.state.revision)
            world.service.state.keys[key] = changed
        assert (await driver.renew(node, world.ttl)).grants_of(node) == []

    world.run(work)


async def _until_it_fails(driver: Coordination, node: UUID, ttl: float) -> None:
    while True:
        await driver.renew(node, ttl)
        await asyncio.sleep(0.1)


async def _persist(driver: Coordination, node: UUID, ttl: float) -> Any:
    """As the scheduler does: a call that fails is made again."""
    for _ in range(20):
        try:
            return await driver.renew(node, ttl)
        except CoordinatorUnavailable:
            await asyncio.sleep(1)
    raise AssertionError("it never answered")
