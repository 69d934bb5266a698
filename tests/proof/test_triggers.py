"""Each message becomes one job while readers and the broker are killed: proof/triggers.py."""

from __future__ import annotations

import pytest

from proof.triggers import SERVICES, run


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", list(SERVICES))
async def test_each_message_becomes_one_job_whatever_is_killed(name: str) -> None:
    if reason := SERVICES[name].missing():
        pytest.skip(reason)
    found = await run(name, messages=2_500, kills=3)
    assert (found.jobs, found.missing, found.doubled) == (2_500, 0, 0), found
