"""What a node may run under limits, by what claims answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from rota.config import Settings
from rota.lib.ids import new_id
from rota.store.limits import Allotments
from rota.worker.gates import Gates
from rota.worker.shared_lanes import SharedLanes
from rota.worker.slots import Slots

LANE, METER = "default/default", "queue:default"


class Store:
    """Answers a claim when the test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[tuple[list[Any], Allotments | None]] = asyncio.Future()

    async def claim_allotted(self, *args: Any) -> tuple[list[Any], Allotments | None]:
        self.asked.set()
        return await self.answer


async def test_what_a_claim_of_an_earlier_lease_was_allowed_is_not_ours():
    """The node was declared dead meanwhile: its places belong to others, and it has a new lease."""
    store, lease = Store(), SimpleNamespace(node_id=new_id())
    slots = Slots(Settings(), lambda runner, work: None)
    shared = SharedLanes(
        store,
        {},
        slots,
        Settings(),
        lambda node: node == lease.node_id,  # type: ignore[arg-type]
    )
    claim = asyncio.create_task(shared.claim(lease.node_id, {f"{LANE}#": 4}, 4, ["greet"], {}))
    await store.asked.wait()
    lease.node_id = new_id()
    slots.gates.forget()
    store.answer.set_result(([], Allotments({LANE: [METER]}, {METER: 40}, {METER: True})))
    await claim
    assert slots.gates.by_name == {}
    assert slots.gates.lanes == {}


async def test_what_a_claim_of_this_lease_was_allowed_is_ours():
    store, node = Store(), new_id()
    slots = Slots(Settings(), lambda runner, work: None)
    shared = SharedLanes(store, {}, slots, Settings(), lambda one: one == node)  # type: ignore[arg-type]
    store.answer.set_result(([], Allotments({LANE: [METER]}, {METER: 40}, {METER: True})))
    await shared.claim(node, {f"{LANE}#": 4}, 4, ["greet"], {})
    assert slots.gates.by_name[METER].limit == 40


def test_no_more_places_are_asked_for_than_the_runner_of_the_jobs_has_slots():
    """A node with one child process and many slots for coroutines keeps one place of plain functions."""
    gates, place = Gates(), SimpleNamespace(runner=_Sized(1))
    gates.take({LANE: [METER]}, {METER: 10}, [METER], 41, now=100.0)
    assert gates.held(100.0, 100, 41)[METER][3] == 41  # nothing is known of its jobs yet
    work: Any = SimpleNamespace(lane=LANE, place=place, gates=())
    assert gates.enter(work)
    assert gates.held(100.0, 100, 41)[METER] == (10, 1, 0, 1)


class _Sized:
    def __init__(self, size: int) -> None:
        self.size = size


def test_no_more_places_are_asked_for_where_nothing_was_ready_for_two_seconds():
    """The queue was paused: others, of another queue of the task, can use the places."""
    gates = Gates()
    gates.take({LANE: [METER]}, {METER: 4}, [METER], 8, now=100.0)
    gate = gates.by_name[METER]
    gates.take({}, {}, [], 8, now=101.0)
    assert gate.more  # another claim may have held the lane
    gates.take({}, {}, [], 8, now=102.5)
    assert not gate.more
    gates.take({LANE: [METER]}, {METER: 4}, [METER], 8, now=103.0)
    assert gate.more
