"""Nodes of the release before and of this one, side by side on the migrated schema."""

from __future__ import annotations

import pytest

from proof.upgrade import _judge, main, previous_release


def test_what_a_rolling_upgrade_counts_as_failed_lost_and_doubled() -> None:
    lines = [
        ["submitted", "known-0", "0.0100"], ["known", "0", "old"],
        ["submitted", "exact-2", "0.0300"], ["exact", "2", "old"], ["exact", "2", "new"],
        ["submitted", "known-4", "0.0200"],
        ["submitted", "known-6", "0.0200"], ["known", "6", "new"],
        ["refused", "8", "StoreUnavailable"], ["known", "-1", "new"], ["known", "-1", "new"],
    ]  # fmt: skip
    found = _judge(lines, done={"0", "2", "4"})
    assert (found.submitted, found.failed, found.lost, found.doubled) == (4, 1, 2, 1)
    assert found.ran == {"known": 2, "exact": 2}
    assert (found.slowest, found.broken) == (0.03, True)


@pytest.mark.proof
def test_a_rolling_upgrade_loses_nothing_and_runs_nothing_twice() -> None:
    """The small version of `make upgrade`."""
    ref = previous_release()
    if ref is None:
        pytest.skip("the release before isn't in this clone's history")
    found = main(ref, rate=100, seconds=1)
    assert not found.broken, found
    assert set(found.ran) == {"known", "exact", "unknown"}
