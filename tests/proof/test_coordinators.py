"""A cluster works on while its coordinator is killed, paused and wiped: proof/coordinators.py."""

from __future__ import annotations

import pytest

from proof.coordinators import SERVICES, run


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["etcd", "zookeeper", "consul"])
async def test_nothing_is_lost_or_doubled_while_a_coordinator_is_broken(name: str) -> None:
    kind = SERVICES[name]
    if kind is not None and (reason := kind.missing()):
        pytest.skip(reason)
    found = await run(name, quick=True)
    assert found.violations == 0, found
    assert found.jobs > 100
    assert found.occurrences > 100
    assert len(found.takeover_while_away) == 2
