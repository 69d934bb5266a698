"""A cluster works on while the three machines of its coordinator are cut apart: proof/quorums.py."""

from __future__ import annotations

import pytest

from proof.quorums import KINDS, missing, run


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", list(KINDS))
async def test_nothing_is_lost_or_doubled_when_the_leader_of_three_is_cut_off(name: str) -> None:
    if reason := missing(name):
        pytest.skip(reason)
    found = await run(name, ["leader cut"])
    assert found.violations == 0, found
    assert found.jobs > 100
    assert found.occurrences > 100
    assert len(found.takeovers) == len(found.takeover_while_away) == 1
