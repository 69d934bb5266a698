"""Permits: places that handlers ask for, whatever becomes of their jobs."""

from __future__ import annotations

import pytest

from rota.context import PermitAsk
from rota.core.keys import Rate
from rota.store.limits import LimitStore
from tests.support.fake_node import FakeNode


@pytest.fixture
def app(sandbox):
    return sandbox.app


async def test_a_place_is_free_when_its_job_is_another_nodes(hot, app, greet, node):
    """Whatever dies: what counts is the row that runs under the token."""
    limits = LimitStore(hot)
    await greet.submit()
    await greet.submit()
    first, second = await node.claim()
    ask = _ask(1)
    place = node.id, "default", ask
    assert await take(limits, first, *place) is True
    assert await take(limits, second, *place) is False
    await node.give_back(first)
    assert await take(limits, second, *place) is True
    # An attempt that lost its lease gets nothing, and can't give back what isn't its own.
    with pytest.raises(AssertionError, match="lost"):
        await take(limits, first, *place)
    await limits.leave_permit(first["id"], first["token"], "default", ask)
    other = FakeNode(hot, app.settings, "other")
    await other.register()
    again = await other.claim_one()
    assert await take(limits, again, other.id, "default", ask) is False


async def test_who_asks_first_is_first(hot, app, greet, node):
    limits = LimitStore(hot)
    for _ in range(3):
        await greet.submit()
    first, second, third = await node.claim()
    assert await take(limits, first, node.id) is True
    assert await take(limits, second, node.id) is False
    assert await take(limits, third, node.id) is False
    await limits.leave_permit(first["id"], first["token"], "default", _ask(1))
    assert await take(limits, third, node.id) is False  # the second has asked before
    assert await take(limits, second, node.id) is True
    await node.finish_failed(second)
    assert await take(limits, third, node.id) is True


async def test_a_rate_of_a_limit_holds(hot, app, greet, node, sandbox):
    limits = LimitStore(hot)
    for _ in range(4):
        await greet.submit()
    rows = await node.claim()
    granted = [await take(limits, row, node.id, rate="60/minute", burst=2) for row in rows]
    assert granted == [True, True, False, False]
    await sandbox.advance(seconds=1)
    granted = [await take(limits, row, node.id, rate="60/minute", burst=2) for row in rows[2:]]
    assert granted == [True, False]


def _ask(most=None, rate=None, burst=None):
    return PermitAsk(1, "stripe", most, Rate.parse(rate, burst) if rate else None)


async def take(limits, row, node, namespace="default", ask=None, rate=None, burst=None):
    ask = ask or _ask(None if rate else 1, rate, burst)
    granted, _, lost = await limits.take_permit(node, row["id"], row["token"], namespace, ask)
    assert not lost, "lost"
    return granted
