"""A node's estimate of the database's time: never ahead of it, whatever the network and the clock do."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from rota.runtime.clock import DatabaseClock
from rota.store.work import Succeeded
from tests.support.fake_node import FakeNode

_TRUE_OFFSET = 1_000_000.0
_delay = st.floats(0, 5, allow_nan=False)


def heard(clock: DatabaseClock, sent: float, there: float, back: float, offset: float) -> float:
    """The database answers after `there` seconds, and its reply takes `back`. When it has arrived."""
    received = sent + there + back
    clock.observe(sent + there + offset, sent, received)
    return received


@given(st.lists(st.tuples(_delay, _delay), min_size=1, max_size=40))
def test_the_estimate_is_never_ahead_of_the_database(delays):
    clock, now, best = DatabaseClock(), 0.0, float("inf")
    for there, back in delays:
        now = heard(clock, now + 1, there, back, _TRUE_OFFSET)
        best = min(best, back) if len(delays) <= 12 else best
        estimate = clock.seconds(now)
        assert estimate is not None
        assert estimate <= now + _TRUE_OFFSET + 1e-6
    if len(delays) <= 12:  # as many as it remembers: the quickest reply decides
        assert clock.seconds(now) >= now + _TRUE_OFFSET - best - 1e-6


@given(st.lists(st.tuples(_delay, _delay), min_size=1, max_size=20), st.floats(6, 1e6))
def test_a_clock_that_was_set_back_is_followed_with_the_first_answer(delays, step):
    clock, now = DatabaseClock(), 0.0
    for there, back in delays:
        now = heard(clock, now + 1, there, back, _TRUE_OFFSET)
    now = heard(clock, now + 1, 0.01, 0.01, _TRUE_OFFSET - step)
    assert clock.seconds(now) <= now + _TRUE_OFFSET - step + 1e-6


def test_a_slow_reply_is_no_clock_that_was_set_back():
    clock = DatabaseClock()
    now = heard(clock, 0.0, 0.001, 0.001, _TRUE_OFFSET)
    now = heard(clock, now + 1, 2.0, 3.0, _TRUE_OFFSET)
    assert clock.seconds(now) >= now + _TRUE_OFFSET - 0.002


async def started_at(sandbox, hot, *, estimate: timedelta, started: timedelta):
    """A job that is due now; when it began by the past, if the node's estimate is off by so much."""
    node = await FakeNode(hot, sandbox.app.settings).register()
    handle = await sandbox.app.submit("greet")
    row = await node.claim_one()
    due = (await handle.status()).due_at
    now = await hot.fetchval("now")
    ran = (now - (due + started)).total_seconds()
    done = Succeeded(row["id"], row["token"], ran, 0.0)
    assert await node.store.finish_succeeded(node.id, [done], 0.0, database_now=now + estimate) == 1
    return (await handle.status()).started_at - due


async def test_an_estimate_that_fell_behind_makes_no_start_look_early(sandbox, hot):
    """Which estimate a node has may get worse between the start and the end of a job."""
    off = await started_at(
        sandbox, hot, estimate=timedelta(seconds=-1), started=timedelta(milliseconds=1)
    )
    assert off == timedelta(0)


async def test_a_start_that_was_early_is_not_made_punctual(sandbox, hot):
    early = timedelta(seconds=-5)
    off = await started_at(sandbox, hot, estimate=timedelta(seconds=-1), started=early)
    assert abs(off - early) < timedelta(milliseconds=1)
