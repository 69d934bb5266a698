"""A node's estimate of the database's time: never ahead of it, whatever the network and the clock do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rota.runtime.clock import DatabaseClock

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
