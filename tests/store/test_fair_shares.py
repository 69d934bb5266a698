"""Fair queues: what each key gets of the slots, whoever claims, whatever the jobs take."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Any

import pytest

from rota import ConfigError, InvalidArguments, Task
from rota.store.limits import Ended, LimitStore
from rota.testing import Sandbox
from tests.support.fake_node import FakeNode

BASE = "default/default"


@pytest.fixture
def app(sandbox):
    return sandbox.app


@pytest.fixture
def limits(hot):
    return LimitStore(hot)


class Service:
    """A worker with slots, on a clock of its own: jobs of a key take as long as the key says."""

    def __init__(
        self, limits: LimitStore, node: FakeNode, seconds: dict[str, float], slots: int
    ) -> None:
        self._limits, self._node, self._seconds, self._slots = limits, node, seconds, slots
        self._running: list[tuple[float, str, Any]] = []  # when it ends, its key, the job
        self._ended: dict[str, Ended] = {}
        self.now = 0.0
        self.served: Counter[str] = Counter()
        self.order: list[str] = []
        self.keys: dict[object, str] = {}

    async def until(self, moment: float) -> None:
        while True:
            free = self._slots - len(self._running)
            if free:
                await self._claim(free)
            if not self._running:
                return
            end = min(end for end, _, _ in self._running)
            if end > moment:
                return
            await self._end(end)

    async def wait_until(self, moment: float, sandbox: Sandbox) -> None:
        """Let time pass, for the database as well, in which no job ends."""
        await sandbox.advance(seconds=moment - self.now)
        self.now = moment

    async def _claim(self, free: int) -> None:
        ended, self._ended = self._ended, {}
        rows = await self._limits.claim_shared(self._node.id, {BASE: free}, free, ["greet"], ended)
        for row in rows:
            key = self.keys[row["id"]]
            self.order.append(key)
            self._running.append((self.now + self._seconds[key], key, row))

    async def _end(self, moment: float) -> None:
        self.now = moment
        for one in [one for one in self._running if one[0] <= moment]:
            self._running.remove(one)
            _, key, row = one
            await self._node.finish_succeeded(row)
            lane = row["lane"]
            self.served[key] += self._seconds[key]
            known = self._ended.get(lane, Ended(0, 0.0))
            self._ended[lane] = Ended(known.jobs + 1, known.seconds + self._seconds[key])


async def submit(service: Service, task: Task[..., str], key: str, count: int, **options) -> None:
    for _ in range(count):
        job = await task.options(fairness_key=key, **options).submit()
        service.keys[job.id] = key


def shares(service: Service) -> dict[str, float]:
    total = service.served.total()
    return {key: served / total for key, served in service.served.items()}


async def test_shares_are_equal_in_seconds_and_not_in_jobs(app, greet, limits, node):
    await app.queues.set_policy("default", "fair")
    service = Service(limits, node, {"long": 10.0, "short": 1.0}, slots=4)
    await submit(service, greet, "long", 60)
    await submit(service, greet, "short", 240)
    await service.until(90)
    assert shares(service)["long"] == pytest.approx(0.5, abs=0.06)


async def test_weights_divide_the_slots_and_act_on_a_backlog(app, greet, limits, node):
    await app.queues.set_policy("default", "fair")
    await app.queues.set_weight("default", "b", 2)
    await app.queues.set_weight("default", "c", 5)
    service = Service(limits, node, {"a": 1.0, "b": 1.0, "c": 1.0}, slots=8)
    for key in "abc":
        await submit(service, greet, key, 220)
    await service.until(30)
    found = shares(service)
    assert found == pytest.approx({"a": 1 / 8, "b": 2 / 8, "c": 5 / 8}, abs=0.04)
    await app.queues.set_weight("default", "c", None)
    await app.queues.set_weight("default", "a", 6)
    service.served.clear()
    await service.until(45)
    found = shares(service)
    assert found == pytest.approx({"a": 6 / 9, "b": 2 / 9, "c": 1 / 9}, abs=0.06)


async def test_a_share_that_was_idle_gets_no_credit(app, greet, limits, node):
    await app.queues.set_policy("default", "fair")
    service = Service(limits, node, {"a": 1.0, "b": 1.0}, slots=2)
    await submit(service, greet, "b", 2)
    await submit(service, greet, "a", 100)
    await service.until(30)
    await submit(service, greet, "b", 60)
    service.served.clear()
    await service.until(50)
    assert shares(service)["a"] == pytest.approx(0.5, abs=0.1)


async def test_a_share_owes_nothing_for_a_slot_that_nobody_else_wanted(
    app, greet, limits, node, sandbox
):
    await app.queues.set_policy("default", "fair")
    seconds = {"a": 3600.0, "b": 1.0}
    service = Service(limits, node, seconds, slots=2)
    await submit(service, greet, "a", 1)
    await service.until(0)
    await service.wait_until(3590, sandbox)
    await submit(service, greet, "b", 120)
    await service.until(3600)
    seconds["a"] = 1.0
    await submit(service, greet, "a", 60)
    service.served.clear()
    await service.until(3640)
    assert shares(service).get("a", 0) == pytest.approx(0.5, abs=0.2)


async def test_a_share_pays_for_long_runs_while_others_wait(app, greet, limits, node, sandbox):
    await app.queues.set_policy("default", "fair")
    seconds = {"a": 40.0, "b": 1.0}
    service = Service(limits, node, seconds, slots=1)
    await submit(service, greet, "a", 2)
    await submit(service, greet, "b", 120)
    await service.until(0)
    if service.order == ["b"]:
        await service.until(1)
    assert service.order[-1] == "a"
    await service.wait_until(service.now + 39, sandbox)
    await service.until(service.now + 31)
    assert Counter(service.order)["a"] == 1, "b has waited for 40 seconds, and gets as many"


async def test_a_key_with_many_other_keys_has_one_share(app, greet, limits, node):
    await app.queues.set_policy("default", "fair")
    service = Service(limits, node, {"many": 1.0, "one": 1.0}, slots=4)
    for n in range(20):
        await submit(service, greet, "many", 6, order_key=f"order-{n}")
    await submit(service, greet, "one", 120)
    await service.until(25)
    assert shares(service)["one"] == pytest.approx(0.5, abs=0.1)


async def test_jobs_without_a_key_have_one_share(app, greet, limits, node):
    await app.queues.set_policy("default", "fair")
    service = Service(limits, node, {"a": 1.0, "": 1.0}, slots=4)
    await submit(service, greet, "a", 100)
    for _ in range(100):
        service.keys[(await greet.submit()).id] = ""
    await service.until(20)
    assert shares(service)["a"] == pytest.approx(0.5, abs=0.1)


async def test_priority_counts_inside_a_share(app, greet, limits, node):
    await app.queues.set_policy("default", "fair")
    service = Service(limits, node, {"a": 1.0, "urgent": 1.0}, slots=1)
    for _ in range(3):
        job = await greet.options(fairness_key="a").submit()
        service.keys[job.id] = "a"
    job = await greet.options(fairness_key="a", priority=9).submit()
    service.keys[job.id] = "urgent"
    await service.until(10)
    assert service.order[0] == "urgent"


async def test_a_policy_acts_on_the_backlog_at_once_and_both_ways(app, greet, limits, node):
    service = Service(limits, node, {"a": 1.0, "b": 1.0}, slots=1)
    await submit(service, greet, "a", 40)
    await submit(service, greet, "b", 40)
    await service.until(5)
    assert set(service.order) == {"a"}
    await app.queues.set_policy("default", "fair")
    service.order.clear()
    await service.until(15)
    assert Counter(service.order)["b"] == pytest.approx(5, abs=1)
    await app.queues.set_policy("default", "priority")
    service.order.clear()
    await service.until(30)
    assert set(service.order) == {"a"}


async def test_claims_at_the_same_time_lose_nothing_and_stay_fair(app, greet, limits, node, hot):
    await app.queues.set_policy("default", "fair")
    other = FakeNode(hot, app.settings, "other")
    services = [
        Service(limits, one, {"a": 0.5, "b": 2.0, "c": 1.0}, slots=3) for one in (node, other)
    ]
    services[1].keys = services[0].keys
    for key in "abc":
        await submit(services[0], greet, key, 80)
    for moment in range(1, 21):
        await asyncio.gather(*(service.until(moment) for service in services))
    served = services[0].served + services[1].served
    total = served.total()
    assert all(served[key] / total == pytest.approx(1 / 3, abs=0.08) for key in "abc")
    rest = deque(services)
    while rest:
        await rest[0].until(10_000)
        rest.popleft()
    assert Counter(services[0].order + services[1].order) == {"a": 80, "b": 80, "c": 80}


async def test_what_is_shown_of_shares(app, greet, limits, node):
    await app.queues.set_policy("default", "fair")
    await app.queues.set_weight("default", "absent", 3)
    service = Service(limits, node, {"a": 2.0}, slots=1)
    await submit(service, greet, "a", 3)
    await service.until(2)
    found = {share.key: share for share in await app.queues.shares("default")}
    assert (found["absent"].weight, found["absent"].served) == (3, 0)
    assert (found["a"].weight, found["a"].running, found["a"].waiting) == (1, 1, True)
    assert found["a"].served == pytest.approx(2.0)
    assert (await app.queues.get("default")).policy == "fair"


@pytest.mark.parametrize("weight", [0, -1, "3", True, float("nan"), 1e9])
async def test_a_weight_that_is_none_is_refused(app, weight):
    with pytest.raises(ConfigError, match="weight must be a number from"):
        await app.queues.set_weight("default", "a", weight)


async def test_bad_policies_and_keys_are_refused(app, greet):
    with pytest.raises(ConfigError, match=r"policy must be one of .*, not 'lifo'"):
        await app.queues.set_policy("default", "lifo")
    with pytest.raises(InvalidArguments, match="fairness_key must be a text of 1 to 255"):
        await greet.options(fairness_key="").submit()
    with pytest.raises(InvalidArguments, match="fairness_key"):
        await app.queues.set_weight("default", "x" * 256, 1)
