"""Brokers, relays and workers that are broken while jobs run: proof/dispatch.py."""

from __future__ import annotations

import pytest

from proof import dispatch

KINDS = {
    "kill_worker", "kill_relay", "kill_both", "restart_broker", "wipe_broker", "pause_broker",
    "pause_worker", "pause_relay",
}  # fmt: skip


@pytest.mark.proof
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", dispatch.SERVICES)
async def test_jobs_end_and_none_begins_twice_whatever_is_broken(name: str):
    if (missing := dispatch.SERVICES[name].missing()) is not None:
        pytest.skip(missing)
    found = await dispatch.run(name, 5_000, seconds=300)
    assert found.violations == 0, found
    assert set(found.done) == KINDS, f"not everything was broken: {found}"
    assert found.met == sum(found.done.values()), f"no job ran when something was broken: {found}"
